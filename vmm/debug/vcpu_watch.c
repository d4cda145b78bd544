/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vCPU thread's part of watches: loads the watches selected by the arbiter and the guest's own
 * breakpoints into the debug registers. watch_exit.c handles the exits that they cause.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/local_atomic.h"
#include "shared/log.h"
#include "vmm/debug/vcpu_watch.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vcpu_debug.h"

struct vcpu_watches *watch_own_state(struct watches *watches, const struct vcpu *vcpu)
{
	assert(vcpu_on_thread(vcpu));
	return &watches->vcpus[vcpu->index];
}

void watch_report_failure(struct watches *watches)
{
	if (!atomic_flag_test_and_set(&watches->reported_failure))
		log_warning("watches may miss hits from now on: %s", error_message());
}

int watch_read_guest(struct vcpu_watches *self, struct vcpu *vcpu, struct kvm_debugregs *registers)
{
	int error = vcpu_get_debug_registers(vcpu, registers);

	if (error)
		return error;
	memcpy(self->guest.address, registers->db, sizeof(self->guest.address));
	self->guest.dr6 = registers->dr6;
	self->guest.dr7 = registers->dr7;
	return 0;
}

int watch_set_debug(struct vcpu *vcpu, const struct debug_plan *plan, uint32_t control)
{
	struct kvm_guest_debug debug = { .control = control };

	if (control) {
		memcpy(debug.arch.debugreg, plan->address, sizeof(plan->address));
		debug.arch.debugreg[7] = plan->dr7;
	}
	return vcpu_set_guest_debug(vcpu, &debug);
}

/* Created when it is first needed: there is none without watches. */
static int create_timer(struct vcpu_watches *self)
{
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID,
				  .sigev_signo = VCPU_KICK_SIGNAL };

	event._sigev_un._tid = gettid();
	if (timer_create(CLOCK_MONOTONIC, &event, &self->timer))
		return error_set(-errno, "cannot create a timer for watches: %m");
	self->has_timer = true;
	return 0;
}

static int set_timer(struct vcpu_watches *self, uint64_t next)
{
	struct itimerspec time = { 0 };
	int error = 0;

	if (!self->has_timer)
		error = next == ARBITER_NEVER ? 0 : create_timer(self);
	if (error || !self->has_timer)
		return error;
	if (next != ARBITER_NEVER)
		time.it_value =
			(struct timespec){ (time_t)(next / NS_PER_S), (long)(next % NS_PER_S) };
	timer_settime(self->timer, TIMER_ABSTIME, &time, NULL);
	return 0;
}

void watch_change_state(struct watches *watches, struct vcpu *vcpu, unsigned int number,
			enum watch_state state)
{
	struct watch_counts *counts = &watch_own_state(watches, vcpu)->counts[number];

	if (counts->state == state)
		return;
	counts->state = state;
	if (state == WATCH_SUSPENDED)
		local_add(&counts->suspended, 1);
	if (state == WATCH_THROTTLED)
		local_add(&counts->throttled, 1);
	if (watches->options.changed)
		watches->options.changed(watches->options.context, vcpu, number, state);
}

static bool covers(const struct watch *watch, const struct vcpu *vcpu)
{
	return watch->request.vcpu == ARBITER_ALL_VCPUS || watch->request.vcpu == (int)vcpu->index;
}

static enum watch_state state_of(const struct vcpu_watches *self, const struct watch *watch,
				 uint64_t now, const struct watch_counts *counts)
{
	if (!watch->armed)
		return WATCH_DISARMED;
	if (self->schedule.suspended & BIT(watch->holder))
		return WATCH_SUSPENDED;
	if (counts->state == WATCH_THROTTLED && now < counts->storm_began + WATCH_STORM_PERIOD)
		return WATCH_THROTTLED;
	return WATCH_RUNNING;
}

/* The breakpoints selected by the arbiter. Returns their slots. Called under the lock. */
static uint8_t scheduled_breakpoints(struct watches *watches, struct vcpu_watches *self,
				     const struct vcpu *vcpu, struct breakpoint *host)
{
	uint8_t slots = 0;

	for (int slot = 0; slot < DEBUG_SLOTS; slot++) {
		int holder = self->schedule.holders[slot];
		const struct watch *watch;

		if (holder < 0)
			continue;
		self->watches[slot] = watches->watch_of_holder[holder];
		watch = &watches->list[self->watches[slot]];
		host[slot] = (struct breakpoint){ .address = watch->addresses[vcpu->index],
						  .kind = watch->request.kind,
						  .length = watch->request.length };
		slots |= (uint8_t)BIT(slot);
	}
	return slots;
}

static void update_states(struct watches *watches, struct vcpu *vcpu, uint64_t now)
{
	struct vcpu_watches *self = watch_own_state(watches, vcpu);

	for (unsigned int i = 0; i < watches->count; i++)
		if (watches->list[i].known && covers(&watches->list[i], vcpu))
			watch_change_state(
				watches, vcpu, i,
				state_of(self, &watches->list[i], now, &self->counts[i]));
}

void watch_count_guest_lost(struct watches *watches, struct vcpu *vcpu, unsigned int count)
{
	atomic_fetch_add(&watches->guest_lost, count);
	if (watches->options.guest_lost)
		watches->options.guest_lost(watches->options.context, vcpu, count);
}

/* The host has priority: the loss for the guest is counted and reported. */
static void update_guest_lost(struct watches *watches, struct vcpu *vcpu, uint8_t before,
			      uint8_t lost)
{
	uint8_t more = lost & (uint8_t)~before;

	if (!more)
		return;
	watch_count_guest_lost(watches, vcpu, (unsigned int)__builtin_popcount(more));
	if (!atomic_flag_test_and_set(&watches->reported_guest_lost))
		log_warning(
			"a breakpoint of the guest does not work for it, because a watch has its register");
}

/* Schedules again, and merges the result with the guest's registers as last read. */
static struct debug_plan make_plan(struct watches *watches, struct vcpu *vcpu)
{
	struct vcpu_watches *self = watch_own_state(watches, vcpu);
	struct breakpoint host[DEBUG_SLOTS] = { 0 };
	uint8_t slots, lost = self->schedule.guest_lost;
	uint64_t now = watch_now();
	struct debug_plan plan;

	pthread_mutex_lock(&watches->lock);
	self->generation = arbiter_generation(watches->arbiter);
	arbiter_set_guest(watches->arbiter, vcpu->index, dr7_slots(self->guest.dr7));
	arbiter_schedule(watches->arbiter, vcpu->index, now, &self->schedule);
	slots = scheduled_breakpoints(watches, self, vcpu, host);
	plan = debug_plan_merge(&self->guest, host, slots);
	self->shown = plan;
	self->shown_lost = self->schedule.guest_lost;
	self->active = self->followed = slots || self->schedule.suspended;
	update_states(watches, vcpu, now);
	pthread_mutex_unlock(&watches->lock);
	update_guest_lost(watches, vcpu, lost, self->schedule.guest_lost);
	if (self->schedule.suspended)
		plan.dr7 |= DR7_GD; /* to notice when the guest frees one */
	return plan;
}

int watch_load(struct watches *watches, struct vcpu *vcpu, uint32_t extra)
{
	struct vcpu_watches *self = watch_own_state(watches, vcpu);
	int error;

	self->armed = make_plan(watches, vcpu);
	self->stepping_now = false;
	error = watch_set_debug(vcpu, &self->armed, (self->active ? WATCH_CONTROL : 0) | extra);
	return error ? error : set_timer(self, self->schedule.next);
}

void watch_reload(struct watches *watches, struct vcpu *vcpu)
{
	struct kvm_debugregs registers;

	if (watch_read_guest(watch_own_state(watches, vcpu), vcpu, &registers) ||
	    watch_load(watches, vcpu, 0))
		watch_report_failure(watches);
}

bool watch_is_due(const struct watches *watches, const struct vcpu_watches *self)
{
	return self->generation != arbiter_generation(watches->arbiter) ||
	       (self->schedule.next != ARBITER_NEVER && watch_now() >= self->schedule.next);
}

/* False if the stepped instruction has faulted and its handler runs: the handler is watched. */
static bool is_in_step(struct vcpu_watches *self, struct vcpu *vcpu)
{
	return self->stepping_now &&
	       vcpu_special_registers(vcpu)->cs.base + vcpu_registers(vcpu)->rip == self->step_rip;
}

static bool guest_changed(struct vcpu_watches *self, struct vcpu *vcpu)
{
	struct debug_registers before = self->guest;
	struct kvm_debugregs registers;

	return watch_read_guest(self, vcpu, &registers) ||
	       memcmp(&before, &self->guest, sizeof(before)) != 0;
}

/* Notices changes by the guest where DR7.GD does not work. */
void watch_kicked(struct watches *watches, struct vcpu *vcpu)
{
	struct vcpu_watches *self = watch_own_state(watches, vcpu);

	if (!self->entered || is_in_step(self, vcpu))
		return;
	if (self->stepping_now || watch_is_due(watches, self) ||
	    (self->active && guest_changed(self, vcpu)))
		watch_reload(watches, vcpu);
}

static void delete_timer(struct vcpu_watches *self)
{
	if (self->has_timer)
		timer_delete(self->timer);
	self->has_timer = false;
}

int watch_enter(struct watches *watches, struct vcpu *vcpu)
{
	struct vcpu_watches *self = watch_own_state(watches, vcpu);
	struct kvm_debugregs registers;
	int error = 0;

	self->stepping = self->stepping_now = false;
	self->blocks_interrupts = vm_can_block_interrupts(vcpu->vm);
	self->schedule.next = ARBITER_NEVER;
	if (watches->count) {
		error = watch_read_guest(self, vcpu, &registers);
		if (!error)
			error = watch_load(watches, vcpu, 0);
	}
	if (error)
		delete_timer(self);
	self->entered = !error;
	return error;
}

void watch_leave(struct watches *watches, struct vcpu *vcpu)
{
	struct vcpu_watches *self = watch_own_state(watches, vcpu);

	if (!self->entered)
		return;
	self->entered = false;
	delete_timer(self);
	if (self->active || self->stepping_now)
		watch_set_debug(vcpu, NULL, 0);
}
