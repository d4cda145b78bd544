/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watches of a run: --watch, and those that are added and removed while the guest runs.
 * Connects the guest's debug registers, the sampler that records the hits, and the kernel's
 * symbols.
 *
 *	run_watch_kernel, _modules, _no_kernel, _turn        the collector's thread
 *	run_watch_add, _remove, _describe, _ran              any thread between join and destroy
 *	everything else                                      the main thread
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

struct guest_task;
struct symbols;
struct run_watch;

/* Reserves registers for the watches of OPTIONS, after trying whether this KVM supports them:
 * -ENOTSUP with the reason, or the errors of watch_add(). Forks: the process must not have other
 * threads. */
int run_watch_create(struct run_watch **watch, const struct run_options *options);
/* NULL is a no-op. */
void run_watch_destroy(struct run_watch *watch);

/* The events of the recording; valid as long as WATCH. */
const struct perf_data_watches *run_watch_events(const struct run_watch *watch);

/* Before the vCPUs start. All must outlive the vCPUs, VIEW until run_watch_end(). */
void run_watch_join(struct run_watch *watch, struct sampler *sampler, const struct guest_view *view,
		    struct vm *vm);

/* The guest's kernel is not Linux: arms the watches of SYMBOLS, those of the file at PATH. Others
 * wait for a Linux kernel. After run_watch_join(); SYMBOLS must outlive the vCPUs. */
void run_watch_image(struct run_watch *watch, const struct symbols *symbols, const char *path);

/* The guest's kernel was found or has other modules: arms the watches of symbols. KERNEL must stay
 * valid until the next call, or until run_watch_end(). */
void run_watch_kernel(struct run_watch *watch, const struct guest_kernel *kernel);

/* The guest has the COUNT modules of LIST now: disarms symbols of other modules until the next
 * run_watch_kernel(). LIST NULL: the modules are unknown until run_watch_no_kernel(). */
void run_watch_modules(struct run_watch *watch, const struct guest_module *list, size_t count);

/* The kernel no longer runs: disarms all symbols until the next run_watch_kernel(). */
void run_watch_no_kernel(struct run_watch *watch);

/* Call it repeatedly: a starting kernel allocates per-CPU memory some time after it is found. */
void run_watch_turn(struct run_watch *watch);

/* The guest has ended: nothing can be added, and the kernel is no longer read. */
void run_watch_end(struct run_watch *watch);

/*
 * Starts watching SPEC and returns the watch's number. A symbol waits until it is known.
 * The errors of run_watch_create(); -ENOENT for a symbol that the kernel and its known modules do
 * not have, -EINVAL for what no register can watch, -ENOSPC with the holders of the registers,
 * -EMFILE for one watch too many, -ESRCH after the guest has ended.
 */
int run_watch_add(struct run_watch *watch, const struct watch_spec *spec);

/* Frees the register; the event stays in the recording with its hits. -ENOENT unless NUMBER is a
 * watch that was not removed. */
int run_watch_remove(struct run_watch *watch, unsigned int number);

enum run_watch_state {
	RUN_WATCH_WAITING, /* the kernel was not found, or has no such symbol */
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

/* The registers and the task of VCPU's latest sample, which a watch can be bound to. False if they
 * are unknown. */
bool run_watch_ran(struct run_watch *watch, unsigned int vcpu, struct guest_registers *registers,
		   struct guest_task *task);

/* For their counts on any thread, and for watch_enter(), _leave(), _kicked() and _debug(), on vCPU
 * threads after sampler_attach(). */
struct watches *run_watch_watches(struct run_watch *watch);
unsigned int run_watch_vcpus(const struct run_watch *watch);

/* Logs the hits of each watch. False if one was never armed. After the vCPUs have ended. */
bool run_watch_summarize(struct run_watch *watch);

#endif
