// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/attach.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/domain.h"
#include "vmm/attach/drain_interval.h"
#include "vmm/attach/kernel_pulse.h"
#include "vmm/attach/kernel_tables.h"
#include "vmm/attach/memory_layout.h"
#include "vmm/attach/request.h"
#include "vmm/attach/stack_view.h"
#include "vmm/attach/user_space.h"
#include "vmm/guest/kernel_identity.h"

#define MILLISECOND 1000000ull
#define SECOND      (1000 * MILLISECOND)

/* vCPUs that come and go are noticed after so long; at the latest, if nothing tells of it. */
#define SCAN_INTERVAL     SECOND
#define SCAN_INTERVAL_MAX (10 * SECOND)
/* While a vCPU is there and KVM has not run it yet: that of a VM that arrives from another host. */
#define SCAN_INTERVAL_ARRIVING (100 * MILLISECOND)
/* So long after it could not be looked at, the process may still end. */
#define END_WAIT_MS 2000
/*
 * Between two searches of all of the guest's memory; and so many times the CPU time that one takes, and no
 * less than one lasts, as it may wait for what was swapped out. Where there was none, a VM that used less CPU
 * time than this since has started none.
 */
#define SEARCH_INTERVAL SECOND
#define SEARCH_SHARE    20
#define SEARCH_RUN      (50 * MILLISECOND)
/* vCPUs that may come besides those that are there. */
#define VCPUS_TO_COME 8
/* ns: registers are of the same kernel if they are not further apart. */
#define RECENT (100 * MILLISECOND)
/* How long a CR3 is taken to map the kernel that it mapped before; of so many. */
#define CHECK_INTERVAL (200 * MILLISECOND)
#define CHECKED        64

struct checked {
	uint64_t cr3, time; /* ns */
	const struct guest_kernel *kernel;
	bool runs;
};

/* What became of the callers of samples in the kernel; with kernel_lock. */
struct kernel_callers {
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
	bool hangs;          /* a thread of the backend does, and uses what is here: nothing is freed */
	int stop_fd, end_fd; /* eventfds */
	struct request request;
	/* The attach thread's, as far as the next empty line. */
	uint64_t next_scan, last_scan;      /* ns */
	struct vmm_process_size size;       /* when vCPUs were looked for last */
	bool stopped;                       /* it is to end */
	bool arriving;                      /* there is a vCPU that the backend does not find to run yet */
	bool told_beyond;                   /* that a vCPU has no ring */
	bool told_refused;                  /* that one can not be sampled */
	unsigned int ticks;                 /* Hz that the backend samples with; 0: a pause */
	uint64_t taken, flushed, last_seen; /* samples and losses: so far, shown to the reader, then */

	pthread_mutex_t kernel_lock;
	const struct guest_kernel *kernel; /* of the collector; with kernel_lock */
	struct guest_registers latest;     /* that a backend told; with kernel_lock, as its time */
	uint64_t latest_time;              /* ns, the clock of samples */
	struct checked checked[CHECKED];   /* with kernel_lock */
	struct kernel_callers callers;
	/* The attach thread's: by the ids of vCPUs; and what a sample's addresses were in. */
	struct user_space_cpu *cpus;
	struct user_map map;
	struct attach_stops stops; /* with kernel_lock */
	struct kernel_pulse pulse; /* with kernel_lock, as the three that follow */
	uint64_t latest_rip;       /* of a sample */
	uint64_t image_rip;  /* in a kernel's image or module, of one that is to be found; 0: not known */
	bool stands_still;   /* the kernel that is known runs no more */
	bool has_latest;     /* with kernel_lock */
	bool cpus_known;     /* of the kernel, as far as it had them; with kernel_lock */
	bool layout_guessed; /* the memslots were; to be corrected by the guest's own map */

	/* The collector's thread, that looks for a kernel. */
	struct guest_paging tables; /* of the latest candidate */
	bool has_tables, has_kernel;
	size_t skip;          /* candidates that were none */
	uint64_t next_search; /* ns */
	uint64_t search_run;  /* ns of the VM's CPU time at the last search */

	atomic_uint_least64_t guest, host, lost;
	atomic_uint vcpus;
	/* Why sampling ended before the VM and before it was stopped: the attach thread's, until that has
	 * ended. */
	int error;
	atomic_bool ended;
	atomic_bool searched; /* all of memory, and there was no kernel (any more) */
	char error_text[ERROR_MESSAGE_SIZE];
};

static uint64_t time_by(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static uint64_t now(void)
{
	return time_by(CLOCK_MONOTONIC);
}

/* The sink. */

/*
 * The kernel tells the level by itself, which in some KVMs is not always that of the
 * address: nobody but a kernel runs in the upper half, and Linux nowhere else
 * (Documentation/arch/x86/x86_64/mm.rst).
 */
static void correct_level(const struct attach *attach, struct sample *sample, struct guest_callchain *chain)
{
	bool upper = sample->rip >> 63;

	if (sample->cpl && upper)
		sample->cpl = 0;
	else if (!sample->cpl && !upper && attach->kernel)
		sample->cpl = 3;
	else
		return;
	chain->kernel_depth = upper;
	chain->user_depth = !upper;
}

/* Under a CR3 that was seen to map the kernel a moment ago it is not asked for again: that takes some ten
 * reads. */
static bool runs_kernel(struct attach *attach, const struct guest_registers *registers)
{
	uint64_t cr3 = registers->paging.cr3, time = now();
	struct checked *checked = &attach->checked[(cr3 >> 12) % CHECKED];

	if (checked->cr3 != cr3 || time - checked->time > CHECK_INTERVAL || checked->kernel != attach->kernel)
		*checked = (struct checked){
			.cr3 = cr3,
			.time = time,
			.kernel = attach->kernel,
			.runs = guest_kernel_runs(attach->kernel, &attach->memory.view, registers),
		};
	return checked->runs;
}

/* The copy of the stack is of the sample's time; it is walked as kvmscope run walks the stack of a stopped
 * vCPU. */
static void unwind(struct attach *attach, const struct attach_stack *stack, struct guest_callchain *chain)
{
	struct stack_view view;

	stack_view_init(&view, &attach->memory.view, attach->kernel, stack);
	guest_unwind(attach->kernel->unwinder, &view.view, &stack->registers, NULL, chain);
	if (chain->flags & SAMPLE_KERNEL_TRUNCATED)
		attach->callers.cut++;
	else
		attach->callers.whole++;
}

static bool wants_callers(const struct attach *attach)
{
	return attach->target.callchains && attach->backend->gives_callers;
}

static void miss_callers(struct guest_callchain *chain, uint64_t *cause)
{
	chain->flags |= SAMPLE_KERNEL_TRUNCATED;
	++*cause;
}

static void take_nothing(struct sample *sample, struct guest_callchain *chain)
{
	chain->kernel_depth = chain->user_depth = 0;
	sample->flags |= SAMPLE_OTHER_KERNEL;
}

static bool has_cr3(const struct attach_stack *stack)
{
	return stack && !stack->cr3_of_task;
}

/* Does the kernel that is known run, as far as this sample can tell? MODE is what the processor had. */
static bool seems_to_run(struct attach *attach, const struct sample *sample, const struct attach_stack *stack,
			 uint8_t mode)
{
	bool stood_still = attach->stands_still;
	uint64_t ticks;

	/* 32-bit code may have any CR3. */
	if (has_cr3(stack))
		return guest_kernel_can_run(&stack->registers) && runs_kernel(attach, &stack->registers);
	if (guest_kernel_ticks(attach->kernel, &attach->memory.view, &ticks))
		attach->stands_still =
			!kernel_pulse_take(&attach->pulse, sample->time, ticks, !mode, sample->rip);
	if (attach->stands_still != stood_still)
		attach->image_rip = 0; /* that was the other kernel's */
	return !attach->stands_still;
}

/* As behind a reset: firmware runs no kernel. MODE as for seems_to_run(). */
static bool is_firmware(const struct attach_stack *stack, uint8_t mode)
{
	return stack && !mode && !guest_kernel_can_run(&stack->registers);
}

/* Its low addresses are no user space, and nobody's. */
static void take_firmware(struct sample *sample, struct guest_callchain *chain)
{
	chain->kernel_depth = chain->user_depth = 0;
	sample->cpl = 0;
}

static void tell_user_space(struct attach *attach, const struct guest_kernel *kernel, struct sample *sample,
			    struct guest_callchain *chain, const struct attach_stack *stack)
{
	if (attach->cpus_known)
		user_space_tell(&attach->cpus[sample->vcpu], kernel, &attach->memory.view, stack, sample,
				chain, &attach->map);
}

/* With kernel_lock. What vouches for the addresses of the guest's kernel is a kernel that is known. */
static void use_kernel(struct attach *attach, struct sample *sample, struct guest_callchain *chain,
		       const struct attach_stack *stack, uint8_t mode)
{
	const struct guest_kernel *kernel = attach->kernel;
	bool runs = seems_to_run(attach, sample, stack, mode);

	attach->latest_rip = sample->rip;
	if (is_firmware(stack, mode)) {
		take_firmware(sample, chain);
		return;
	}
	if (!runs) {
		take_nothing(sample, chain);
		return;
	}
	if (stack && stack->bytes && !sample->cpl)
		unwind(attach, stack, chain);
	else if (wants_callers(attach) && !sample->cpl)
		miss_callers(chain, &attach->callers.without_stack);
	module_presence_check(guest_kernel_presence(kernel), &attach->memory.view, &kernel->paging,
			      sample->time, chain);
	tell_user_space(attach, kernel, sample, chain, stack);
}

/* Those in the kernel serve best: under KPTI the tables of user space do not map all of it. */
static void keep_registers(struct attach *attach, const struct sample *sample,
			   const struct attach_stack *stack)
{
	/* They come in the order of a vCPU's time, those of one behind those of another. */
	int64_t later = (int64_t)(sample->time - attach->latest_time);

	if (attach->has_latest && !attach->latest.cpl && later < (sample->cpl ? (int64_t)RECENT : 0))
		return;
	attach->latest = stack->registers;
	if (!attach->has_latest || later > 0)
		attach->latest_time = sample->time;
	attach->has_latest = true;
}

static void take_guest(struct attach *attach, struct sample *sample, struct guest_callchain *chain,
		       const struct attach_stack *stack)
{
	uint8_t mode = sample->cpl;

	pthread_mutex_lock(&attach->kernel_lock);
	correct_level(attach, sample, chain);
	if (has_cr3(stack))
		keep_registers(attach, sample, stack);
	if (sample->rip >= LINUX_IMAGES_GVA)
		attach->image_rip = sample->rip;
	if (attach->kernel)
		use_kernel(attach, sample, chain, stack, mode);
	else if (wants_callers(attach) && !sample->cpl)
		miss_callers(chain, &attach->callers.without_kernel);
	pthread_mutex_unlock(&attach->kernel_lock);
}

static void put(struct ring *ring, const struct sample *sample, const struct guest_callchain *chain,
		const struct user_map *map)
{
	size_t depth = (size_t)chain->kernel_depth + chain->user_depth;
	struct sample *record = ring_reserve(ring, RECORD_SAMPLE,
					     sample_size(depth) + map->count * sizeof(struct sample_mapping));

	if (record) {
		*record = *sample;
		record->flags |= chain->flags;
		record->kernel_depth = chain->kernel_depth;
		record->user_depth = chain->user_depth;
		memcpy(record->callchain, chain->addresses, depth * sizeof(uint64_t));
		record->mappings = (uint16_t)user_map_tell(map, sample_mappings(record));
	}
	ring_commit(ring, record);
}

static void take_sample(void *context, struct sample *sample, struct guest_callchain *chain,
			const struct attach_stack *stack)
{
	struct attach *attach = context;

	assert(sample->vcpu < attach->ring_count);
	attach->taken++;
	sample->pid = sample->tid = SAMPLE_TASK_UNKNOWN;
	attach->map.count = 0;
	if (sample->flags & SAMPLE_HOST) {
		chain->kernel_depth = chain->user_depth = 0;
		atomic_fetch_add(&attach->host, 1);
	} else {
		if (sample->flags & SAMPLE_OTHER_KERNEL)
			take_nothing(sample, chain);
		else
			take_guest(attach, sample, chain, stack);
		atomic_fetch_add(&attach->guest, 1);
	}
	put(attach->rings[sample->vcpu], sample, chain, &attach->map);
}

static void take_lost(void *context, unsigned int id, uint64_t count)
{
	struct attach *attach = context;
	struct sample_lost *lost;

	assert(id < attach->ring_count);
	attach->taken++;
	atomic_fetch_add(&attach->lost, count);
	lost = ring_reserve(attach->rings[id], RECORD_LOST, sizeof(*lost));
	if (lost)
		*lost = (struct sample_lost){ .count = count };
	ring_commit(attach->rings[id], lost);
}

/* vCPUs. */

static const struct vmm_vcpu *find(const struct vmm_vcpu *vcpus, size_t count, const struct vmm_vcpu *wanted)
{
	for (size_t i = 0; i < count; i++)
		if (vcpus[i].id == wanted->id && vcpus[i].tid == wanted->tid)
			return &vcpus[i];
	return NULL;
}

static void remove_gone(struct attach *attach)
{
	const struct vmm_process *process = attach->process;

	for (size_t i = 0; i < attach->sampled_count;) {
		struct vmm_vcpu *vcpu = &attach->sampled[i];

		if (find(process->vcpus, process->vcpu_count, vcpu)) {
			i++;
			continue;
		}
		log_info("vCPU %u is gone", vcpu->id);
		attach->backend->remove(attach->source, vcpu->id);
		*vcpu = attach->sampled[--attach->sampled_count];
	}
}

/* Numbers of threads are used again: what was opened by one is of the VM if the thread is still there behind
 * it. */
static int add_vcpu(struct attach *attach, const struct vmm_vcpu *vcpu)
{
	int error = attach->backend->add(attach->source, vcpu);

	if (error || vmm_process_has_thread(attach->process, vcpu->tid))
		return error;
	attach->backend->remove(attach->source, vcpu->id);
	return -ESRCH;
}

/* Once: there are no rings for any of them. */
static void tell_beyond(struct attach *attach, unsigned int id)
{
	if (attach->told_beyond)
		return;
	log_warning(
		"vCPU %u came after the start and is not sampled, as those above: there was room for those "
		"below %zu. Attach again to sample all",
		id, attach->ring_count);
	attach->told_beyond = true;
}

/* Once, until all are sampled. It is tried again with each scan: what there is too much of may go. */
static void tell_refused(struct attach *attach, unsigned int id)
{
	if (!attach->told_refused)
		log_warning("vCPU %u is not sampled: %s", id, error_message());
	attach->told_refused = true;
}

static int add_new(struct attach *attach)
{
	const struct vmm_process *process = attach->process;
	bool refused = false;

	attach->arriving = false;
	for (size_t i = 0; i < process->vcpu_count; i++) {
		const struct vmm_vcpu *vcpu = &process->vcpus[i];
		int error;

		if (vcpu->id >= attach->ring_count) {
			tell_beyond(attach, vcpu->id);
			continue;
		}
		if (!vcpu->tid || find(attach->sampled, attach->sampled_count, vcpu))
			continue;
		error = add_vcpu(attach, vcpu);
		if (error == -ESRCH) {
			attach->arriving = true;
			continue;
		}
		if (error == -EMFILE && attach->sampled_count) {
			tell_refused(attach, vcpu->id);
			refused = true;
			continue;
		}
		if (error)
			return error;
		log_debug("vCPU %u is thread %d, as %s tells", vcpu->id, vcpu->tid, vcpu->found);
		attach->cpus[vcpu->id].known = false;
		attach->sampled[attach->sampled_count++] = *vcpu;
	}
	attach->told_refused = refused;
	return 0;
}

/* Guest memory that was plugged in is another memslot. */
static void follow_memory(struct attach *attach)
{
	struct vmm_slot slots[VMM_SLOTS_MAX];
	int count;

	if (attach->layout_guessed || !attach->backend->slots)
		return;
	count = attach->backend->slots(attach->source, slots);
	if (count > 0)
		vmm_memory_set_slots(&attach->memory, slots, (size_t)count);
}

/* Names of threads may be anybody's; KVM knows. */
static void ask_backend(struct attach *attach)
{
	if (attach->backend->threads)
		attach->backend->threads(attach->source, attach->process);
}

static int follow_vcpus(struct attach *attach)
{
	int error = vmm_process_scan(attach->process);

	if (error)
		return error;
	ask_backend(attach);
	follow_memory(attach);
	remove_gone(attach);
	error = add_new(attach);
	atomic_store(&attach->vcpus, (unsigned int)attach->sampled_count);
	return error;
}

/* The thread. */

static void show_rings(struct attach *attach)
{
	for (size_t i = 0; i < attach->ring_count; i++)
		ring_flush(attach->rings[i]);
}

static void count_stops(struct attach *attach)
{
	struct attach_stops stops;

	if (!attach->backend->stops)
		return;
	attach->backend->stops(attach->source, &stops);
	pthread_mutex_lock(&attach->kernel_lock);
	attach->stops = stops;
	pthread_mutex_unlock(&attach->kernel_lock);
}

/* Which CPUs the vCPUs are to the kernel that runs now, as far as that is not known yet. TOLD becomes what is
 * the same for all; false: there is none. */
static bool find_cpus(struct attach *attach, struct attach_cpu *told)
{
	const struct guest_kernel *kernel;

	pthread_mutex_lock(&attach->kernel_lock);
	kernel = attach->kernel;
	for (size_t i = 0; kernel && i < attach->sampled_count; i++) {
		struct user_space_cpu *cpu = &attach->cpus[attach->sampled[i].id];

		if (attach->cpus_known && cpu->known)
			continue;
		user_space_find_cpu(cpu, kernel, &attach->memory.view, attach->sampled[i].id);
		cpu->seen = false;
	}
	if (kernel) {
		attach->cpus_known = true;
		told->layout = kernel->tasks;
		told->paging = kernel->paging;
	}
	pthread_mutex_unlock(&attach->kernel_lock);
	return kernel;
}

/* The backend may give samples to the sink at that: not with kernel_lock. */
static void see_tasks(struct attach *attach)
{
	struct attach_cpu told;

	if (!attach->backend->see_tasks || !find_cpus(attach, &told))
		return;
	for (size_t i = 0; i < attach->sampled_count; i++) {
		unsigned int id = attach->sampled[i].id;
		struct user_space_cpu *cpu = &attach->cpus[id];

		if (!cpu->known || cpu->seen)
			continue;
		told.offset = cpu->offset;
		attach->backend->see_tasks(attach->source, id, &told);
		cpu->seen = true;
	}
}

static bool has_new_kernel(struct attach *attach)
{
	bool has;

	pthread_mutex_lock(&attach->kernel_lock);
	has = attach->kernel && !attach->cpus_known;
	pthread_mutex_unlock(&attach->kernel_lock);
	return has;
}

/* False: there was nothing. */
static bool drain(struct attach *attach)
{
	if (has_new_kernel(attach))
		see_tasks(attach);
	attach->backend->drain(attach->source);
	count_stops(attach);
	if (attach->taken == attach->flushed)
		return false;
	attach->flushed = attach->taken;
	show_rings(attach);
	return true;
}

static void end(struct attach *attach)
{
	const uint64_t one = 1;

	atomic_store(&attach->ended, !attach->error);
	if (write(attach->end_fd, &one, sizeof(one)) < 0)
		log_debug("the end of the VM can not be told: %s", strerror(errno));
}

static bool is_gone(int error)
{
	return error == -ESRCH || error == -ENOENT;
}

/* A process that ends may not be looked at any more for as long as its memory is freed. */
static bool ends_soon(const struct attach *attach)
{
	struct pollfd events[] = {
		{ .fd = attach->process->pid_fd, .events = POLLIN },
		{ .fd = attach->stop_fd, .events = POLLIN },
	};

	return poll(events, 2, END_WAIT_MS) > 0 && events[0].revents;
}

/*
 * A VMM that has as many threads and descriptors as before, and a VM that did not run since, have most likely
 * the same vCPUs and memslots.
 */
static bool may_have_changed(struct attach *attach, uint64_t time)
{
	struct vmm_process_size size = vmm_process_size(attach->process);
	bool changed = size.threads != attach->size.threads || size.descriptors != attach->size.descriptors;

	if (!changed && !attach->arriving && !attach->told_refused && attach->taken == attach->last_seen &&
	    !attach->backend->emulated && time - attach->last_scan < SCAN_INTERVAL_MAX)
		return false;
	attach->size = size;
	attach->last_seen = attach->taken;
	attach->last_scan = time;
	return true;
}

static uint64_t scan_interval(const struct attach *attach)
{
	return attach->arriving ? SCAN_INTERVAL_ARRIVING : SCAN_INTERVAL;
}

/* What goes away under a look at it has ended; anything else is an error. */
static bool scan_in_time(struct attach *attach)
{
	uint64_t time = now();
	int error;

	if (time < attach->next_scan)
		return true;
	attach->next_scan = time + SCAN_INTERVAL;
	if (!may_have_changed(attach, time))
		return true;
	error = follow_vcpus(attach);
	attach->next_scan = time + scan_interval(attach);
	if (error)
		log_debug("%s", error_message());
	if (error == -EMFILE) /* those that are sampled are still */
		return true;
	if (!error)
		see_tasks(attach); /* CPUs come up one after the other */
	if (error && !is_gone(error)) {
		snprintf(attach->error_text, sizeof(attach->error_text), "%s", error_message());
		if (!ends_soon(attach))
			attach->error = error;
	}
	return !error;
}

/* ms */
static int until_next_drain(const struct attach *attach)
{
	size_t room = attach->backend->room ? attach->backend->room(attach->source) : 0;

	return drain_interval(attach->target.frequency, attach->sampled_count, room);
}

static int until_next_scan(const struct attach *attach)
{
	uint64_t time = now();

	return attach->next_scan > time ? (int)((attach->next_scan - time) / MILLISECOND) + 1 : 0;
}

/*
 * While there are samples, some are let gather before the next look. After a look that found none the backend
 * tells, if it can, when there are again: a VM that idles costs nothing until then. False: the VM has ended,
 * or it is to be stopped.
 */
static bool wait_for_samples(struct attach *attach, bool found)
{
	struct pollfd events[] = {
		{ .fd = attach->stop_fd, .events = POLLIN },
		{ .fd = attach->process->pid_fd, .events = POLLIN },
		{ .fd = attach->request.fd, .events = POLLIN },
		{ .fd = -1, .events = POLLIN },
	};

	if (!found && attach->backend->events) {
		events[3].fd = attach->backend->events(attach->source);
		if (!poll(events, 4, until_next_scan(attach)))
			return true;
	}
	if (!events[0].revents && !events[1].revents && !events[2].revents)
		poll(events, 3, until_next_drain(attach));
	attach->stopped = events[0].revents;
	return !events[0].revents && !events[1].revents;
}

/* What is asked of the thread. */

int attach_follow(struct attach *attach)
{
	return request_ask(&attach->request, NULL);
}

int attach_set_frequency(struct attach *attach, unsigned int frequency)
{
	if (!attach->backend->set_frequency)
		return error_set(-ENOTSUP, "the frequency of %s can not be changed", attach->backend->name);
	return request_ask(&attach->request, &frequency);
}

static int take_over_frequency(struct attach *attach, unsigned int frequency)
{
	if (frequency == attach->ticks)
		return 0;
	attach->ticks = frequency;
	if (frequency)
		attach->target.frequency = frequency;
	return attach->backend->set_frequency(attach->source, frequency);
}

static void answer(struct attach *attach)
{
	unsigned int frequency;
	int error;

	if (!request_take(&attach->request, &frequency))
		return;
	error = take_over_frequency(attach, frequency);
	if (!error)
		error = follow_vcpus(attach);
	drain(attach);
	request_answer(&attach->request, error);
}

static void *run(void *context)
{
	struct attach *attach = context;
	bool goes_on, found = true;
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	pthread_setname_np(pthread_self(), "attach");
	attach->last_scan = now();
	attach->next_scan = attach->last_scan + scan_interval(attach);
	do {
		goes_on = wait_for_samples(attach, found);
		found = drain(attach);
		answer(attach);
	} while (goes_on && scan_in_time(attach));
	request_end(&attach->request);
	if (!attach->stopped)
		end(attach);
	return NULL;
}

/* Opening. */

/* Only its monitor tells anything of a VM without KVM, or of a process that may not be looked at. */
static int check_process(const struct attach *attach, const struct attach_backend *backend)
{
	const struct vmm_process *process = attach->process;

	if (backend->emulated || !process->monitored)
		return 0;
	return error_set(-ENOTSUP, "process %d (%s) has no VM of KVM, or may not be looked at", process->pid,
			 process->name);
}

/* Those that are there, with some that may come. */
static unsigned int vcpus_max(const struct vmm_process *process, bool own)
{
	unsigned int last = process->vcpu_count ? process->vcpus[process->vcpu_count - 1].id : 0;
	unsigned int max = last + 1 + (own ? 0 : VCPUS_TO_COME);

	return max < VMM_VCPUS_MAX ? max : VMM_VCPUS_MAX;
}

static int try_backend(struct attach *attach, const struct attach_backend *backend)
{
	int error = check_process(attach, backend);

	attach->target.vcpus_max = vcpus_max(attach->process, attach->own);
	attach->target.frequency = attach->frequency;
	if (backend->frequency_max && attach->frequency > backend->frequency_max)
		attach->target.frequency = backend->frequency_max;
	if (!error)
		error = backend->open(&attach->source, &attach->target);
	if (!error)
		attach->backend = backend;
	return error;
}

static void note_refused(struct attach *attach, const struct attach_backend *backend)
{
	size_t used = strlen(attach->refused);

	snprintf(attach->refused + used, sizeof(attach->refused) - used, "%s%s: %s", used ? "\n" : "",
		 backend->name, error_message());
}

static int choose_backend(struct attach *attach, const char *name)
{
	const struct attach_backend *wanted = attach_backend_find(name);
	int error = -ENOTSUP;

	if (wanted)
		return try_backend(attach, wanted);
	if (strcmp(name, "auto") != 0)
		return error_set(-EINVAL, "there is no way to attach that is called '%s'", name);
	for (size_t i = 0; attach_backends[i] && error; i++) {
		error = try_backend(attach, attach_backends[i]);
		if (error)
			note_refused(attach, attach_backends[i]);
	}
	return error ? error_set(error, "no way to attach works here:\n%s", attach->refused) : 0;
}

/* Where KVM does not tell, the process's own mappings may. Without memory there are no names. */
static void find_memory(struct attach *attach)
{
	struct vmm_slot slots[VMM_SLOTS_MAX];
	int count = attach->backend->slots ? attach->backend->slots(attach->source, slots) : -ENOTSUP;

	if (count >= 0) {
		vmm_memory_set_slots(&attach->memory, slots, (size_t)count);
		return;
	}
	attach->layout_guessed = true;
	if (memory_layout_guess(&attach->memory, attach->process))
		log_debug("%s", error_message());
}

static int make_rings(struct attach *attach, const struct attach_options *options)
{
	const struct vmm_process *process = attach->process;
	const struct ring_options ring = {
		.size = options->ring_size,
		.mode = options->overwrite ? RING_MODE_OVERWRITE : RING_MODE_CONSUMER,
	};
	size_t count;

	if (process->monitored) /* its vCPUs are known since the backend is */
		attach->target.vcpus_max = vcpus_max(process, false);
	count = attach->target.vcpus_max;
	attach->rings = calloc(count, sizeof(struct ring *));
	attach->sampled = calloc(VMM_VCPUS_MAX, sizeof(attach->sampled[0]));
	attach->cpus = calloc(count, sizeof(attach->cpus[0]));
	if (!attach->rings || !attach->sampled || !attach->cpus)
		return error_set(-ENOMEM, "no memory for the vCPUs");
	for (; attach->ring_count < count; attach->ring_count++) {
		int error = ring_create_with(&attach->rings[attach->ring_count], &ring);

		if (error)
			return error_set(error, "can not make the ring of vCPU %zu: %s", attach->ring_count,
					 strerror(-error));
	}
	return 0;
}

static int check_threads(const struct attach *attach)
{
	const struct vmm_process *process = attach->process;
	size_t unknown = 0;

	for (size_t i = 0; i < process->vcpu_count; i++)
		unknown += !process->vcpus[i].tid;
	if (unknown == process->vcpu_count)
		return error_set(
			-ENOENT,
			"no thread of process %d (%s) is known to run a vCPU: mount debugfs at "
			"/sys/kernel/debug, where KVM tells (from Linux 5.19), or have the VMM name its "
			"threads (QEMU: -name debug-threads=on)",
			process->pid, process->name);
	if (unknown)
		log_warning("%zu of %zu vCPUs are not sampled (yet): nothing tells which threads run them",
			    unknown, process->vcpu_count);
	return 0;
}

static int make_events(struct attach *attach)
{
	attach->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	attach->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return attach->stop_fd < 0 || attach->end_fd < 0
		       ? error_set(-errno, "can not make an eventfd: %s", strerror(errno))
		       : request_open(&attach->request);
}

static int find_process_of_domain(const struct monitor_address *address, pid_t *pid)
{
	struct domain *domain;
	int error = domain_open(&domain, address->domain, address->uri);

	if (error)
		return error;
	error = domain_find_process(domain, pid);
	domain_close(domain);
	return error;
}

static int find_process(const struct attach_options *options, pid_t *pid)
{
	*pid = options->pid;
	if (*pid)
		return 0;
	if (options->monitor.domain)
		return find_process_of_domain(&options->monitor, pid);
	return monitor_find_process(options->monitor.socket, pid);
}

static bool may_monitor(const char *backend)
{
	const struct attach_backend *wanted = attach_backend_find(backend);

	return !wanted || wanted->emulated;
}

/* One without KVM can still have a monitor. */
static int open_process(struct attach *attach, const struct attach_options *options)
{
	char message[ERROR_MESSAGE_SIZE];
	pid_t pid;
	int error = find_process(options, &pid);

	if (error)
		return error;
	error = vmm_process_open(&attach->process, pid);
	if ((error != -ENOENT && error != -EACCES) || !may_monitor(options->backend))
		return error;
	snprintf(message, sizeof(message), "%s", error_message());
	if (!monitor_known(&options->monitor, pid))
		return error_set(
			error,
			"%s; one that QEMU runs without KVM, or that may not be looked at, can be reached by its "
			"monitor: --qmp, --domain",
			message);
	return vmm_process_open_monitored(&attach->process, pid);
}

/* For a user of libvirt who is nobody to the domain's process. */
static int open_remote_memory(struct attach *attach, const struct monitor_address *address)
{
	char message[ERROR_MESSAGE_SIZE];
	int error;

	snprintf(message, sizeof(message), "%s", error_message());
	error = vmm_memory_open_remote(&attach->memory, address->domain, address->uri);
	if (!error)
		log_info("%s; it is read by libvirt, which is slow", message);
	return error;
}

static int open_memory(struct attach *attach, const struct attach_options *options)
{
	int error = vmm_memory_open(&attach->memory, attach->process);

	return error && options->monitor.domain && may_monitor(options->backend)
		       ? open_remote_memory(attach, &options->monitor)
		       : error;
}

static int open_all(struct attach *attach, const struct attach_options *options)
{
	int error = open_process(attach, options);

	if (!error)
		error = open_memory(attach, options);
	attach->target = (struct attach_target){
		.process = attach->process,
		.memory = &attach->memory,
		.callchains = options->callchains,
		.own = options->own,
		.monitor = options->monitor,
		.stop_limit = 1000ull * (options->stop_limit ? options->stop_limit : ATTACH_STOP_LIMIT),
		.sink = { .sample = take_sample, .lost = take_lost, .context = attach },
	};
	attach->frequency = options->frequency;
	attach->own = options->own;
	if (!error)
		error = choose_backend(attach, options->backend);
	if (!error)
		ask_backend(attach);
	if (!error && !attach->own)
		error = check_threads(attach);
	if (!error)
		error = make_rings(attach, options);
	if (!error)
		error = make_events(attach);
	if (!error)
		find_memory(attach);
	return error;
}

int attach_open(struct attach **result, const struct attach_options *options)
{
	struct attach *attach = calloc(1, sizeof(*attach));
	int error;

	if (!attach)
		return error_set(-ENOMEM, "no memory to attach to process %d", options->pid);
	attach->stop_fd = attach->end_fd = attach->request.fd = -1;
	attach->memory.memory_fd = attach->memory.pagemap_fd = -1;
	pthread_mutex_init(&attach->kernel_lock, NULL);
	error = open_all(attach, options);
	if (error)
		attach_close(attach);
	else
		*result = attach;
	return error;
}

const struct vmm_process *attach_process(const struct attach *attach)
{
	return attach->process;
}

const struct attach_backend *attach_backend(const struct attach *attach)
{
	return attach->backend;
}

enum attach_event attach_event(const struct attach *attach)
{
	return attach->backend->event(attach->source);
}

unsigned int attach_frequency(const struct attach *attach)
{
	return attach->target.frequency;
}

const char *attach_refused(const struct attach *attach)
{
	return attach->refused;
}

struct ring *const *attach_rings(const struct attach *attach, size_t *count)
{
	*count = attach->ring_count;
	return attach->rings;
}

const struct guest_view *attach_view(const struct attach *attach)
{
	return &attach->memory.view;
}

int attach_start(struct attach *attach)
{
	int error = follow_vcpus(attach);

	attach->request.frequency = attach->ticks = attach->target.frequency;
	/* A VM that has ended meanwhile has done so to the thread, too. */
	if (error && !is_gone(error) && !vmm_process_ended(attach->process))
		return error;
	error = -pthread_create(&attach->thread, NULL, run, attach);
	if (error)
		return error_set(error, "can not start the thread that samples: %s", strerror(-error));
	attach->started = true;
	return 0;
}

int attach_end_fd(const struct attach *attach)
{
	return attach->end_fd;
}

/* An address at which a kernel ran that is to be found. 0: not known, or there is none yet. */
static uint64_t wanted_rip(struct attach *attach)
{
	uint64_t rip;

	pthread_mutex_lock(&attach->kernel_lock);
	rip = attach->image_rip;
	pthread_mutex_unlock(&attach->kernel_lock);
	return rip;
}

/* The guest may only be starting, or run no Linux: it is looked for again and again, but seldom. */
static void search(struct attach *attach, uint64_t rip)
{
	uint64_t begun = now(), processed = time_by(CLOCK_THREAD_CPUTIME_ID), run, lasted;

	if (begun < attach->next_search)
		return;
	run = vmm_process_cpu_time(attach->process);
	if (attach->next_search && !attach->has_tables && run - attach->search_run < SEARCH_RUN)
		return;
	attach->search_run = run;
	if (attach->layout_guessed && !vmm_memory_is_known(&attach->memory))
		memory_layout_guess(&attach->memory, attach->process);
	attach->has_tables = vmm_memory_is_known(&attach->memory) &&
			     !kernel_tables_find(&attach->memory, attach->skip, rip, &attach->tables);
	/* The next time it is the candidate behind this one; behind the last, the first again. */
	attach->skip = attach->has_tables ? attach->skip + 1 : 0;
	if (!attach->has_tables)
		atomic_store(&attach->searched, true);
	lasted = now() - begun;
	processed = time_by(CLOCK_THREAD_CPUTIME_ID) - processed;
	log_debug("the guest's memory was searched for page tables of a kernel, for %llu ms: %s",
		  (unsigned long long)(processed / MILLISECOND),
		  attach->has_tables ? "found" : "there are none");
	attach->next_search = begun + lasted + SEARCH_INTERVAL +
			      (lasted > SEARCH_SHARE * processed ? lasted : SEARCH_SHARE * processed);
}

static bool latest_registers(struct attach *attach, struct guest_registers *registers)
{
	bool has;

	pthread_mutex_lock(&attach->kernel_lock);
	has = attach->has_latest;
	*registers = attach->latest;
	pthread_mutex_unlock(&attach->kernel_lock);
	return has;
}

/* The tables of the kernel that stands still are there still: others are those of the one that runs. */
static bool maps_old_kernel(struct attach *attach, const struct guest_registers *registers)
{
	bool maps;

	pthread_mutex_lock(&attach->kernel_lock);
	maps = attach->kernel && attach->stands_still &&
	       guest_kernel_runs(attach->kernel, &attach->memory.view, registers);
	pthread_mutex_unlock(&attach->kernel_lock);
	return maps;
}

static void look_at_pulse(struct attach *attach, bool *stands_still, uint64_t *rip)
{
	pthread_mutex_lock(&attach->kernel_lock);
	*stands_still = attach->stands_still;
	*rip = attach->latest_rip;
	pthread_mutex_unlock(&attach->kernel_lock);
}

/* A backend that knows the guest's registers knows its page tables; else they are searched. */
bool attach_registers(struct attach *attach, struct guest_registers *registers)
{
	bool has = latest_registers(attach, registers), stands_still;
	uint64_t rip, wanted = wanted_rip(attach);

	look_at_pulse(attach, &stands_still, &rip);
	/* Without memory they lead nowhere; where it lies can be seen only when the guest's kernel has
	 * started. Firmware, behind a reset, has only the old kernel's tables to be found. */
	if ((!attach->has_kernel || (stands_still && wanted)) &&
	    (!has || (attach->layout_guessed && !vmm_memory_is_known(&attach->memory))))
		search(attach, wanted);
	if (has)
		return true;
	if (!attach->has_tables)
		return false;
	kernel_tables_registers(&attach->tables, registers);
	registers->rip = rip;
	return !maps_old_kernel(attach, registers);
}

void attach_set_kernel(struct attach *attach, const struct guest_kernel *kernel)
{
	if (kernel && attach->layout_guessed)
		memory_layout_correct(&attach->memory, kernel);
	if (kernel) {
		attach->tables = kernel->paging; /* a process's go with it */
		attach->has_kernel = true;
		attach->skip = 0;
	}
	pthread_mutex_lock(&attach->kernel_lock);
	if (!kernel || !attach->kernel || !guest_kernel_same(kernel, attach->kernel))
		attach->cpus_known = false;
	attach->kernel = kernel;
	attach->pulse = (struct kernel_pulse){ 0 };
	attach->stands_still = false;
	if (kernel)
		attach->image_rip = 0;
	pthread_mutex_unlock(&attach->kernel_lock);
}

static bool knows_kernel(struct attach *attach)
{
	bool knows;

	pthread_mutex_lock(&attach->kernel_lock);
	knows = attach->kernel;
	pthread_mutex_unlock(&attach->kernel_lock);
	return knows;
}

bool attach_awaits_kernel(struct attach *attach)
{
	return wants_callers(attach) && !knows_kernel(attach) && !atomic_load(&attach->searched);
}

void attach_lose_kernel(struct attach *attach)
{
	attach->has_kernel = attach->has_tables = false;
	attach->skip = 0; /* the candidate that showed it is the one that is wanted */
	attach->next_search = 0;
	attach_set_kernel(attach, NULL);
}

void attach_statistics(struct attach *attach, struct attach_statistics *statistics)
{
	*statistics = (struct attach_statistics){
		.guest = atomic_load(&attach->guest),
		.host = atomic_load(&attach->host),
		.lost = atomic_load(&attach->lost),
		.vcpus = atomic_load(&attach->vcpus),
		.ended = atomic_load(&attach->ended),
	};
	pthread_mutex_lock(&attach->kernel_lock);
	statistics->stops = attach->stops;
	pthread_mutex_unlock(&attach->kernel_lock);
}

static void tell_callers(struct attach *attach)
{
	const struct kernel_callers *callers = &attach->callers;

	if (wants_callers(attach))
		log_debug(
			"callers of samples in the kernel: %llu whole, %llu cut off in unwinding; none of %llu whose "
			"stack could not be copied, and of %llu before the kernel was known",
			(unsigned long long)callers->whole, (unsigned long long)callers->cut,
			(unsigned long long)callers->without_stack,
			(unsigned long long)callers->without_kernel);
}

void attach_stop(struct attach *attach)
{
	const uint64_t one = 1;

	if (attach->started) {
		if (write(attach->stop_fd, &one, sizeof(one)) < 0)
			log_debug("the thread that samples ends with the VM");
		pthread_join(attach->thread, NULL);
		attach->started = false;
	}
	if (attach->source) {
		drain(attach);
		tell_callers(attach);
		attach->hangs = !attach->backend->close(attach->source);
		attach->source = NULL;
	}
}

int attach_error(const struct attach *attach)
{
	assert(!attach->started);
	return attach->error ? error_set(attach->error, "%s", attach->error_text) : 0;
}

void attach_close(struct attach *attach)
{
	if (!attach)
		return;
	if (attach->source && attach->ring_count)
		attach_stop(attach);
	else if (attach->source)
		attach->hangs = !attach->backend->close(attach->source);
	if (attach->hangs)
		return;
	while (attach->ring_count)
		ring_destroy(attach->rings[--attach->ring_count]);
	free(attach->rings);
	free(attach->sampled);
	free(attach->cpus);
	if (attach->memory.memory_fd >= 0 || attach->memory.pagemap_fd >= 0)
		vmm_memory_close(&attach->memory);
	vmm_process_close(attach->process);
	if (attach->stop_fd >= 0)
		close(attach->stop_fd);
	if (attach->end_fd >= 0)
		close(attach->end_fd);
	if (attach->request.fd >= 0)
		request_close(&attach->request);
	pthread_mutex_destroy(&attach->kernel_lock);
	free(attach);
}
