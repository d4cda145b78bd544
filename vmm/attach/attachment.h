/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attachment to somebody else's VM: its process, its memory, a backend
 * that samples its vCPUs, and a thread that takes what the backend finds to
 * one ring for each vCPU, as the VMM's own sampler does.
 *
 *	kernel --backend--> attach thread --sample--> ring --> collector
 *
 * attach_open() -> attach_start() -> it runs until attach_end_fd() can be read, or for as long as
 *is wanted -> attach_stop() -> attach_close(), on one thread. The VM is not stopped, and nothing of
 *it is written.
 */
#ifndef KVMSCOPE_ATTACH_ATTACHMENT_H
#define KVMSCOPE_ATTACH_ATTACHMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "shared/ring.h"
#include "vmm/attach/backend.h"
#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"

struct attach;

/* us */
#define ATTACH_STOP_LIMIT 200

struct attach_options {
	pid_t pid; /* 0: the process of the domain, or of the monitor's socket */
	int vm;    /* its descriptor in the process, where that has several VMs; 0: it has one */
	/*
	 * The VM is this process's own: its vCPUs are all there and may not run yet, who starts
	 * them says so (attach_rescan()), and it is sampled by the clock, also where cycles can be
	 * counted.
	 */
	bool own;
	struct monitor_address monitor; /* as far as the user tells it */
	const char *backend;            /* its name, or "auto": the best that works */
	unsigned int frequency;         /* Hz */
	bool callchains;
	bool overwrite;          /* rings keep what is newest: for a flight recorder */
	size_t ring_size;        /* bytes, of each vCPU: see ring_create() */
	unsigned int stop_limit; /* us that a thread may be stopped for; 0: ATTACH_STOP_LIMIT */
};

struct attach_statistics {
	uint64_t guest, host;      /* samples taken in the guest, and outside of it */
	uint64_t lost;             /* by the backend */
	unsigned int vcpus;        /* that are sampled now */
	bool ended;                /* the VM's process has */
	struct attach_stops stops; /* none but zeros of a backend that does not stop anything */
};

/*
 * Finds the VM and chooses the backend; nothing is sampled yet. Errors: those of
 * vmm_process_open(), domain_open(), domain_find_process() and monitor_find_process(); -ENOENT: no
 * thread that runs a vCPU was found; -EINVAL: there is no such backend; -ENOTSUP or -EACCES: it, or
 * none of them, works here, the message says why. OPTIONS are not used afterwards, but the strings
 * of the monitor's address are.
 */
int attach_open(struct attach **attach, const struct attach_options *options);

const struct vmm_process *attach_process(const struct attach *attach);
const struct attach_backend *attach_backend(const struct attach *attach);
enum attach_event attach_event(const struct attach *attach);

/* Hz: what was asked for, or the most that the backend can do. */
unsigned int attach_frequency(const struct attach *attach);

/* One line for each better backend that does not work here, and why; "" if there is none. */
const char *attach_refused(const struct attach *attach);

/* The rings, by the ids of vCPUs; with some for those that may come. Valid until attach_close(). */
struct ring *const *attach_rings(const struct attach *attach, size_t *count);

/* The guest's memory, as far as it is known: readable by any thread until attach_close(). */
const struct guest_view *attach_view(const struct attach *attach);

/* Starts sampling. The errors of the backend, of making a thread. */
int attach_start(struct attach *attach);

/* Can be polled: readable once the VM has ended, or can't be sampled any more. */
int attach_end_fd(const struct attach *attach);

/*
 * Looks for vCPUs that run by now or have ended, and takes what was sampled before. Comes back when
 * that is done: some ms. -ECANCELED, with the message: nothing is sampled (any more),
 * attach_error() tells why. Any thread but the collector's.
 */
int attach_rescan(struct attach *attach);

/*
 * Another frequency in Hz from when it comes back on, or 0: no samples until the next call.
 * -ENOTSUP: the backend can not; -ECANCELED as above; both with the message. Any thread but the
 * collector's.
 */
int attach_set_frequency(struct attach *attach, unsigned int frequency);

/*
 * Registers by which the kernel that runs now can be found (struct collector_options). May
 * search the guest's memory for tenths of a second, now and then. The collector's thread.
 */
bool attach_registers(struct attach *attach, struct guest_registers *registers);

/*
 * Samples are checked against KERNEL (NULL: against none) from now on. When this comes back the one
 * before is not used any more. Any thread.
 */
void attach_set_kernel(struct attach *attach, const struct guest_kernel *kernel);

/*
 * Comes back when no sample that was begun before uses the kernel, or what was replaced in it, any
 * more: as long as a sample takes. Any thread.
 */
void attach_wait_for_users(struct attach *attach);

/*
 * Callers in the kernel are wanted, which only a known kernel can give: samples are unwound once,
 * as they come. No longer true when the kernel is known, or all of memory was searched and there is
 * none. Any thread.
 */
bool attach_awaits_kernel(struct attach *attach);

/* The kernel that was found first runs no more, as far as can be told: another is to be looked for.
 */
void attach_drop_kernel(struct attach *attach);

/* Any thread. */
void attach_statistics(struct attach *attach, struct attach_statistics *statistics);

/* Takes what was sampled until now, ends the thread and the backend. A second call does nothing. */
void attach_stop(struct attach *attach);

/* After attach_stop(): why sampling ended by itself though the VM had not, with the message; else
 * 0. */
int attach_error(const struct attach *attach);

/* Works on NULL. */
void attach_close(struct attach *attach);

#endif
