/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/log.h"
#include "vmm/attach/attach_state.h"
#include "vmm/attach/proc_files.h"

/* Hot-plugged vCPUs and memory */

static const struct vmm_vcpu *find(const struct vmm_vcpu *vcpus, size_t count,
				   const struct vmm_vcpu *wanted)
{
	for (size_t i = 0; i < count; i++)
		if (vcpus[i].id == wanted->id && vcpus[i].tid == wanted->tid)
			return &vcpus[i];
	return NULL;
}

/* TIDs are reused: the event belongs to the VM only if the thread still exists afterwards. */
static int add_vcpu(struct attach *attach, const struct vmm_vcpu *vcpu)
{
	int error = attach->backend->add(attach->source, vcpu);

	if (error || proc_has_thread(attach->process->directory, vcpu->tid))
		return error;
	attach->backend->remove(attach->source, vcpu->id);
	return -ESRCH;
}

/* CPU time in ns of a thread that started after the attachment and has just begun to be sampled. */
static uint64_t unsampled_time(const struct attach *attach, const struct vmm_vcpu *vcpu)
{
	uint64_t most = attach_now() - attach->previous_scan;
	struct thread_cpu_times times = { 0 };

	if (!attach->started || !thread_cpu_times_of(attach->process->directory, vcpu->tid, &times))
		times.ran = 0;
	return MIN(times.ran, most);
}

static void begin_sampled(struct attach *attach, const struct vmm_vcpu *vcpu)
{
	uint64_t lost = unsampled_time(attach, vcpu) * attach->target.frequency / NS_PER_S;

	log_debug("vCPU %u is thread %d, according to %s", vcpu->id, vcpu->tid, vcpu->found);
	thread_exits_watch(&attach->exits, vcpu->id, vcpu->tid);
	if (lost)
		attach_record_lost(attach, vcpu->id, lost);
	if (attach->replaced)
		attach->replaced--;
}

/* VCPU of the process on the thread that runs it now; NULL: it has none. */
static const struct vmm_vcpu *find_id(const struct vmm_process *process, unsigned int id)
{
	for (size_t i = 0; i < process->vcpu_count; i++)
		if (process->vcpus[i].id == id && process->vcpus[i].tid)
			return &process->vcpus[i];
	return NULL;
}

/* To another thread of the same vCPU, if there is one. */
static bool move(struct attach *attach, struct vmm_vcpu *sampled, const struct vmm_vcpu *now)
{
	if (!now || !attach->backend->move)
		return false;
	if (attach->backend->move(attach->source, now) ||
	    !proc_has_thread(attach->process->directory, now->tid))
		return false;
	*sampled = *now;
	begin_sampled(attach, now);
	return true;
}

/* A vCPU whose thread has just exited is kept for the next one. */
static void remove_exited(struct attach *attach)
{
	const struct vmm_process *process = attach->process;

	for (size_t i = 0; i < attach->sampled_count;) {
		struct vmm_vcpu *vcpu = &attach->sampled[i];
		const struct vmm_vcpu *now = find_id(process, vcpu->id);

		if (find(process->vcpus, process->vcpu_count, vcpu) || (!now && attach->replaced) ||
		    move(attach, vcpu, now)) {
			i++;
			continue;
		}
		if (!now)
			log_info("vCPU %u was removed", vcpu->id);
		attach->backend->remove(attach->source, vcpu->id);
		thread_exits_unwatch(&attach->exits, vcpu->id);
		*vcpu = attach->sampled[--attach->sampled_count];
	}
}

/* Reported once for all vCPUs without a ring. */
static void report_no_ring(struct attach *attach, unsigned int id)
{
	if (attach->reported_no_ring)
		return;
	log_warning("vCPU %u was added after the start: only vCPUs below %zu are sampled. "
		    "Attach again to sample all",
		    id, attach->ring_count);
	attach->reported_no_ring = true;
}

/* Reported once until all vCPUs are sampled. Each scan tries again. */
static void report_refused(struct attach *attach, unsigned int id)
{
	if (!attach->reported_refused)
		log_warning("vCPU %u is not sampled: %s", id, error_message());
	attach->reported_refused = true;
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
			report_no_ring(attach, vcpu->id);
			continue;
		}
		if (!vcpu->tid)
			attach_unsampled_watch(attach);
		if (!vcpu->tid || find(attach->sampled, attach->sampled_count, vcpu))
			continue;
		error = add_vcpu(attach, vcpu);
		if (error == -ESRCH) {
			attach_unsampled_watch(attach);
			attach->arriving = true;
			continue;
		}
		/*
		 * The owner of the VM waits until each vCPU is sampled, and ends the VM otherwise.
		 */
		if (error && attach->sampled_count && !attach->own) {
			report_refused(attach, vcpu->id);
			refused = true;
			continue;
		}
		if (error)
			return error;
		attach->cpus[vcpu->id].known = false;
		attach->sampled[attach->sampled_count++] = *vcpu;
		begin_sampled(attach, vcpu);
	}
	attach->reported_refused = refused;
	return 0;
}

/* Hot-plugged memory is another memslot. */
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

void attach_update_threads(struct attach *attach)
{
	THREAD_CHECK(&attach->owner);
	if (attach->backend->threads)
		attach->backend->threads(attach->source, attach->process);
}

int attach_update_vcpus(struct attach *attach)
{
	int error;

	THREAD_CHECK(&attach->owner);
	attach->process->quick = attach->replaced;
	error = vmm_process_scan(attach->process);
	if (error)
		return error;
	attach_update_threads(attach);
	follow_memory(attach);
	remove_exited(attach);
	error = add_new(attach);
	atomic_store(&attach->vcpus, (unsigned int)attach->sampled_count);
	return error;
}

/* ms */
#define LEAST     20ul
#define MOST      200ul
#define FREQUENCY 1000ul /* Hz from which on LEAST applies */

static uint64_t by_frequency(uint64_t frequency)
{
	if (frequency >= FREQUENCY)
		return LEAST;
	return frequency * MOST <= FREQUENCY * LEAST ? MOST : FREQUENCY * LEAST / frequency;
}

int drain_interval(unsigned int frequency, size_t vcpus, size_t room)
{
	uint64_t interval = by_frequency(frequency), samples = (uint64_t)frequency * vcpus, half;

	if (!room || !samples)
		return (int)interval;
	half = (uint64_t)room * MS_PER_S / samples / 2;
	if (half < interval)
		interval = half;
	return interval ? (int)interval : 1;
}

/* The attach thread */

/* Intervals of scans for vCPUs: by default, and if nothing indicates a change. */
#define SCAN_INTERVAL     NS_PER_S
#define SCAN_INTERVAL_MAX (10 * NS_PER_S)
/* While a vCPU has never run: a VM that migrates to this host. */
#define SCAN_INTERVAL_ARRIVING (100 * NS_PER_MS)
/* While the thread that replaces an exited one is searched, and for how long it is. */
#define SCAN_INTERVAL_REPLACED (5 * NS_PER_MS)
#define REPLACED_WITHIN        NS_PER_S
/* Time that a process may take to exit after it became unreadable. */
#define END_WAIT_MS 2000
/* vCPUs are sampled with different frequencies */
#define TICKS_DIFFER UINT_MAX

static void update_stops(struct attach *attach)
{
	struct attach_stops stops;

	if (!attach->backend->stops)
		return;
	attach->backend->stops(attach->source, &stops);
	pthread_mutex_lock(&attach->kernel_lock);
	attach->stops = stops;
	pthread_mutex_unlock(&attach->kernel_lock);
}

/* Finds the guest CPU of each vCPU for a new kernel. KNOWN gets the values common to all vCPUs.
 * False: no kernel is known. */
static bool find_cpus(struct attach *attach, struct attach_cpu *known)
{
	const struct guest_kernel *kernel;

	pthread_mutex_lock(&attach->kernel_lock);
	kernel = attach->kernel;
	for (size_t i = 0; kernel && i < attach->sampled_count; i++) {
		struct user_space_cpu *cpu = &attach->cpus[attach->sampled[i].id];

		if (attach->cpus_current && cpu->known)
			continue;
		user_space_find_cpu(cpu, kernel, &attach->memory.view, attach->sampled[i].id);
		cpu->seen = false;
	}
	if (kernel) {
		attach->cpus_current = true;
		known->layout = kernel->tasks;
		known->vmas = kernel->vmas;
		known->paging = kernel->paging;
	}
	pthread_mutex_unlock(&attach->kernel_lock);
	return kernel;
}

/* Not with kernel_lock: the backend may pass samples to the sink. */
static void set_cpu(struct attach *attach)
{
	struct attach_cpu known;

	if (!attach->backend->set_cpu || !find_cpus(attach, &known))
		return;
	for (size_t i = 0; i < attach->sampled_count; i++) {
		unsigned int id = attach->sampled[i].id;
		struct user_space_cpu *cpu = &attach->cpus[id];

		if (!cpu->known || cpu->seen)
			continue;
		known.offset = cpu->offset;
		known.irq_top = cpu->irq_top;
		attach->backend->set_cpu(attach->source, id, &known);
		cpu->seen = true;
	}
}

static bool has_new_kernel(struct attach *attach)
{
	bool has;

	pthread_mutex_lock(&attach->kernel_lock);
	has = attach->kernel && !attach->cpus_current;
	pthread_mutex_unlock(&attach->kernel_lock);
	return has;
}

bool attach_drain(struct attach *attach)
{
	THREAD_CHECK(&attach->owner);
	if (has_new_kernel(attach))
		set_cpu(attach);
	attach->backend->drain(attach->source);
	update_stops(attach);
	if (attach->recorded == attach->flushed)
		return false;
	attach->flushed = attach->recorded;
	for (size_t i = 0; i < attach->ring_count; i++)
		ring_flush(attach->rings[i]);
	return true;
}

static void signal_end(struct attach *attach)
{
	const uint64_t one = 1;

	atomic_store(&attach->ended, !attach->error);
	if (write(attach->end_fd, &one, sizeof(one)) < 0)
		log_debug("cannot signal the end of the VM: %s", strerror(errno));
}

bool attach_process_exited(int error)
{
	return error == -ESRCH || error == -ENOENT;
}

/* A process cannot be inspected while the kernel frees its memory. */
static bool ends_soon(const struct attach *attach)
{
	struct pollfd events[] = {
		{ .fd = attach->process->pid_fd, .events = POLLIN },
		{ .fd = attach->stop_fd, .events = POLLIN },
	};

	return poll(events, 2, END_WAIT_MS) > 0 && events[0].revents;
}

/* A VMM with the same number of threads and descriptors and without new samples most likely has the
 * same vCPUs and memslots. */
static bool may_have_changed(struct attach *attach, uint64_t time)
{
	struct vmm_process_size size = vmm_process_size(attach->process);
	bool changed = size.threads != attach->size.threads ||
		       size.descriptors != attach->size.descriptors;

	if (!changed && !attach->arriving && !attach->replaced && !attach->reported_refused &&
	    attach->recorded == attach->recorded_at_scan && !attach->backend->emulated &&
	    time - attach->last_scan < SCAN_INTERVAL_MAX)
		return false;
	attach->size = size;
	attach->recorded_at_scan = attach->recorded;
	attach->previous_scan = attach->last_scan;
	attach->last_scan = time;
	return true;
}

static uint64_t scan_interval(const struct attach *attach)
{
	if (attach->replaced)
		return SCAN_INTERVAL_REPLACED;
	return attach->arriving ? SCAN_INTERVAL_ARRIVING : SCAN_INTERVAL;
}

/* A vCPU whose thread has exited may continue on another one immediately. */
static void follow_exits(struct attach *attach)
{
	unsigned int exited = thread_exits_read(&attach->exits);
	uint64_t time = attach_now();

	if (exited) {
		attach_unsampled_watch(attach);
		attach->replaced += exited;
		attach->replaced_until = time + REPLACED_WITHIN;
		attach->next_scan = time;
	} else if (attach->replaced && time > attach->replaced_until) {
		attach->replaced = 0;
		attach->size = (struct vmm_process_size){ 0 }; /* the next scan is not skipped */
	}
}

/* A process that disappears during the scan has exited; all other failures are errors. */
static bool scan_if_due(struct attach *attach)
{
	uint64_t time;
	int error;

	follow_exits(attach);
	attach_unsampled_count(attach, false);
	wall_clock_update(&attach->wall, attach->process, attach->sampled, attach->sampled_count);
	time = attach_now();
	if (time < attach->next_scan)
		return true;
	attach->next_scan = time + SCAN_INTERVAL;
	if (!may_have_changed(attach, time))
		return true;
	error = attach_update_vcpus(attach);
	attach->next_scan = time + scan_interval(attach);
	if (error)
		log_debug("%s", error_message());
	if (error == -EMFILE) /* the sampled vCPUs stay */
		return true;
	if (!error)
		set_cpu(attach); /* guest CPUs come up one after the other */
	if (error && !attach_process_exited(error)) {
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
	uint64_t time = attach_now();

	return attach->next_scan > time ? (int)((attach->next_scan - time) / NS_PER_MS) + 1 : 0;
}

/* With samples coming, lets some accumulate unless the backend's event comes. After an empty drain,
 * waits for that event if the backend has one: an idle VM causes no wake-ups. False: the VM has
 * ended, or the thread is to stop. */
static bool wait_for_samples(struct attach *attach, bool found)
{
	struct pollfd events[] = {
		{ .fd = attach->stop_fd, .events = POLLIN },
		{ .fd = attach->process->pid_fd, .events = POLLIN },
		{ .fd = attach->request.fd, .events = POLLIN },
		{ .fd = attach->exits.fd, .events = POLLIN },
		{ .fd = -1, .events = POLLIN },
	};

	if (attach->backend->events)
		events[4].fd = attach->backend->events(attach->source);
	if (!found && attach->backend->events && !poll(events, 5, until_next_scan(attach)))
		return true;
	if (!events[0].revents && !events[1].revents && !events[2].revents && !events[3].revents)
		poll(events, 5, MIN(until_next_drain(attach), until_next_scan(attach)));
	attach->stopped = events[0].revents;
	return !events[0].revents && !events[1].revents;
}

/* Requests */

int attach_rescan(struct attach *attach)
{
	return request_send(&attach->request, NULL);
}

int attach_set_frequency(struct attach *attach, unsigned int frequency)
{
	if (!attach->backend->set_frequency)
		return error_set(-ENOTSUP, "backend %s cannot change its frequency",
				 attach->backend->name);
	return request_send(&attach->request, &frequency);
}

/* If it fails for some vCPUs, no frequency applies to all, so that the next request is always
 * tried. */
static int apply_frequency(struct attach *attach, unsigned int frequency)
{
	int error;

	if (frequency == attach->ticks)
		return 0;
	attach_unsampled_count(attach, true);
	if (frequency) {
		attach->target.frequency = frequency;
		atomic_store(&attach->hertz, frequency);
	}
	error = attach->backend->set_frequency(attach->source, frequency);
	attach->ticks = error ? TICKS_DIFFER : frequency;
	return error;
}

static void answer_request(struct attach *attach)
{
	unsigned int frequency;
	int error;

	if (!request_receive(&attach->request, &frequency))
		return;
	error = apply_frequency(attach, frequency);
	if (!error)
		error = attach_update_vcpus(attach);
	attach_drain(attach);
	request_answer(&attach->request, error);
}

void *attach_run(void *context)
{
	struct attach *attach = context;
	bool running, found = true;

	wall_clock_update(&attach->wall, attach->process, attach->sampled, attach->sampled_count);
	attach->last_scan = attach_now();
	attach->next_scan = attach->last_scan + scan_interval(attach);
	do {
		running = wait_for_samples(attach, found);
		found = attach_drain(attach);
		answer_request(attach);
	} while (running && scan_if_due(attach));
	attach_unsampled_count(attach, true);
	wall_clock_finish(&attach->wall, attach->process, attach->sampled, attach->sampled_count);
	request_end(&attach->request);
	if (!attach->stopped)
		signal_end(attach);
	return NULL;
}
