/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that processes of the guest made at run time, with nothing in the guest: the perf maps
 * of those that run code which is no file's, looked at in guest memory again and again
 * (perf_map_file.h), told as the guest's agent tells them (jit_code.h). What lies between two looks
 * is told so: nothing is taken to have been there before it was seen of the very program that was
 * seen then. The collector's thread.
 */
#ifndef KVMSCOPE_RECORD_JIT_MAPS_H
#define KVMSCOPE_RECORD_JIT_MAPS_H

#include <stdbool.h>

#include "shared/sample_record.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/record/jit_code.h"

struct jit_maps;

/* Processes whose maps are followed at a time. */
#define JIT_MAPS_MAX 64u

struct jit_maps *jit_maps_new(void);       /* NULL without memory */
void jit_maps_free(struct jit_maps *maps); /* NULL is a no-op */

/* SAMPLE was taken while KERNEL ran: does its process run such code? */
void jit_maps_sample(struct jit_maps *maps, const struct guest_kernel *kernel,
		     const struct sample *sample);

/*
 * A look at all of them, told to CODE. RUNS says whether KERNEL, the one whose memory it is, runs
 * (still). Some of what is there may wait for the next look.
 */
void jit_maps_scan(struct jit_maps *maps, const struct guest_kernel *kernel,
		   const struct guest_view *view, bool (*runs)(void *context), void *context,
		   struct jit_code *code);

/* Nothing is told of any of them from here on: others do, or another kernel runs. */
void jit_maps_end(struct jit_maps *maps, struct jit_code *code);

#endif
