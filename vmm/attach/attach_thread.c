/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/log.h"
#include "vmm/attach/attach_state.h"
#include "vmm/attach/proc_files.h"

/* vCPUs that come and go, and the memory of the VM. */

static const struct vmm_vcpu *find(const struct vmm_vcpu *vcpus, size_t count,
				   const struct vmm_vcpu *wanted)
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

/* Numbers of threads are used again: what was opened by one is of the VM if the thread is still
 * there behind it. */
static int add_vcpu(struct attach *attach, const struct vmm_vcpu *vcpu)
{
	int error = attach->backend->add(attach->source, vcpu);

	if (error || proc_has_thread(attach->process->directory, vcpu->tid))
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

/* Once, until all are sampled. It is tried again with each scan: what is in its way may go. */
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
		/* Who starts a vCPU of its own waits for it to be sampled, and ends the VM where it
		 * is not.
		 */
		if (error && attach->sampled_count && !attach->own) {
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
void attach_ask_backend(struct attach *attach)
{
	if (attach->backend->threads)
		attach->backend->threads(attach->source, attach->process);
}

int attach_follow_vcpus(struct attach *attach)
{
	int error = vmm_process_scan(attach->process);

	if (error)
		return error;
	attach_ask_backend(attach);
	follow_memory(attach);
	remove_gone(attach);
	error = add_new(attach);
	atomic_store(&attach->vcpus, (unsigned int)attach->sampled_count);
	return error;
}

/* ms: with few samples per second less often. */
#define LEAST     20ul
#define MOST      200ul
#define FREQUENCY 1000ul /* Hz, up from which it is done most often */

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

/* The thread of an attachment, and what is asked of it. */

/* vCPUs that come and go are noticed after so long; at the latest, if nothing tells of it. */
#define SCAN_INTERVAL     NS_PER_S
#define SCAN_INTERVAL_MAX (10 * NS_PER_S)
/* While a vCPU is there and KVM has not run it yet: that of a VM that arrives from another host. */
#define SCAN_INTERVAL_ARRIVING (100 * NS_PER_MS)
/* So long after it could not be looked at, the process may still end. */
#define END_WAIT_MS 2000
/* Hz of no vCPU */
#define TICKS_DIFFER UINT_MAX

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

/* Which CPUs the vCPUs are to the kernel that runs now, as far as that is not known yet. TOLD
 * becomes what is the same for all; false: there is none. */
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
bool attach_drain(struct attach *attach)
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

bool attach_is_gone(int error)
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
 * A VMM that has as many threads and descriptors as before, and a VM that did not run since, have
 * most likely the same vCPUs and memslots.
 */
static bool may_have_changed(struct attach *attach, uint64_t time)
{
	struct vmm_process_size size = vmm_process_size(attach->process);
	bool changed = size.threads != attach->size.threads ||
		       size.descriptors != attach->size.descriptors;

	if (!changed && !attach->arriving && !attach->told_refused &&
	    attach->taken == attach->last_seen && !attach->backend->emulated &&
	    time - attach->last_scan < SCAN_INTERVAL_MAX)
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
	uint64_t time = attach_now();
	int error;

	if (time < attach->next_scan)
		return true;
	attach->next_scan = time + SCAN_INTERVAL;
	if (!may_have_changed(attach, time))
		return true;
	error = attach_follow_vcpus(attach);
	attach->next_scan = time + scan_interval(attach);
	if (error)
		log_debug("%s", error_message());
	if (error == -EMFILE) /* those that are sampled are still */
		return true;
	if (!error)
		see_tasks(attach); /* CPUs come up one after the other */
	if (error && !attach_is_gone(error)) {
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

/*
 * While there are samples, some are let gather before the next look. After a look that found none
 * the backend tells, if it can, when there are again: a VM that idles costs nothing until then.
 * False: the VM has ended, or it is to be stopped.
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
		return error_set(-ENOTSUP, "the frequency of %s can not be changed",
				 attach->backend->name);
	return request_ask(&attach->request, &frequency);
}

/* Where that fails for some vCPUs, no frequency is that of all: whatever is asked for next is
 * tried. */
static int take_over_frequency(struct attach *attach, unsigned int frequency)
{
	int error;

	if (frequency == attach->ticks)
		return 0;
	if (frequency) {
		attach->target.frequency = frequency;
		atomic_store(&attach->hertz, frequency);
	}
	error = attach->backend->set_frequency(attach->source, frequency);
	attach->ticks = error ? TICKS_DIFFER : frequency;
	return error;
}

static void answer(struct attach *attach)
{
	unsigned int frequency;
	int error;

	if (!request_take(&attach->request, &frequency))
		return;
	error = take_over_frequency(attach, frequency);
	if (!error)
		error = attach_follow_vcpus(attach);
	attach_drain(attach);
	request_answer(&attach->request, error);
}

void *attach_run(void *context)
{
	struct attach *attach = context;
	bool goes_on, found = true;
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	pthread_setname_np(pthread_self(), "attach");
	attach->last_scan = attach_now();
	attach->next_scan = attach->last_scan + scan_interval(attach);
	do {
		goes_on = wait_for_samples(attach, found);
		found = attach_drain(attach);
		answer(attach);
	} while (goes_on && scan_in_time(attach));
	request_end(&attach->request);
	if (!attach->stopped)
		end(attach);
	return NULL;
}
