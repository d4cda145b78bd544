/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run-time code without help from the guest: the perf maps of processes that execute anonymous
 * memory are read from guest memory repeatedly (perf_map_file.h) and reported in the form of the
 * agent's records (jit_code.h). A line is dated between two scans, and never before the process was
 * first seen running the same program. Collector thread.
 */
#ifndef KVMSCOPE_RECORD_JIT_MAPS_H
#define KVMSCOPE_RECORD_JIT_MAPS_H

#include <stdbool.h>

#include "shared/sample_record.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/record/image_parser.h"
#include "vmm/record/jit_code.h"

struct jit_maps;

/* Processes that are followed at a time. */
#define JIT_MAPS_MAX 64u

/* PARSER, of the lines, outlives it. NULL without memory. */
struct jit_maps *jit_maps_new(struct image_parser *parser);
void jit_maps_free(struct jit_maps *maps); /* NULL is a no-op */

/* Follows the process of SAMPLE, taken under KERNEL, if it runs anonymous memory. */
void jit_maps_sample(struct jit_maps *maps, const struct guest_kernel *kernel,
		     const struct sample *sample);

/* Scans all maps and reports them to CODE. RUNS returns whether KERNEL, whose memory is read, is
 * still running. Some lines may be left for the next scan. */
void jit_maps_scan(struct jit_maps *maps, const struct guest_kernel *kernel,
		   const struct guest_view *view, bool (*runs)(void *context), void *context,
		   struct jit_code *code);

/* Stops following: the agent reports the maps, or another kernel runs. */
void jit_maps_end(struct jit_maps *maps, struct jit_code *code);

#endif
