/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Debug exits of a vCPU with watches: analyses each #DB, handles hits, delivers the guest's share,
 * and completes the instruction.
 *
 * An instruction with a breakpoint of ours is run with RFLAGS.RF, as a debugger in the guest would
 * do. That does not help if KVM's emulator runs it: then it is single-stepped without the
 * breakpoint, with interrupts blocked. If it faults, the guest's handler runs first, and our trap
 * comes when the instruction is retried. `stepping` stays set until then, so that the trap is not
 * attributed to the guest.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "shared/error.h"
#include "shared/local_atomic.h"
#include "vmm/debug/debug_instructions.h"
#include "vmm/debug/vcpu_watch.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vcpu_debug.h"

#define CR3_ADDRESS  (~0xfffull & ~BIT(63))
#define STEP_CONTROL (KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_HW_BP | KVM_GUESTDBG_SINGLESTEP)

static void step(struct watches *watches, struct vcpu *vcpu, const struct debug_exit *exit)
{
	struct vcpu_watches *self = watch_own_state(watches, vcpu);
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
	if (watch_set_debug(vcpu, &plan, control))
		watch_report_failure(watches);
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
	if (vcpu_set_registers(vcpu, &registers) || watch_load(watches, vcpu, 0) ||
	    vcpu_inject_undefined(vcpu))
		watch_report_failure(watches);
}

/* Emulates the guest's MOV stopped by DR7.GD, and schedules again. False: it has to be stepped. */
static bool emulate_move(struct watches *watches, struct vcpu *vcpu, const struct debug_exit *exit)
{
	struct vcpu_watches *self = watch_own_state(watches, vcpu);
	struct kvm_regs general = *vcpu_registers(vcpu);
	uint8_t code[DEBUG_MOVE_SIZE_MAX];
	struct kvm_debugregs registers;
	struct debug_move move;
	uint64_t *value;

	if (!is_plain_move(self, vcpu, exit) ||
	    !debug_move_decode(code, vcpu_read_virtual(vcpu, exit->rip, code, sizeof(code)),
			       &move) ||
	    watch_read_guest(self, vcpu, &registers))
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
	if (vcpu_set_registers(vcpu, &general) || watch_load(watches, vcpu, 0))
		watch_report_failure(watches);
	return true;
}

/* Clears our RFLAGS.TF, which was on the guest's stack because the instruction had faulted. */
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
	struct vcpu_watches *self = watch_own_state(watches, vcpu);
	struct kvm_debugregs registers;
	int error = watch_read_guest(self, vcpu, &registers);

	if (!error) {
		self->guest = debug_after_guest_exception(&self->guest, verdict);
		error = set_guest_registers(self, vcpu, &registers);
	}
	if (!error)
		error = watch_load(watches, vcpu, KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_INJECT_DB);
	if (!error)
		return;
	if (error == -EBUSY)
		error_set(error,
			  "cannot deliver the guest's own #DB: another exception is pending");
	watch_count_guest_lost(watches, vcpu, 1);
	watch_report_failure(watches);
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
	const struct vcpu_watches *self = watch_own_state(watches, vcpu);
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
	struct vcpu_watches *self = watch_own_state(watches, vcpu);
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
	struct vcpu_watches *self = watch_own_state(watches, vcpu);
	unsigned int number = (unsigned int)self->watches[slot];
	struct watch_counts *counts = &self->counts[number];

	if (!is_storm(watches, number, counts, now))
		return false;
	pthread_mutex_lock(&watches->lock);
	if (watches->list[number].holder >= 0) {
		arbiter_pause(watches->arbiter, vcpu->index, watches->list[number].holder, now,
			      counts->storm_began + WATCH_STORM_PERIOD);
		watch_change_state(watches, vcpu, number, WATCH_THROTTLED);
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

void watch_debug(struct watches *watches, struct vcpu *vcpu)
{
	const struct kvm_debug_exit_arch *information = &vcpu->run->debug.arch;
	struct vcpu_watches *self = watch_own_state(watches, vcpu);
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
	} else if (verdict.step_done || changed || watch_is_due(watches, self)) {
		watch_reload(watches, vcpu);
	}
}
