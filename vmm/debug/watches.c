/* SPDX-License-Identifier: Apache-2.0 */
/* The list of watches; vcpu_watch.c has the part of the vCPU's thread. */
#include "vmm/debug/watches.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/debug/vcpu_watch.h"

uint64_t watch_now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

int watches_create(struct watches **result, const struct watches_options *options)
{
	struct arbiter_options slots = { .vcpus = options->vcpus,
					 .period = options->rotation,
					 .priority = options->priority };
	struct watches *watches =
		calloc(1, sizeof(*watches) + options->vcpus * sizeof(watches->vcpus[0]));
	int error;

	if (!watches)
		return error_set(-ENOMEM, "no memory for watches");
	error = arbiter_create(&watches->arbiter, &slots);
	if (error) {
		free(watches);
		return error;
	}
	watches->options = *options;
	if (!watches->options.storm_limit)
		watches->options.storm_limit = WATCH_STORM_LIMIT;
	pthread_mutex_init(&watches->lock, NULL);
	*result = watches;
	return 0;
}

void watches_destroy(struct watches *watches)
{
	if (!watches)
		return;
	for (unsigned int i = 0; i < watches->options.vcpus; i++)
		assert(!watches->vcpus[i].entered);
	for (unsigned int i = 0; i < watches->count; i++) {
		free(watches->list[i].addresses);
		free(watches->list[i].times);
	}
	arbiter_destroy(watches->arbiter);
	pthread_mutex_destroy(&watches->lock);
	free(watches);
}

static int check_request(const struct watches *watches, const struct watch_request *request)
{
	struct breakpoint breakpoint = { .kind = request->kind, .length = request->length };

	assert(request->period && request->kind != BREAKPOINT_IO);
	if (!breakpoint_valid(&breakpoint))
		return error_set(
			-EINVAL,
			"a debug register watches 1, 2, 4 or 8 bytes, or 1 byte of code; not %u",
			request->length);
	if (request->vcpu >= (int)watches->options.vcpus)
		return error_set(-EINVAL, "there is no vCPU %d to watch; the last one is %u",
				 request->vcpu, watches->options.vcpus - 1);
	return 0;
}

static int add_locked(struct watches *watches, const struct watch_request *request)
{
	struct arbiter_request slot = { .pinned = request->pinned,
					.vcpu = request->vcpu,
					.space = request->space };
	unsigned int number = watches->count;
	struct watch *watch = &watches->list[number];
	int holder;

	if (number == WATCHES_MAX)
		return error_set(-EMFILE, "at most %d watches are possible in a recording",
				 WATCHES_MAX);
	holder = arbiter_reserve(watches->arbiter, &slot);
	if (holder < 0)
		return holder;
	*watch = (struct watch){ .request = *request, .holder = holder };
	watch->addresses = calloc(watches->options.vcpus, sizeof(watch->addresses[0]));
	watch->times = calloc(watches->options.vcpus, sizeof(watch->times[0]));
	if (!watch->addresses || !watch->times) {
		free(watch->addresses);
		free(watch->times);
		arbiter_release(watches->arbiter, holder, watch_now());
		return error_set(-ENOMEM, "no memory for a watch");
	}
	watches->watch_of_holder[holder] = (int)number;
	watches->count = number + 1;
	return (int)number;
}

int watch_add(struct watches *watches, const struct watch_request *request)
{
	int result = check_request(watches, request);

	if (result)
		return result;
	pthread_mutex_lock(&watches->lock);
	result = add_locked(watches, request);
	pthread_mutex_unlock(&watches->lock);
	return result;
}

void watch_set_address_on(struct watches *watches, unsigned int number, unsigned int vcpu,
			  uint64_t address)
{
	pthread_mutex_lock(&watches->lock);
	watches->list[number].addresses[vcpu] = address;
	pthread_mutex_unlock(&watches->lock);
}

/* ADDRESS is for all vCPUs without an address of their own. */
static int check_addresses(const struct watches *watches, const struct watch *watch,
			   uint64_t address)
{
	struct breakpoint breakpoint = { .kind = watch->request.kind,
					 .length = watch->request.length };

	for (unsigned int i = 0; i < watches->options.vcpus; i++) {
		breakpoint.address = watch->addresses[i] ? watch->addresses[i] : address;
		if (!breakpoint_valid(&breakpoint))
			return error_set(
				-EINVAL,
				"cannot watch %#llx: a debug register watches %u bytes at a multiple "
				"of %u",
				(unsigned long long)breakpoint.address, breakpoint.length,
				breakpoint.length);
	}
	return 0;
}

static int arm_locked(struct watches *watches, struct watch *watch, uint64_t address)
{
	int error;

	if (watch->holder < 0)
		return 0;
	error = check_addresses(watches, watch, address);
	if (error)
		return error;
	for (unsigned int i = 0; i < watches->options.vcpus; i++)
		if (!watch->addresses[i])
			watch->addresses[i] = address;
	watch->armed = watch->known = true;
	arbiter_set_enabled(watches->arbiter, watch->holder, true, watch_now());
	return 0;
}

int watch_arm(struct watches *watches, unsigned int number, uint64_t address)
{
	int error;

	pthread_mutex_lock(&watches->lock);
	error = arm_locked(watches, &watches->list[number], address);
	pthread_mutex_unlock(&watches->lock);
	return error;
}

static void disarm_locked(struct watches *watches, struct watch *watch)
{
	if (watch->holder >= 0)
		arbiter_set_enabled(watches->arbiter, watch->holder, false, watch_now());
	watch->disarmed += watch->armed;
	watch->armed = false;
	watch->known = true;
	memset(watch->addresses, 0, watches->options.vcpus * sizeof(watch->addresses[0]));
}

void watch_disarm(struct watches *watches, unsigned int number)
{
	pthread_mutex_lock(&watches->lock);
	disarm_locked(watches, &watches->list[number]);
	pthread_mutex_unlock(&watches->lock);
}

static void release_locked(struct watches *watches, struct watch *watch)
{
	uint64_t now = watch_now();

	for (unsigned int i = 0; i < watches->options.vcpus; i++)
		arbiter_times(watches->arbiter, i, watch->holder, now, &watch->times[i]);
	arbiter_release(watches->arbiter, watch->holder, now);
	watch->holder = -1;
}

void watch_remove(struct watches *watches, unsigned int number)
{
	struct watch *watch = &watches->list[number];

	pthread_mutex_lock(&watches->lock);
	disarm_locked(watches, watch);
	if (watch->holder >= 0)
		release_locked(watches, watch);
	pthread_mutex_unlock(&watches->lock);
}

unsigned int watch_count(const struct watches *watches)
{
	return watches->count;
}

void watch_statistics(struct watches *watches, unsigned int number, int vcpu,
		      struct watch_statistics *statistics)
{
	struct watch *watch = &watches->list[number];
	uint64_t now = watch_now();

	*statistics = (struct watch_statistics){ 0 };
	pthread_mutex_lock(&watches->lock);
	statistics->disarmed = watch->disarmed;
	for (unsigned int i = 0; i < watches->options.vcpus; i++) {
		const struct watch_counts *counts = &watches->vcpus[i].counts[number];
		struct arbiter_times times = watch->times[i];

		if (vcpu != ARBITER_ALL_VCPUS && vcpu != (int)i)
			continue;
		statistics->hits += __atomic_load_n(&counts->hits, __ATOMIC_RELAXED);
		statistics->throttled += __atomic_load_n(&counts->throttled, __ATOMIC_RELAXED);
		statistics->suspended += __atomic_load_n(&counts->suspended, __ATOMIC_RELAXED);
		if (watch->holder >= 0)
			arbiter_times(watches->arbiter, i, watch->holder, now, &times);
		statistics->times.enabled += times.enabled;
		statistics->times.running += times.running;
	}
	pthread_mutex_unlock(&watches->lock);
}

void watch_slots(struct watches *watches, unsigned int vcpu, struct watch_slot slots[DEBUG_SLOTS])
{
	const struct vcpu_watches *of = &watches->vcpus[vcpu];
	const struct debug_plan *plan = &of->shown;

	pthread_mutex_lock(&watches->lock);
	for (unsigned int i = 0; i < DEBUG_SLOTS; i++) {
		slots[i].owner = of->followed ? WATCH_OWNER_NONE : WATCH_OWNER_UNKNOWN;
		if (plan->host >> i & 1) {
			slots[i].owner = WATCH_OWNER_WATCH;
			slots[i].watch = (unsigned int)of->watches[i];
		} else if (of->followed && plan->guest >> i & 1) {
			slots[i].owner = WATCH_OWNER_GUEST;
		}
		slots[i].guest_lost = of->shown_lost >> i & 1;
		slots[i].breakpoint = dr7_breakpoint(plan->dr7, i, plan->address[i]);
	}
	pthread_mutex_unlock(&watches->lock);
}

uint64_t watches_guest_lost(const struct watches *watches)
{
	return watches->guest_lost;
}
