/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attachment to a VM that another program started: its process, its memory, a backend that
 * samples its vCPUs, and a thread that moves the samples into one ring per vCPU, like the VMM's own
 * sampler.
 *
 *	kernel --backend--> attach thread --sample--> ring --> collector
 *
 * attach_open() -> attach_start() -> until attach_end_fd() is readable or the caller is done ->
 * attach_stop() -> attach_close(), all on one thread. The VM is not stopped, and none of its memory
 * is written.
 */
#ifndef KVMSCOPE_ATTACH_ATTACHMENT_H
#define KVMSCOPE_ATTACH_ATTACHMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "shared/ring.h"
#include "vmm/attach/backend.h"
#include "vmm/attach/vcpu_times.h"
#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"

struct attach;

/* us */
#define ATTACH_STOP_LIMIT 200

struct attach_options {
	pid_t pid; /* 0: the process of the domain or of the monitor's socket */
	int vm;    /* its descriptor in a process with several VMs; 0: the only VM */
	/* The VM belongs to this process: all vCPUs exist but may not run yet, and the caller
	 * reports when they start (attach_rescan()). */
	bool own;
	struct monitor_address monitor; /* as given by the user */
	const char *backend;            /* its name, or "auto" for the best one that works */
	enum attach_event event;        /* cycles only by bpf and perf */
	unsigned int outside;           /* enum attach_outside; only by bpf */
	bool host_stacks;               /* the host's call chains; only by bpf */
	unsigned int frequency;         /* Hz */
	bool callchains;
	bool overwrite;          /* rings keep the newest samples, for a flight recorder */
	size_t ring_size;        /* bytes per vCPU, see ring_create() */
	unsigned int stop_limit; /* us that a thread may be stopped; 0: ATTACH_STOP_LIMIT */
};

struct attach_statistics {
	uint64_t guest, host;      /* samples in the guest and outside of it */
	uint64_t outside;          /* samples of time outside by attach_options.outside */
	uint64_t lost;             /* dropped by the backend */
	unsigned int vcpus;        /* sampled now */
	bool ended;                /* the VM's process has exited */
	struct attach_stops stops; /* zero if the backend stops nothing */
	struct vcpu_times times;   /* sums of all vCPUs, as wall_clock.h has them */
};

/*
 * Finds the VM and chooses the backend; sampling does not start yet. -ENOENT: no thread that runs a
 * vCPU was found; -EINVAL: unknown backend; -ENOTSUP or -EACCES: it, or none of them, works here,
 * see the message; also the errors of vmm_process_open(), domain_open(), domain_find_process() and
 * monitor_find_process(). OPTIONS can be freed afterwards, but not the strings of the monitor
 * address.
 */
int attach_open(struct attach **attach, const struct attach_options *options);

const struct vmm_process *attach_process(const struct attach *attach);
const struct attach_backend *attach_backend(const struct attach *attach);
enum attach_event attach_event(const struct attach *attach);

/* Hz: the requested frequency, or the backend's maximum. */
unsigned int attach_frequency(const struct attach *attach);

/*
 * One line for each better backend that does not work here, with the reason; "" if there is none.
 */
const char *attach_refused(const struct attach *attach);

/* The rings by vCPU id, with spare ones for hot-plugged vCPUs. Valid until attach_close(). */
struct ring *const *attach_rings(const struct attach *attach, size_t *count);

/* The guest's memory as far as it is known; for any thread until attach_close(). */
const struct guest_view *attach_view(const struct attach *attach);

/* Starts sampling. The errors of the backend and of pthread_create(). */
int attach_start(struct attach *attach);

/* For poll(): readable after the VM has ended or can no longer be sampled. */
int attach_end_fd(const struct attach *attach);

/*
 * Scans for vCPUs that have started or ended, and drains samples; waits until that is done, some
 * ms. -ECANCELED, with the message: sampling has ended, see attach_error(). Any thread but the
 * collector's.
 */
int attach_rescan(struct attach *attach);

/* Sets another frequency in Hz before it returns; 0: no samples until the next call. -ENOTSUP: not
 * with this backend; -ECANCELED as above; both with the message. Any thread but the collector's. */
int attach_set_frequency(struct attach *attach, unsigned int frequency);

/* Registers by which the running kernel can be found (struct collector_options). Sometimes searches
 * the guest's memory for tenths of a second. The collector's thread. */
bool attach_registers(struct attach *attach, struct guest_registers *registers);

/* Checks samples against KERNEL (NULL: none) from now on. The previous kernel is unused when this
 * returns. Any thread. */
void attach_set_kernel(struct attach *attach, const struct guest_kernel *kernel);

/* Returns when no sample that is in progress uses the kernel, or what was replaced in it. Waits for
 * at most one sample. Any thread. */
void attach_wait_for_users(struct attach *attach);

/* True while kernel call chains need a kernel that is not known yet: samples are unwound as they
 * arrive. False when the kernel is known, or all memory was searched without one. Any thread. */
bool attach_awaits_kernel(struct attach *attach);

/* The known kernel has most likely ended: searches for another one. */
void attach_drop_kernel(struct attach *attach);

void attach_statistics(struct attach *attach, struct attach_statistics *statistics);

/* The wall times of each sampled vCPU, as wall_clock_rows(). Any thread. */
int attach_times(struct attach *attach, struct vcpu_times_rows *rows);

/* Drains the last samples, and ends the thread and the backend. A second call does nothing. */
void attach_stop(struct attach *attach);

/* After attach_stop(): why sampling ended before the VM did, with the message; else 0. */
int attach_error(const struct attach *attach);

/* NULL is allowed. */
void attach_close(struct attach *attach);

#endif
