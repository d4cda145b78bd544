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

static void remove_exited(struct attach *attach)
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
static void report_no_ring(struct attach *attach, unsigned int id)
{
	if (attach->reported_no_ring)
		return;
	log_warning(
		"vCPU %u came after the start and is not sampled, as those above: there was room for those "
		"below %zu. Attach again to sample all",
		id, attach->ring_count);
	attach->reported_no_ring = true;
}

/* Once, until all are sampled. It is tried again with each scan: what is in its way may go. */
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
			report_refused(attach, vcpu->id);
			refused = true;
			continue;
		}
		if (error)
			return error;
		log_debug("vCPU %u is thread %d, as %s tells", vcpu->id, vcpu->tid, vcpu->found);
		attach->cpus[vcpu->id].known = false;
		attach->sampled[attach->sampled_count++] = *vcpu;
	}
	attach->reported_refused = refused;
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
void attach_update_threads(struct attach *attach)
{
	if (attach->backend->threads)
		attach->backend->threads(attach->source, attach->process);
}

int attach_update_vcpus(struct attach *attach)
{
	int error = vmm_process_scan(attach->process);

	if (error)
		return error;
	attach_update_threads(attach);
	follow_memory(attach);
	remove_exited(attach);
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

static void flush_rings(struct attach *attach)
{
	for (size_t i = 0; i < attach->ring_count; i++)
		ring_flush(attach->rings[i]);
}

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

/* Which CPUs the vCPUs are to the kernel that runs now, as far as that is not known yet. TOLD
 * becomes what is the same for all; false: there is none. */
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
		known->paging = kernel->paging;
	}
	pthread_mutex_unlock(&attach->kernel_lock);
	return kernel;
}

/* The backend may give samples to the sink at that: not with kernel_lock. */
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

/* False: there was nothing. */
bool attach_drain(struct attach *attach)
{
	if (has_new_kernel(attach))
		set_cpu(attach);
	attach->backend->drain(attach->source);
	update_stops(attach);
	if (attach->recorded == attach->flushed)
		return false;
	attach->flushed = attach->recorded;
	flush_rings(attach);
	return true;
}

static void signal_end(struct attach *attach)
{
	const uint64_t one = 1;

	atomic_store(&attach->ended, !attach->error);
	if (write(attach->end_fd, &one, sizeof(one)) < 0)
		log_debug("the end of the VM can not be told: %s", strerror(errno));
}

bool attach_process_exited(int error)
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

	if (!changed && !attach->arriving && !attach->reported_refused &&
	    attach->recorded == attach->recorded_at_scan && !attach->backend->emulated &&
	    time - attach->last_scan < SCAN_INTERVAL_MAX)
		return false;
	attach->size = size;
	attach->recorded_at_scan = attach->recorded;
	attach->last_scan = time;
	return true;
}

static uint64_t scan_interval(const struct attach *attach)
{
	return attach->arriving ? SCAN_INTERVAL_ARRIVING : SCAN_INTERVAL;
}

/* What goes away under a look at it has ended; anything else is an error. */
static bool scan_if_due(struct attach *attach)
{
	uint64_t time = attach_now();
	int error;

	if (time < attach->next_scan)
		return true;
	attach->next_scan = time + SCAN_INTERVAL;
	if (!may_have_changed(attach, time))
		return true;
	error = attach_update_vcpus(attach);
	attach->next_scan = time + scan_interval(attach);
	if (error)
		log_debug("%s", error_message());
	if (error == -EMFILE) /* those that are sampled are still */
		return true;
	if (!error)
		set_cpu(attach); /* CPUs come up one after the other */
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

int attach_rescan(struct attach *attach)
{
	return request_send(&attach->request, NULL);
}

int attach_set_frequency(struct attach *attach, unsigned int frequency)
{
	if (!attach->backend->set_frequency)
		return error_set(-ENOTSUP, "the frequency of %s can not be changed",
				 attach->backend->name);
	return request_send(&attach->request, &frequency);
}

/* Where that fails for some vCPUs, no frequency is that of all: whatever is asked for next is
 * tried. */
static int apply_frequency(struct attach *attach, unsigned int frequency)
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
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	pthread_setname_np(pthread_self(), "attach");
	attach->last_scan = attach_now();
	attach->next_scan = attach->last_scan + scan_interval(attach);
	do {
		running = wait_for_samples(attach, found);
		found = attach_drain(attach);
		answer_request(attach);
	} while (running && scan_if_due(attach));
	request_end(&attach->request);
	if (!attach->stopped)
		signal_end(attach);
	return NULL;
}
