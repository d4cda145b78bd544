/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watches of a run, between the guest's debug registers, the sampler that
 * takes their hits, and the kernel's symbols once they are known: those of
 * --watch, and those that are added and removed while the guest runs.
 *
 *	run_watch_enter, _leave, _kicked, _debug	the vCPU's thread
 *	run_watch_kernel, _no_kernel, _turn		the collector's thread
 *	run_watch_add, _remove, _describe, _ran		any thread between join and destroy
 *	everything else					the main thread
 */
#ifndef KVMSCOPE_CLI_RUN_WATCH_H
#define KVMSCOPE_CLI_RUN_WATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "vmm/cli/run_options.h"
#include "vmm/debug/watches.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/kvm/vm.h"
#include "vmm/perf_data/perf_data_watch.h"
#include "vmm/sample/sampler.h"

struct run_watch;

/*
 * Reserves registers for the watches of OPTIONS, once it was tried out whether this KVM can do what
 * they want: -ENOTSUP with what it can not, or the errors of watch_add(). Forks.
 */
int run_watch_create(struct run_watch **watch, const struct run_options *options);
/* Works on NULL. */
void run_watch_destroy(struct run_watch *watch);

/* As events of the recording; owned by WATCH. */
const struct perf_data_watches *run_watch_events(const struct run_watch *watch);

/* Before the vCPUs start. All outlive the vCPUs, VIEW until run_watch_end(). */
void run_watch_join(struct run_watch *watch, struct sampler *sampler, const struct guest_view *view,
		    struct vm *vm);

/* Behind sampler_attach(), and before sampler_detach(). */
int run_watch_enter(struct run_watch *watch, struct vcpu *vcpu);
void run_watch_leave(struct run_watch *watch, struct vcpu *vcpu);
void run_watch_kicked(struct run_watch *watch, struct vcpu *vcpu);
void run_watch_debug(struct run_watch *watch, struct vcpu *vcpu);

/*
 * The guest's kernel was found, or has other modules: what was given by symbol
 * is armed. KERNEL stays valid until the next call, or until run_watch_end().
 */
void run_watch_kernel(struct run_watch *watch, const struct guest_kernel *kernel);

/*
 * The guest's modules are the COUNT ones of LIST by now: what was given by symbol of another one is
 * disarmed until the next run_watch_kernel(). LIST NULL: nobody knows which there are, so no symbol
 * of a module is watched until run_watch_no_kernel().
 */
void run_watch_modules(struct run_watch *watch, const struct guest_module *list, size_t count);

/* It runs no more: what was given by symbol is disarmed until the next run_watch_kernel(). */
void run_watch_no_kernel(struct run_watch *watch);

/* From time to time: a kernel that starts gives its CPUs memory some time after it can be found. */
void run_watch_turn(struct run_watch *watch);

/* The guest has ended: nothing can be added any more, and no kernel is looked at. */
void run_watch_end(struct run_watch *watch);

/*
 * Watches what SPEC says from now on: its number. The errors of run_watch_create(),
 * -ENOENT for a symbol that the guest's kernel does not have, or of a module that nobody knows to
 * be there, -EINVAL for what no register can watch, -ENOSPC with who has the registers, -EMFILE for
 * one too many, -ESRCH when the guest has ended. Where the kernel was not found yet, a symbol waits
 * for it.
 */
int run_watch_add(struct run_watch *watch, const struct watch_spec *spec);

/*
 * Its register is free for others; its event stays in the recording with its hits. -ENOENT unless
 * NUMBER is a watch that was not removed.
 */
int run_watch_remove(struct run_watch *watch, unsigned int number);

enum run_watch_state {
	RUN_WATCH_WAITING, /* for an address: the kernel was not found, or has no such symbol */
	RUN_WATCH_WATCHING,
	RUN_WATCH_REMOVED,
};

struct run_watch_description {
	char name[192]; /* of the event */
	enum run_watch_state state;
	struct watch_spec spec;
};

/* False: there is no watch NUMBER. */
bool run_watch_describe(struct run_watch *watch, unsigned int number,
			struct run_watch_description *description);

/*
 * The registers of VCPU's latest sample, and the task that it was in: whom a watch can be bound to.
 * False where it is not known, or was no more when it was looked at.
 */
bool run_watch_ran(struct run_watch *watch, unsigned int vcpu, struct guest_registers *registers,
		   struct guest_task *task);

/* For what they count, on any thread. */
struct watches *run_watch_watches(struct run_watch *watch);
unsigned int run_watch_vcpus(const struct run_watch *watch);

/* A line for each watch: how often it was hit. When the vCPUs have ended. */
void run_watch_summarize(struct run_watch *watch);

#endif
