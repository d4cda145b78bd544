/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vCPU thread's part of watches: loads the watches selected by the arbiter and the guest's own
 * breakpoints into the debug registers, analyses each #DB, and delivers the guest's share.
 *
 * An instruction with a breakpoint of ours is run with RFLAGS.RF, as a debugger in the guest would
 * do. That does not help if KVM's emulator runs it: then it is single-stepped without the
 * breakpoint, with interrupts blocked. If it faults, the guest's handler runs first, and our trap
 * comes when the instruction is retried. `stepping` stays set until then, so that the trap is not
 * attributed to the guest.
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
#include "vmm/debug/debug_instructions.h"
#include "vmm/debug/vcpu_watch.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vcpu_debug.h"

#define BIT(number)   (1ull << (number))
#define CR3_ADDRESS   (~0xfffull & ~BIT(63))
#define STEP_CONTROL  (KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_HW_BP | KVM_GUESTDBG_SINGLESTEP)
#define WATCH_CONTROL (KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_HW_BP)

static struct vcpu_watches *own_state(struct watches *watches, const struct vcpu *vcpu)
{
	assert(vcpu_on_thread(vcpu));
	return &watches->vcpus[vcpu->index];
}

/* An ioctl failed, and nothing is armed. Reported once per struct watches. */
static void report_failure(struct watches *watches)
{
	if (!atomic_flag_test_and_set(&watches->reported_failure))
		log_warning("watches may miss hits from now on: %s", error_message());
}

static int read_guest(struct vcpu_watches *self, struct vcpu *vcpu, struct kvm_debugregs *registers)
{
	int error = vcpu_get_debug_registers(vcpu, registers);

	if (error)
		return error;
	memcpy(self->guest.address, registers->db, sizeof(self->guest.address));
	self->guest.dr6 = registers->dr6;
	self->guest.dr7 = registers->dr7;
	return 0;
}

/* CONTROL 0: the processor gets the guest's own registers again. */
static int set_debug(struct vcpu *vcpu, const struct debug_plan *plan, uint32_t control)
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
		return error_set(-errno, "cannot create a timer for watches: %s", strerror(errno));
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

static void change_state(struct watches *watches, struct vcpu *vcpu, unsigned int number,
			 enum watch_state state)
{
	struct watch_counts *counts = &own_state(watches, vcpu)->counts[number];

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
	struct vcpu_watches *self = own_state(watches, vcpu);

	for (unsigned int i = 0; i < watches->count; i++)
		if (watches->list[i].known && covers(&watches->list[i], vcpu))
			change_state(watches, vcpu, i,
				     state_of(self, &watches->list[i], now, &self->counts[i]));
}

static void count_guest_lost(struct watches *watches, struct vcpu *vcpu, unsigned int count)
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
	count_guest_lost(watches, vcpu, (unsigned int)__builtin_popcount(more));
	if (!atomic_flag_test_and_set(&watches->reported_guest_lost))
		log_warning(
			"a breakpoint of the guest does not work for it, because a watch has its register");
}

/* Schedules again, and merges the result with the guest's registers as last read. */
static struct debug_plan make_plan(struct watches *watches, struct vcpu *vcpu)
{
	struct vcpu_watches *self = own_state(watches, vcpu);
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

/* Loads the current plan, with EXTRA in KVM's control word. */
static int arm(struct watches *watches, struct vcpu *vcpu, uint32_t extra)
{
	struct vcpu_watches *self = own_state(watches, vcpu);
	int error;

	self->armed = make_plan(watches, vcpu);
	self->stepping_now = false;
	error = set_debug(vcpu, &self->armed, (self->active ? WATCH_CONTROL : 0) | extra);
	return error ? error : set_timer(self, self->schedule.next);
}

/* Reads the guest's registers first. */
static void update(struct watches *watches, struct vcpu *vcpu)
{
	struct kvm_debugregs registers;

	if (read_guest(own_state(watches, vcpu), vcpu, &registers) || arm(watches, vcpu, 0))
		report_failure(watches);
}

static void step(struct watches *watches, struct vcpu *vcpu, const struct debug_exit *exit)
{
	struct vcpu_watches *self = own_state(watches, vcpu);
	struct debug_plan plan = debug_plan_for_step(&self->armed, exit->rip, self->guest.dr7);
	uint32_t control = self->blocks_interrupts ? KVM_GUESTDBG_BLOCKIRQ : 0;

	if (!self->stepping)
		self->guest_steps = exit->rflags & RFLAGS_TF;
	/* The guest's own TF does the step and must stay set: KVM would clear it together with
	 * its own. */
	control |= self->guest_steps ? WATCH_CONTROL : STEP_CONTROL;
	self->stepping = self->stepping_now = true;
	self->step_rip = exit->rip;
	self->armed = plan;
	if (set_debug(vcpu, &plan, control))
		report_failure(watches);
}

/* The register with NUMBER in an instruction (SDM vol. 2A 2.1.5). */
static uint64_t *general_register(struct kvm_regs *registers, unsigned int number)
{
	__u64 *const first[] = {
		&registers->rax, &registers->rcx, &registers->rdx, &registers->rbx,
		&registers->rsp, &registers->rbp, &registers->rsi, &registers->rdi
	};

	return (uint64_t *)(number < 8 ? first[number] : &registers->r8 + (number - 8));
}

/* True if DR7.GD alone stopped the guest, and its instruction has no other effect. */
static bool is_plain_move(const struct vcpu_watches *self, struct vcpu *vcpu,
			  const struct debug_exit *exit)
{
	return exit->dr6 & DR6_BD && !(exit->dr6 & dr7_slots(self->armed.dr7)) && !self->stepping &&
	       !(exit->rflags & RFLAGS_TF) && vcpu_special_registers(vcpu)->cs.l &&
	       !vcpu->run->s.regs.events.interrupt.shadow;
}

static int set_guest_registers(struct vcpu_watches *self, struct vcpu *vcpu,
			       struct kvm_debugregs *registers)
{
	memcpy(registers->db, self->guest.address, sizeof(self->guest.address));
	registers->dr6 = self->guest.dr6;
	registers->dr7 = self->guest.dr7;
	return vcpu_set_debug_registers(vcpu, registers);
}

/*
 * A step would put our RFLAGS.TF on the guest's stack with the #UD. Its handler continues after the
 * instruction, and if that one is emulated, KVM would deliver the trap to the guest. A fault sets
 * RFLAGS.RF in the pushed flags (SDM vol. 3B 18.3.1.1).
 */
static void raise_undefined(struct watches *watches, struct vcpu *vcpu)
{
	struct kvm_regs registers = *vcpu_registers(vcpu);

	registers.rflags |= RFLAGS_RF;
	if (vcpu_set_registers(vcpu, &registers) || arm(watches, vcpu, 0) ||
	    vcpu_inject_undefined(vcpu))
		report_failure(watches);
}

/* Emulates the guest's MOV stopped by DR7.GD, and schedules again. False: it has to be stepped. */
static bool emulate_move(struct watches *watches, struct vcpu *vcpu, const struct debug_exit *exit)
{
	struct vcpu_watches *self = own_state(watches, vcpu);
	struct kvm_regs general = *vcpu_registers(vcpu);
	uint8_t code[DEBUG_MOVE_SIZE_MAX];
	struct kvm_debugregs registers;
	struct debug_move move;
	uint64_t *value;

	if (!is_plain_move(self, vcpu, exit) ||
	    !debug_move_decode(code, vcpu_read_virtual(vcpu, exit->rip, code, sizeof(code)),
			       &move) ||
	    read_guest(self, vcpu, &registers))
		return false;
	if (debug_move_is_undefined(&move, vcpu_special_registers(vcpu)->cr4)) {
		raise_undefined(watches, vcpu);
		return true;
	}
	value = general_register(&general, move.general);
	if (!move.to_debug)
		*value = debug_move_read(&move, &self->guest);
	else if (!debug_move_write(&move, *value, &self->guest) ||
		 set_guest_registers(self, vcpu, &registers))
		return false;
	general.rip += move.length;
	general.rflags &= ~RFLAGS_RF;
	if (vcpu_set_registers(vcpu, &general) || arm(watches, vcpu, 0))
		report_failure(watches);
	return true;
}

/* The instruction had faulted, so our RFLAGS.TF went through the guest's stack: clear it. */
static void finish_late_step(struct vcpu_watches *self, struct vcpu *vcpu)
{
	struct kvm_regs registers = *vcpu_registers(vcpu);

	if (self->stepping_now || self->guest_steps || !(registers.rflags & RFLAGS_TF))
		return;
	registers.rflags &= ~RFLAGS_TF;
	vcpu_set_registers(vcpu, &registers);
}

/* True if the host or the guest has an execute breakpoint at ADDRESS. */
static bool is_breakpoint(const struct debug_plan *plan, uint64_t address)
{
	uint8_t slots = dr7_slots(plan->dr7);

	for (unsigned int slot = 0; slot < DEBUG_SLOTS; slot++)
		if (slots & BIT(slot) && plan->address[slot] == address &&
		    dr7_breakpoint(plan->dr7, slot, address).kind == BREAKPOINT_EXECUTE)
			return true;
	return false;
}

/* True if RFLAGS.RF would still be set at the next breakpoint, and suppress it. */
static bool keeps_resume_flag(const struct vcpu_watches *self, struct vcpu *vcpu,
			      const struct debug_exit *exit)
{
	uint8_t code[DEBUG_SKIPPED_SIZE_MAX];
	size_t size = vcpu_read_virtual(vcpu, exit->rip, code, sizeof(code));
	size_t length = debug_skipped_length(code, size, vcpu_special_registers(vcpu)->cs.l);

	return length && is_breakpoint(&self->armed, exit->rip + length);
}

/*
 * RFLAGS.RF makes the processor run the instruction despite its breakpoints (SDM vol. 3B 18.3.1.1).
 * A step would leave RFLAGS.TF in the frame of a fault, and in the flags that PUSHF or SYSCALL
 * save: the guest would get a trap that it has not requested, on any vCPU. False if RF does not
 * help.
 */
static bool resume(struct vcpu_watches *self, struct vcpu *vcpu, const struct debug_exit *exit,
		   const struct debug_verdict *verdict)
{
	struct kvm_regs registers = *vcpu_registers(vcpu);

	if (exit->rflags & RFLAGS_RF && !(exit->dr6 & DR6_BD))
		self->emulated_rip = exit->rip;
	if (!verdict->resume || exit->rip == self->emulated_rip ||
	    keeps_resume_flag(self, vcpu, exit))
		return false;
	registers.rflags |= RFLAGS_RF;
	return !vcpu_set_registers(vcpu, &registers);
}

/* Delivers the guest's own #DB. KVM_SET_REGS would cancel it, so no registers may be set
 * afterwards. */
static void deliver_to_guest(struct watches *watches, struct vcpu *vcpu,
			     const struct debug_verdict *verdict)
{
	struct vcpu_watches *self = own_state(watches, vcpu);
	struct kvm_debugregs registers;
	int error = read_guest(self, vcpu, &registers);

	if (!error) {
		self->guest = debug_after_guest_exception(&self->guest, verdict);
		error = set_guest_registers(self, vcpu, &registers);
	}
	if (!error)
		error = arm(watches, vcpu, KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_INJECT_DB);
	if (!error)
		return;
	if (error == -EBUSY)
		error_set(error,
			  "cannot deliver the guest's own #DB: another exception is pending");
	count_guest_lost(watches, vcpu, 1);
	report_failure(watches);
}

static bool counts_here(const struct watches *watches, struct vcpu *vcpu, unsigned int number)
{
	const struct watch_request *request = &watches->list[number].request;
	uint64_t cr3 = vcpu_special_registers(vcpu)->cr3;

	if (vcpu_runs_nested(vcpu)) /* the address is a nested guest's */
		return false;
	if (request->cr3 && (request->cr3 ^ cr3) & CR3_ADDRESS)
		return false;
	return !watches->options.matches ||
	       watches->options.matches(watches->options.context, vcpu, number);
}

/* Counts a hit. True if it exceeds the limit. */
static bool is_storm(const struct watches *watches, unsigned int number,
		     struct watch_counts *counts, uint64_t now)
{
	unsigned int own = watches->list[number].request.storm_limit;

	if (now - counts->storm_began >= WATCH_STORM_PERIOD) {
		counts->storm_began = now;
		counts->storm_hits = 0;
	}
	return ++counts->storm_hits > (own ? own : watches->options.storm_limit);
}

/* True if its address was removed or changed after this vCPU's registers were loaded. */
static bool is_stale(struct watches *watches, struct vcpu *vcpu, unsigned int slot)
{
	const struct vcpu_watches *self = own_state(watches, vcpu);
	const struct watch *watch = &watches->list[self->watches[slot]];
	bool stale;

	if (self->generation == arbiter_generation(watches->arbiter))
		return false;
	pthread_mutex_lock(&watches->lock);
	stale = !watch->armed || watch->addresses[vcpu->index] != self->armed.address[slot];
	pthread_mutex_unlock(&watches->lock);
	return stale;
}

static void handle_hit(struct watches *watches, struct vcpu *vcpu, unsigned int slot)
{
	struct vcpu_watches *self = own_state(watches, vcpu);
	unsigned int number = (unsigned int)self->watches[slot];
	/* Only state and addresses of a watch ever change. */
	const struct watch_request *request = &watches->list[number].request;
	struct watch_counts *counts = &self->counts[number];
	struct watch_hit hit = { .watch = number,
				 .kind = request->kind,
				 .address = self->armed.address[slot],
				 .length = request->length,
				 .period = request->period };

	if (is_stale(watches, vcpu, slot) || !counts_here(watches, vcpu, number))
		return;
	local_add(&counts->hits, 1);
	if (++counts->unreported >= request->period) {
		counts->unreported = 0;
		hit.hits = counts->hits;
		watches->options.hit(watches->options.context, vcpu, &hit);
	}
}

/* After the hit was reported: pauses the watch if there were too many. True if it does. The
 * watch may have been removed meanwhile, and its holder's number reused. */
static bool hold_back(struct watches *watches, struct vcpu *vcpu, unsigned int slot, uint64_t now)
{
	struct vcpu_watches *self = own_state(watches, vcpu);
	unsigned int number = (unsigned int)self->watches[slot];
	struct watch_counts *counts = &self->counts[number];

	if (!is_storm(watches, number, counts, now))
		return false;
	pthread_mutex_lock(&watches->lock);
	if (watches->list[number].holder >= 0) {
		arbiter_pause(watches->arbiter, vcpu->index, watches->list[number].holder, now,
			      counts->storm_began + WATCH_STORM_PERIOD);
		change_state(watches, vcpu, number, WATCH_THROTTLED);
	}
	pthread_mutex_unlock(&watches->lock);
	return true;
}

static bool handle_hits(struct watches *watches, struct vcpu *vcpu, uint8_t slots)
{
	uint64_t now = slots ? watch_now() : 0;
	bool changed = false;

	for (unsigned int slot = 0; slot < DEBUG_SLOTS; slot++) {
		if (!(slots & BIT(slot)))
			continue;
		handle_hit(watches, vcpu, slot);
		changed |= hold_back(watches, vcpu, slot, now);
	}
	return changed;
}

static bool is_due(const struct watches *watches, const struct vcpu_watches *self)
{
	return self->generation != arbiter_generation(watches->arbiter) ||
	       (self->schedule.next != ARBITER_NEVER && watch_now() >= self->schedule.next);
}

void watch_debug(struct watches *watches, struct vcpu *vcpu)
{
	const struct kvm_debug_exit_arch *information = &vcpu->run->debug.arch;
	struct vcpu_watches *self = own_state(watches, vcpu);
	struct debug_exit exit = { .dr6 = information->dr6,
				   .rip = information->pc,
				   .rflags = vcpu_registers(vcpu)->rflags,
				   .guest_dr7 = self->guest.dr7,
				   .stepping = self->stepping,
				   .guest_steps = self->guest_steps };
	struct debug_verdict verdict = debug_classify(&self->armed, &exit);
	bool changed = handle_hits(watches, vcpu, verdict.host_hits);

	if (verdict.step_done) {
		finish_late_step(self, vcpu);
		self->stepping = false;
	}
	if (verdict.guest) {
		deliver_to_guest(watches, vcpu, &verdict);
	} else if (verdict.step && !resume(self, vcpu, &exit, &verdict)) {
		if (!emulate_move(watches, vcpu, &exit))
			step(watches, vcpu, &exit);
	} else if (verdict.step_done || changed || is_due(watches, self)) {
		update(watches, vcpu);
	}
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

	return read_guest(self, vcpu, &registers) ||
	       memcmp(&before, &self->guest, sizeof(before)) != 0;
}

/* Notices changes by the guest where DR7.GD does not work. */
void watch_kicked(struct watches *watches, struct vcpu *vcpu)
{
	struct vcpu_watches *self = own_state(watches, vcpu);

	if (!self->entered || is_in_step(self, vcpu))
		return;
	if (self->stepping_now || is_due(watches, self) ||
	    (self->active && guest_changed(self, vcpu)))
		update(watches, vcpu);
}

static void delete_timer(struct vcpu_watches *self)
{
	if (self->has_timer)
		timer_delete(self->timer);
	self->has_timer = false;
}

int watch_enter(struct watches *watches, struct vcpu *vcpu)
{
	struct vcpu_watches *self = own_state(watches, vcpu);
	struct kvm_debugregs registers;
	int error = 0;

	self->stepping = self->stepping_now = false;
	self->blocks_interrupts = vm_can_block_interrupts(vcpu->vm);
	self->schedule.next = ARBITER_NEVER;
	if (watches->count) {
		error = read_guest(self, vcpu, &registers);
		if (!error)
			error = arm(watches, vcpu, 0);
	}
	if (error)
		delete_timer(self);
	self->entered = !error;
	return error;
}

void watch_leave(struct watches *watches, struct vcpu *vcpu)
{
	struct vcpu_watches *self = own_state(watches, vcpu);

	if (!self->entered)
		return;
	self->entered = false;
	delete_timer(self);
	if (self->active || self->stepping_now)
		set_debug(vcpu, NULL, 0);
}
