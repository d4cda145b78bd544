/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of an attachment, shared by its files: attachment.c opens and closes it,
 * attach_thread.c follows its vCPUs and drains the backend, attach_sink.c processes samples, and
 * attach_kernel.c finds the guest's kernel.
 */
#ifndef KVMSCOPE_ATTACH_ATTACH_STATE_H
#define KVMSCOPE_ATTACH_ATTACH_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "shared/cpu_budget.h"
#include "shared/error.h"
#include "shared/thread_check.h"
#include "vmm/attach/attachment.h"
#include "vmm/attach/kernel_liveness.h"
#include "vmm/attach/qemu_command_line.h"
#include "vmm/attach/thread_exits.h"
#include "vmm/attach/thread_request.h"
#include "vmm/attach/user_space.h"
#include "vmm/attach/wall_clock.h"

/* Number of CR3s in the cache of checks against the known kernel. */
#define CHECKED 64

struct checked {
	uint64_t cr3, time; /* ns; 0: unused entry */
	bool runs;
};

/* Kernel call chains by result; with kernel_lock. */
struct kernel_callchains {
	uint64_t without_kernel; /* sampled before the kernel was known */
	uint64_t without_stack;  /* without a copy of the stack */
	uint64_t cut;            /* the unwinder stopped before the end */
	uint64_t whole;
};

/* Guest time without a sampled thread (attach_unsampled.c), in ns. */
struct unsampled_time {
	uint64_t until;      /* watched until then; 0: not watched */
	uint64_t next;       /* when it is counted next */
	uint64_t guest, cpu; /* the process's times when it was counted */
	uint64_t sampled;    /* time that samples and losses since then stand for */
};

struct attach {
	struct vmm_process *process;
	struct vmm_memory memory;
	struct attach_target target;
	unsigned int frequency;               /* Hz, as requested */
	enum guest_encryption encryption;     /* as of vmm_encryption() */
	bool own;                             /* the VM belongs to this process */
	const struct attach_backend *backend; /* NULL: not chosen yet */
	struct attach_source *source;
	char refused[4 * ERROR_MESSAGE_SIZE];
	struct ring **rings; /* indexed by vCPU id */
	size_t ring_count;
	struct vmm_vcpu *sampled; /* the vCPUs that the backend samples; VMM_VCPUS_MAX of them */
	size_t sampled_count;
	struct wall_clock wall; /* of the sampled vCPUs */

	pthread_t thread;
	bool started;
	struct thread_check owner; /* the attach thread while it runs, else the opener */
	bool hangs;          /* a backend thread is stuck and still uses this: nothing is freed */
	int stop_fd, end_fd; /* eventfds */
	struct request request;
	/* Owned by the attach thread, up to the next empty line. */
	uint64_t next_scan, last_scan, previous_scan; /* ns */
	struct thread_exits exits;
	unsigned int replaced;   /* exited vCPU threads; the threads that replace them are
				  * searched until replaced_until */
	uint64_t replaced_until; /* ns */
	struct unsampled_time unsampled;
	struct vmm_process_size size; /* at the last scan for vCPUs */
	bool stopped;                 /* the thread was asked to stop */
	bool arriving;                /* a vCPU exists that the backend has not seen running yet */
	bool reported_no_ring;        /* a vCPU without a ring was reported */
	bool reported_refused;        /* a vCPU that cannot be sampled was reported */
	unsigned int ticks;           /* Hz that the backend samples all vCPUs with; 0: paused */
	uint64_t recorded, flushed, recorded_at_scan; /* samples and losses: so far, published to
							 the reader, at the last scan */

	pthread_mutex_t kernel_lock;
	const struct guest_kernel *kernel; /* owned by the collector; with kernel_lock */
	struct guest_registers latest;     /* from the backend; with kernel_lock */
	uint64_t latest_time;              /* ns, sample clock */
	struct checked checked[CHECKED];   /* with kernel_lock */
	struct kernel_callchains chains;
	/*
	 * Owned by the attach thread: state by vCPU id, and the attribution of the current sample.
	 */
	struct user_space_cpu *cpus;
	struct user_space space;
	struct attach_stops stops;   /* with kernel_lock */
	struct kernel_pulse pulse;   /* with kernel_lock, as the five that follow */
	struct kernel_clock *clocks; /* indexed by vCPU id; with kernel_lock */
	uint64_t known_since;        /* ns, sample clock: when the kernel was set */
	uint64_t latest_rip;         /* of the last sample */
	uint64_t image_rip;  /* an address in the image or a module of a kernel to be found; 0:
				unknown */
	bool kernel_stalled; /* the known kernel no longer runs */
	bool lost_kernel;    /* a kernel was dropped and none is known since; with kernel_lock */
	bool has_latest;     /* with kernel_lock */
	bool cpus_current;   /* cpus[] match the kernel; with kernel_lock */
	bool layout_guessed; /* memslots were guessed; corrected by the guest's memory map */

	/* Owned by the collector's thread, which searches for a kernel. */
	struct thread_check searcher;
	struct guest_paging tables; /* of the last candidate */
	bool has_tables, has_kernel;
	size_t skip;          /* rejected candidates */
	uint64_t next_search; /* ns */
	struct cpu_budget searches;
	uint64_t search_run; /* ns of the VM's CPU time at the last search */

	atomic_uint_least64_t guest, host, outside, lost;
	atomic_uint vcpus;
	atomic_uint hertz; /* target.frequency, readable by other threads */
	/* Why sampling ended before the VM did: owned by the attach thread until it has ended. */
	int error;
	atomic_bool ended;
	atomic_bool searched; /* all memory was searched without finding a kernel */
	char error_text[ERROR_MESSAGE_SIZE];
};

/* ns, CLOCK_MONOTONIC. */
static inline uint64_t attach_now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* The backend's sink (struct attach_sink); CONTEXT is the attachment. The attach thread. */
void attach_record_sample(void *context, struct sample *sample, struct guest_callchain *chain,
			  const struct attach_guest_state *stack);
void attach_record_lost(void *context, unsigned int id, uint64_t count);

/* A vCPU's thread has exited or is unknown: guest time that is not sampled is counted as lost for
 * some seconds. The attach thread, or the opener before that runs. */
void attach_unsampled_watch(struct attach *attach);

/* Counts the time once a second, or NOW: before sampling changes. The attach thread. */
void attach_unsampled_count(struct attach *attach, bool now);

/* True if call chains are requested and the backend supplies them. Any thread. */
bool attach_needs_callchains(const struct attach *attach);

/* Lets the backend report which threads run the vCPUs: thread names are not reliable. The attach
 * thread. */
void attach_update_threads(struct attach *attach);

/*
 * Samples the vCPUs that the VM has now, and updates its memslots. -ESRCH or -ENOENT: the process
 * has exited; other errors: it cannot be inspected, or a vCPU cannot be sampled. All with the
 * message. The attach thread, or the opener before that runs.
 */
int attach_update_vcpus(struct attach *attach);

/* True if ERROR means that the process has exited. */
bool attach_process_exited(int error);

/* Main function of the attach thread; CONTEXT is the attachment. */
void *attach_run(void *context);

/* Drains the backend and publishes the samples. False: there were none. The attach thread, or the
 * opener after that has ended. */
bool attach_drain(struct attach *attach);

/*
 * Interval of drains in ms, 1 to 200: about the same number of samples per drain at each FREQUENCY
 * (Hz per vCPU), and at most half of ROOM, the number of samples that the backend can hold for
 * VCPUS vCPUs (0: unlimited).
 */
int drain_interval(unsigned int frequency, size_t vcpus, size_t room);

#endif
