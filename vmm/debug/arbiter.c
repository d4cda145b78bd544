/* SPDX-License-Identifier: Apache-2.0 */
/* P and F are computed for each request instead of being maintained, so no release can leave a
 * wrong count. */
#include "vmm/debug/arbiter.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"

#define BIT(number) (1ull << (number))

struct holder {
	struct arbiter_request request;
	bool used, enabled;
};

struct vcpu_slots {
	uint8_t guest; /* slots that the guest uses */
	uint64_t turn; /* number of times that turns have changed */
	uint64_t turn_started, accounted;
	struct arbiter_schedule schedule;
	struct arbiter_times times[ARBITER_HOLDERS_MAX];
	uint64_t paused_until[ARBITER_HOLDERS_MAX]; /* 0: not paused */
};

struct arbiter {
	struct arbiter_options options;
	_Atomic uint64_t generation;
	pthread_mutex_t lock; /* protects the members below */
	struct holder holders[ARBITER_HOLDERS_MAX];
	int order[ARBITER_HOLDERS_MAX]; /* used ones, oldest first */
	int count;
	struct vcpu_slots vcpus[];
};

struct load {
	unsigned int pinned, flexible, guest; /* P, F; guest is part of pinned */
};

int arbiter_create(struct arbiter **result, const struct arbiter_options *options)
{
	struct arbiter *arbiter;

	assert(options->vcpus);
	arbiter = calloc(1, sizeof(*arbiter) + options->vcpus * sizeof(arbiter->vcpus[0]));
	if (!arbiter)
		return error_set(-ENOMEM, "no memory for the breakpoint slots of %u vCPUs",
				 options->vcpus);
	arbiter->options = *options;
	if (!arbiter->options.period)
		arbiter->options.period = ARBITER_PERIOD;
	pthread_mutex_init(&arbiter->lock, NULL);
	for (unsigned int vcpu = 0; vcpu < options->vcpus; vcpu++) {
		arbiter->vcpus[vcpu].schedule.next = ARBITER_NEVER;
		for (int slot = 0; slot < DEBUG_SLOTS; slot++)
			arbiter->vcpus[vcpu].schedule.holders[slot] = ARBITER_SLOT_FREE;
	}
	*result = arbiter;
	return 0;
}

void arbiter_destroy(struct arbiter *arbiter)
{
	if (!arbiter)
		return;
	pthread_mutex_destroy(&arbiter->lock);
	free(arbiter);
}

static bool covers(const struct holder *holder, unsigned int vcpu)
{
	return holder->request.vcpu == ARBITER_ALL_VCPUS || holder->request.vcpu == (int)vcpu;
}

/* Number of holders on VCPU pinned for address space SPACE. */
static unsigned int pinned_by(const struct arbiter *arbiter, unsigned int vcpu, uint64_t space)
{
	unsigned int count = 0;

	for (int i = 0; i < arbiter->count; i++) {
		const struct holder *holder = &arbiter->holders[arbiter->order[i]];

		count += covers(holder, vcpu) && holder->request.pinned &&
			 holder->request.space == space;
	}
	return count;
}

static unsigned int most_pinned_by_a_space(const struct arbiter *arbiter, unsigned int vcpu)
{
	unsigned int most = 0;

	for (int i = 0; i < arbiter->count; i++) {
		const struct arbiter_request *request =
			&arbiter->holders[arbiter->order[i]].request;
		unsigned int count;

		if (!request->pinned || request->space == ARBITER_ANY_SPACE)
			continue;
		count = pinned_by(arbiter, vcpu, request->space);
		most = count > most ? count : most;
	}
	return most;
}

static struct load load_of(const struct arbiter *arbiter, unsigned int vcpu)
{
	struct load load = { 0 };

	if (arbiter->options.priority == BREAKPOINT_PRIORITY_GUEST)
		load.guest = (unsigned int)__builtin_popcount(arbiter->vcpus[vcpu].guest);
	load.pinned = load.guest + pinned_by(arbiter, vcpu, ARBITER_ANY_SPACE) +
		      most_pinned_by_a_space(arbiter, vcpu);
	for (int i = 0; i < arbiter->count; i++) {
		const struct holder *holder = &arbiter->holders[arbiter->order[i]];

		load.flexible += covers(holder, vcpu) && !holder->request.pinned;
	}
	return load;
}

static bool grants(const struct load *load, bool pinned)
{
	if (pinned)
		return load->pinned + (load->flexible ? 1 : 0) < DEBUG_SLOTS;
	return load->flexible || load->pinned < DEBUG_SLOTS;
}

static int refuse(const struct load *load, int vcpu, bool wide)
{
	return error_set(
		-ENOSPC,
		"no breakpoint register is free on vCPU %d%s: of %d, %u are pinned or used by the "
		"guest (%u), and %u flexible breakpoints share the rest; remove one, or make this one flexible",
		vcpu, wide ? ", and the request is for all vCPUs" : "", DEBUG_SLOTS, load->pinned,
		load->guest, load->flexible);
}

static int check_one(const struct arbiter *arbiter, unsigned int vcpu, bool pinned, bool wide)
{
	struct load load = load_of(arbiter, vcpu);

	return grants(&load, pinned) ? 0 : refuse(&load, (int)vcpu, wide);
}

static int check_all(const struct arbiter *arbiter, bool pinned)
{
	struct load most = { 0 };
	unsigned int fullest = 0;
	int error = 0;

	for (unsigned int vcpu = 0; vcpu < arbiter->options.vcpus && !error; vcpu++) {
		struct load load = load_of(arbiter, vcpu);

		if (load.pinned > most.pinned) {
			most.pinned = load.pinned;
			most.guest = load.guest;
			fullest = vcpu;
		}
		most.flexible = load.flexible > most.flexible ? load.flexible : most.flexible;
		error = check_one(arbiter, vcpu, pinned, true);
	}
	if (!error && !grants(&most, pinned))
		error = refuse(&most, (int)fullest, true);
	return error;
}

static int find_unused(const struct arbiter *arbiter)
{
	for (int i = 0; i < ARBITER_HOLDERS_MAX; i++)
		if (!arbiter->holders[i].used)
			return i;
	return error_set(-EMFILE, "at most %d breakpoints are possible", ARBITER_HOLDERS_MAX);
}

static int reserve_locked(struct arbiter *arbiter, const struct arbiter_request *request)
{
	int error =
		request->vcpu == ARBITER_ALL_VCPUS
			? check_all(arbiter, request->pinned)
			: check_one(arbiter, (unsigned int)request->vcpu, request->pinned, false);
	int number = error ? error : find_unused(arbiter);

	if (number < 0)
		return number;
	arbiter->holders[number] = (struct holder){ .request = *request, .used = true };
	arbiter->order[arbiter->count++] = number;
	for (unsigned int vcpu = 0; vcpu < arbiter->options.vcpus; vcpu++) {
		arbiter->vcpus[vcpu].times[number] = (struct arbiter_times){ 0 };
		arbiter->vcpus[vcpu].paused_until[number] = 0;
	}
	return number;
}

int arbiter_reserve(struct arbiter *arbiter, const struct arbiter_request *request)
{
	int number;

	assert(request->vcpu == ARBITER_ALL_VCPUS ||
	       (request->vcpu >= 0 && (unsigned int)request->vcpu < arbiter->options.vcpus));
	pthread_mutex_lock(&arbiter->lock);
	number = reserve_locked(arbiter, request);
	pthread_mutex_unlock(&arbiter->lock);
	return number;
}

/* The register that has holder NUMBER, or -1. */
static int slot_of(const struct arbiter_schedule *schedule, int number)
{
	for (int slot = 0; slot < DEBUG_SLOTS; slot++)
		if (schedule->holders[slot] == number)
			return slot;
	return -1;
}

/* Adds the time since the last call to the holders' times. Call it before each change. */
static void account(struct arbiter *arbiter, unsigned int vcpu, uint64_t now)
{
	struct vcpu_slots *slots = &arbiter->vcpus[vcpu];
	uint64_t passed = now > slots->accounted ? now - slots->accounted : 0;

	if (!passed)
		return; /* the clocks of two threads may differ slightly */
	slots->accounted = now;
	for (int i = 0; i < arbiter->count; i++) {
		int number = arbiter->order[i];

		if (!arbiter->holders[number].enabled || !covers(&arbiter->holders[number], vcpu))
			continue;
		slots->times[number].enabled += passed;
		slots->times[number].running += slot_of(&slots->schedule, number) >= 0 ? passed : 0;
	}
}

static void account_all(struct arbiter *arbiter, uint64_t now)
{
	for (unsigned int vcpu = 0; vcpu < arbiter->options.vcpus; vcpu++)
		account(arbiter, vcpu, now);
}

/* The number may be reused at once, so no schedule may have it any longer. */
static void remove_from_schedules(struct arbiter *arbiter, int number)
{
	for (unsigned int vcpu = 0; vcpu < arbiter->options.vcpus; vcpu++) {
		struct arbiter_schedule *schedule = &arbiter->vcpus[vcpu].schedule;

		schedule->suspended &= ~BIT(number);
		for (int slot = 0; slot < DEBUG_SLOTS; slot++)
			if (schedule->holders[slot] == number)
				schedule->holders[slot] = ARBITER_SLOT_FREE;
	}
}

void arbiter_release(struct arbiter *arbiter, int number, uint64_t now)
{
	int i = 0;

	pthread_mutex_lock(&arbiter->lock);
	assert(arbiter->holders[number].used);
	account_all(arbiter, now);
	remove_from_schedules(arbiter, number);
	arbiter->holders[number].used = false;
	while (arbiter->order[i] != number)
		i++;
	arbiter->count--;
	memmove(arbiter->order + i, arbiter->order + i + 1,
		(size_t)(arbiter->count - i) * sizeof(arbiter->order[0]));
	atomic_fetch_add(&arbiter->generation, 1);
	pthread_mutex_unlock(&arbiter->lock);
}

void arbiter_set_enabled(struct arbiter *arbiter, int number, bool enabled, uint64_t now)
{
	pthread_mutex_lock(&arbiter->lock);
	assert(arbiter->holders[number].used);
	account_all(arbiter, now);
	arbiter->holders[number].enabled = enabled;
	atomic_fetch_add(&arbiter->generation, 1);
	pthread_mutex_unlock(&arbiter->lock);
}

uint64_t arbiter_generation(const struct arbiter *arbiter)
{
	return atomic_load_explicit(&arbiter->generation, memory_order_acquire);
}

bool arbiter_set_guest(struct arbiter *arbiter, unsigned int vcpu, uint8_t slots)
{
	bool differs;

	pthread_mutex_lock(&arbiter->lock);
	differs = arbiter->vcpus[vcpu].guest != slots;
	arbiter->vcpus[vcpu].guest = slots;
	pthread_mutex_unlock(&arbiter->lock);
	return differs;
}

void arbiter_pause(struct arbiter *arbiter, unsigned int vcpu, int holder, uint64_t now,
		   uint64_t until)
{
	pthread_mutex_lock(&arbiter->lock);
	account(arbiter, vcpu, now);
	if (arbiter->holders[holder].used)
		arbiter->vcpus[vcpu].paused_until[holder] = until;
	pthread_mutex_unlock(&arbiter->lock);
}

/* Holders that need a register of one vCPU, in order of precedence. */
struct queue {
	int holders[ARBITER_HOLDERS_MAX];
	int count;
};

static bool is_paused(const struct vcpu_slots *slots, int number, uint64_t now)
{
	return slots->paused_until[number] > now;
}

/* Holders that need a register, by age: pinned or flexible, bound to an address space or not. */
static struct queue waiting(const struct arbiter *arbiter, unsigned int vcpu, uint64_t now,
			    bool pinned, bool bound)
{
	struct queue queue = { .count = 0 };

	for (int i = 0; i < arbiter->count; i++) {
		const struct holder *holder = &arbiter->holders[arbiter->order[i]];

		if (holder->enabled && covers(holder, vcpu) && holder->request.pinned == pinned &&
		    (!pinned || (holder->request.space != ARBITER_ANY_SPACE) == bound) &&
		    !is_paused(&arbiter->vcpus[vcpu], arbiter->order[i], now))
			queue.holders[queue.count++] = arbiter->order[i];
	}
	return queue;
}

/* Moves the holder whose turn it is to the front. */
static void rotate(struct queue *queue, uint64_t turn)
{
	struct queue before = *queue;

	for (int i = 0; i < queue->count; i++)
		queue->holders[i] = before.holders[(turn + (uint64_t)i) % (uint64_t)before.count];
}

/* Groups holders by address space, in the order of each one's first holder. */
static void group_by_space(const struct arbiter *arbiter, struct queue *queue)
{
	struct queue grouped = { .count = 0 };
	uint64_t done = 0;

	for (int i = 0; i < queue->count; i++)
		for (int k = i; k < queue->count; k++) {
			int number = queue->holders[k];

			if (done & BIT(number) ||
			    arbiter->holders[number].request.space !=
				    arbiter->holders[queue->holders[i]].request.space)
				continue;
			done |= BIT(number);
			grouped.holders[grouped.count++] = number;
		}
	*queue = grouped;
}

/* Appends up to ROOM holders of FROM to TO. Returns their number. */
static int append(struct queue *to, const struct queue *from, int room)
{
	int count = from->count < room ? from->count : room;

	for (int i = 0; i < count; i++)
		to->holders[to->count++] = from->holders[i];
	return count;
}

/* Selects the holders for ROOM registers. True if some have to take turns. */
static bool choose(const struct arbiter *arbiter, unsigned int vcpu, uint64_t now, int room,
		   struct queue *chosen)
{
	uint64_t turn = arbiter->vcpus[vcpu].turn;
	struct queue pinned = waiting(arbiter, vcpu, now, true, false);
	struct queue bound = waiting(arbiter, vcpu, now, true, true);
	struct queue flexible = waiting(arbiter, vcpu, now, false, false);
	int kept, appended;

	chosen->count = 0;
	room -= append(chosen, &pinned, room);
	/* Flexible ones keep one, unless the guest leaves too few even for the pinned ones. */
	kept = flexible.count && room > (int)most_pinned_by_a_space(arbiter, vcpu);
	if (bound.count > room - kept)
		rotate(&bound, turn);
	group_by_space(arbiter, &bound);
	appended = append(chosen, &bound, room - kept);
	room -= appended;
	if (flexible.count > room)
		rotate(&flexible, turn);
	return append(chosen, &flexible, room) < flexible.count || appended < bound.count;
}

static int free_slot(struct arbiter_schedule *schedule, uint8_t guest)
{
	for (int slot = 0; slot < DEBUG_SLOTS; slot++)
		if (schedule->holders[slot] == ARBITER_SLOT_FREE && !(guest & BIT(slot)))
			return slot;
	for (int slot = 0; slot < DEBUG_SLOTS; slot++)
		if (schedule->holders[slot] == ARBITER_SLOT_FREE)
			return slot;
	assert(!"there is a slot for each that was chosen");
	return 0;
}

/* Holders keep their register unless the guest uses it; the others get free ones. */
static void place(struct arbiter_schedule *schedule, const struct queue *chosen, uint8_t guest)
{
	const struct arbiter_schedule before = *schedule;

	for (int slot = 0; slot < DEBUG_SLOTS; slot++)
		schedule->holders[slot] = ARBITER_SLOT_FREE;
	for (int i = 0; i < chosen->count; i++) {
		int slot = slot_of(&before, chosen->holders[i]);

		if (slot >= 0 && !(guest & BIT(slot)))
			schedule->holders[slot] = chosen->holders[i];
	}
	for (int i = 0; i < chosen->count; i++)
		if (slot_of(schedule, chosen->holders[i]) < 0)
			schedule->holders[free_slot(schedule, guest)] = chosen->holders[i];
	schedule->guest_lost = 0;
	for (int slot = 0; slot < DEBUG_SLOTS; slot++) {
		if (!(guest & BIT(slot)))
			continue;
		if (schedule->holders[slot] == ARBITER_SLOT_FREE)
			schedule->holders[slot] = ARBITER_SLOT_OF_GUEST;
		else
			schedule->guest_lost |= (uint8_t)BIT(slot);
	}
}

static uint64_t end_of_pauses(const struct arbiter *arbiter, const struct vcpu_slots *slots,
			      uint64_t now)
{
	uint64_t first = ARBITER_NEVER;

	for (int i = 0; i < arbiter->count; i++) {
		int number = arbiter->order[i];

		if (arbiter->holders[number].enabled && is_paused(slots, number, now) &&
		    slots->paused_until[number] < first)
			first = slots->paused_until[number];
	}
	return first;
}

static uint64_t without_register(const struct vcpu_slots *slots, const struct queue *queue)
{
	uint64_t without = 0;

	for (int i = 0; i < queue->count; i++)
		if (slot_of(&slots->schedule, queue->holders[i]) < 0)
			without |= BIT(queue->holders[i]);
	return without;
}

/* Holders that share registers wait for their turn. They are suspended only if none of them has
 * a register, which is the guest's doing. */
static uint64_t all_or_none(uint64_t without, const struct queue *queue)
{
	return __builtin_popcountll(without) == queue->count ? without : 0;
}

static uint64_t suspended_of(const struct arbiter *arbiter, unsigned int vcpu, uint64_t now)
{
	const struct vcpu_slots *slots = &arbiter->vcpus[vcpu];
	struct queue pinned = waiting(arbiter, vcpu, now, true, false);
	struct queue bound = waiting(arbiter, vcpu, now, true, true);
	struct queue flexible = waiting(arbiter, vcpu, now, false, false);

	return without_register(slots, &pinned) |
	       all_or_none(without_register(slots, &bound), &bound) |
	       all_or_none(without_register(slots, &flexible), &flexible);
}

static void next_turn(struct vcpu_slots *slots, uint64_t now, uint64_t period)
{
	if (!slots->turn_started || now < slots->turn_started) {
		slots->turn_started = now;
	} else if (now - slots->turn_started >= period) {
		slots->turn++;
		slots->turn_started = now;
	}
}

static void schedule_locked(struct arbiter *arbiter, unsigned int vcpu, uint64_t now)
{
	struct vcpu_slots *slots = &arbiter->vcpus[vcpu];
	int room = DEBUG_SLOTS;
	struct queue chosen;
	bool turns;

	account(arbiter, vcpu, now);
	next_turn(slots, now, arbiter->options.period);
	if (arbiter->options.priority == BREAKPOINT_PRIORITY_GUEST)
		room -= __builtin_popcount(slots->guest);
	turns = choose(arbiter, vcpu, now, room, &chosen);
	place(&slots->schedule, &chosen, slots->guest);
	slots->schedule.suspended = suspended_of(arbiter, vcpu, now);
	slots->schedule.next = end_of_pauses(arbiter, slots, now);
	if (turns && room && slots->turn_started + arbiter->options.period < slots->schedule.next)
		slots->schedule.next = slots->turn_started + arbiter->options.period;
}

void arbiter_schedule(struct arbiter *arbiter, unsigned int vcpu, uint64_t now,
		      struct arbiter_schedule *schedule)
{
	pthread_mutex_lock(&arbiter->lock);
	schedule_locked(arbiter, vcpu, now);
	*schedule = arbiter->vcpus[vcpu].schedule;
	pthread_mutex_unlock(&arbiter->lock);
}

void arbiter_times(struct arbiter *arbiter, unsigned int vcpu, int holder, uint64_t now,
		   struct arbiter_times *times)
{
	pthread_mutex_lock(&arbiter->lock);
	account(arbiter, vcpu, now);
	*times = arbiter->vcpus[vcpu].times[holder];
	pthread_mutex_unlock(&arbiter->lock);
}
