/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --watch: the watches of a run, between the guest's debug registers, the
 * sampler that takes their hits, and the kernel's symbols once they are known.
 *
 *	run_watch_enter, _leave, _kicked, _debug	the vCPU's thread
 *	run_watch_kernel				the collector's thread
 *	everything else					the main thread
 */
#ifndef KVMSCOPE_CLI_RUN_WATCH_H
#define KVMSCOPE_CLI_RUN_WATCH_H

#include <stddef.h>

#include "vmm/cli/run_options.h"
#include "vmm/debug/watch.h"
#include "vmm/guest/kernel.h"
#include "vmm/kvm/vm.h"
#include "vmm/profile/perf_data_writer.h"
#include "vmm/sample/sampler.h"

struct run_watch;

/*
 * Tries out whether this KVM can do what OPTIONS want to watch, and reserves
 * registers for it: -ENOTSUP with what it can not, or the errors of watch_add(). *WATCH is NULL
 * without --watch. Forks: before there are other threads.
 */
int run_watch_create(struct run_watch **watch, const struct run_options *options);
/* Works on NULL, as all that follow. */
void run_watch_destroy(struct run_watch *watch);

/* As events of the recording; owned by WATCH. */
const struct perf_data_watch *run_watch_events(const struct run_watch *watch, size_t *count);

/* Before the vCPUs start. Both outlive the vCPUs. */
void run_watch_join(struct run_watch *watch, struct sampler *sampler, struct vm *vm);

/* Behind sampler_attach(), and before sampler_detach(). */
int run_watch_enter(struct run_watch *watch, struct vcpu *vcpu);
void run_watch_leave(struct run_watch *watch, struct vcpu *vcpu);
void run_watch_kicked(struct run_watch *watch, struct vcpu *vcpu);
void run_watch_debug(struct run_watch *watch, struct vcpu *vcpu);

/* The guest's kernel was found, or has other modules: what was given by symbol is armed. */
void run_watch_kernel(struct run_watch *watch, const struct guest_kernel *kernel);

/* For those who ask while the guest runs, on any thread: NULL without --watch. */
struct watches *run_watch_watches(struct run_watch *watch);
unsigned int run_watch_vcpus(const struct run_watch *watch);
/* As the event is called. NUMBER is one of the watches. */
const char *run_watch_name(const struct run_watch *watch, unsigned int number);

/* A line for each watch: how often it was hit. When the vCPUs have ended. */
void run_watch_summarize(struct run_watch *watch);

#endif
