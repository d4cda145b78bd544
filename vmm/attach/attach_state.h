/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attachment, as the files that work on it have it: attach.c opens and ends it, attach_vcpus.c
 * follows its vCPUs, attach_thread.c drains the backend, attach_sink.c is where samples go, and
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
#include "vmm/attach/attachment.h"
#include "vmm/attach/kernel_liveness.h"
#include "vmm/attach/thread_request.h"
#include "vmm/attach/user_space.h"

/* CR3s of which it is remembered that they map the kernel that is known. */
#define CHECKED 64

struct checked {
	uint64_t cr3, time; /* ns; 0: none */
	bool runs;
};

/* What became of the callers of samples in the kernel; with kernel_lock. */
struct kernel_callchains {
	uint64_t without_kernel; /* it was not known yet */
	uint64_t without_stack;  /* no copy of the stack came */
	uint64_t cut;            /* the unwinder did not come to the end */
	uint64_t whole;
};

struct attach {
	struct vmm_process *process;
	struct vmm_memory memory;
	struct attach_target target;
	unsigned int frequency;               /* that was asked for */
	bool own;                             /* the VM is of this process */
	const struct attach_backend *backend; /* NULL: none yet */
	struct attach_source *source;
	char refused[4 * ERROR_MESSAGE_SIZE];
	struct ring **rings; /* by the ids of vCPUs */
	size_t ring_count;
	struct vmm_vcpu *sampled; /* VMM_VCPUS_MAX of them: those that the backend was given */
	size_t sampled_count;

	pthread_t thread;
	bool started;
	bool hangs; /* a thread of the backend does, and uses what is here: nothing is freed */
	int stop_fd, end_fd; /* eventfds */
	struct request request;
	/* The attach thread's, as far as the next empty line. */
	uint64_t next_scan, last_scan; /* ns */
	struct vmm_process_size size;  /* when vCPUs were looked for last */
	bool stopped;                  /* it is to end */
	bool arriving;         /* there is a vCPU that the backend does not find to run yet */
	bool reported_no_ring; /* that a vCPU has no ring */
	bool reported_refused; /* that one can not be sampled */
	unsigned int ticks;    /* Hz that the backend samples all with; 0: a pause */
	uint64_t recorded, flushed,
		recorded_at_scan; /* samples and losses: so far, shown to the reader, then */

	pthread_mutex_t kernel_lock;
	const struct guest_kernel *kernel; /* of the collector; with kernel_lock */
	struct guest_registers latest;     /* that a backend told; with kernel_lock, as its time */
	uint64_t latest_time;              /* ns, the clock of samples */
	struct checked checked[CHECKED];   /* with kernel_lock */
	struct kernel_callchains chains;
	/* The attach thread's: by the ids of vCPUs; and whose the sample is that is told. */
	struct user_space_cpu *cpus;
	struct user_space space;
	struct attach_stops stops;   /* with kernel_lock */
	struct kernel_pulse pulse;   /* with kernel_lock, as the five that follow */
	struct kernel_clock *clocks; /* with kernel_lock; by the ids of vCPUs */
	uint64_t known_since;        /* ns, the clock of samples: the kernel is */
	uint64_t latest_rip;         /* of a sample */
	uint64_t image_rip;  /* in a kernel's image or module, of one that is to be found; 0: not
				known */
	bool kernel_stalled; /* the kernel that is known runs no more */
	bool lost_kernel;    /* there was one, and none is known since: with kernel_lock */
	bool has_latest;     /* with kernel_lock */
	bool cpus_current;   /* of the kernel, as far as it had them; with kernel_lock */
	bool layout_guessed; /* the memslots were; to be corrected by the guest's own map */

	/* The collector's thread, that looks for a kernel. */
	struct guest_paging tables; /* of the latest candidate */
	bool has_tables, has_kernel;
	size_t skip;          /* candidates that were none */
	uint64_t next_search; /* ns */
	struct cpu_budget searches;
	uint64_t search_run; /* ns of the VM's CPU time at the last search */

	atomic_uint_least64_t guest, host, lost;
	atomic_uint vcpus;
	atomic_uint hertz; /* target.frequency, which is the attach thread's once that runs */
	/* Why sampling ended before the VM and before it was stopped: the attach thread's, until
	 * that has ended. */
	int error;
	atomic_bool ended;
	atomic_bool searched; /* all of memory, and there was no kernel (any more) */
	char error_text[ERROR_MESSAGE_SIZE];
};

/* ns, CLOCK_MONOTONIC. */
static inline uint64_t attach_now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* The sink of the backend: struct attach_sink. CONTEXT is the attachment. On its thread. */
void attach_record_sample(void *context, struct sample *sample, struct guest_callchain *chain,
			  const struct attach_guest_state *stack);
void attach_record_lost(void *context, unsigned int id, uint64_t count);

/* Callers are wanted, and the backend gives them. Any thread. */
bool attach_needs_callchains(const struct attach *attach);

/* Has the backend tell which threads run the vCPUs: names of threads may be anybody's. On its
 * thread. */
void attach_update_threads(struct attach *attach);

/*
 * Samples the vCPUs that the VM has now, and knows its memory as it is now. -ESRCH or -ENOENT: the
 * process has ended; others: it can not be looked at, or a vCPU can not be sampled; all with the
 * message. On its thread, and before that runs.
 */
int attach_update_vcpus(struct attach *attach);

/* Of such an error: the process has ended. */
bool attach_process_exited(int error);

/* The start of its thread; CONTEXT is the attachment. */
void *attach_run(void *context);

/* Gives what was sampled to the reader. False: there was nothing. On its thread, and when that has
 * ended. */
bool attach_drain(struct attach *attach);

/*
 * ms, from 1 to 200: so that there are as many samples each time at any FREQUENCY (Hz, of each
 * vCPU), and that ROOM samples (0: for any number), which is what the backend can hold, are twice
 * as many as VCPUS give meanwhile.
 */
int drain_interval(unsigned int frequency, size_t vcpus, size_t room);

#endif
