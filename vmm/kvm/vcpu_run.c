/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of a vCPU's thread: enter the guest, handle exits and kicks. */
#include <errno.h>
#include <sys/ioctl.h>

#include "vmm/kvm/exit_report.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vcpu_thread.h"

/* SDM vol. 3A table 6-1; DR6 with BS, vol. 3B 18.2.3. */
#define EXCEPTION_DB  1
#define EXCEPTION_BP  3
#define DR6_STEP_DONE 0xffff4ff0

/* One KVM_EXIT_IO may carry several accesses of a string instruction. */
static void dispatch_io(struct vcpu *vcpu)
{
	struct kvm_run *run = vcpu->run;
	uint8_t *data = (uint8_t *)run + run->io.data_offset;

	for (uint32_t i = 0; i < run->io.count && !vcpu->end_requested; i++, data += run->io.size)
		vcpu->handlers->io(vcpu->handlers->context, vcpu, run->io.port,
				   run->io.direction == KVM_EXIT_IO_OUT, data, run->io.size);
}

static void dispatch_system_event(struct vcpu *vcpu)
{
	switch (vcpu->run->system_event.type) {
	case KVM_SYSTEM_EVENT_SHUTDOWN:
		vcpu_request_end(vcpu, VCPU_END_POWER_OFF);
		break;
	case KVM_SYSTEM_EVENT_RESET:
		vcpu_request_end(vcpu, VCPU_END_RESET);
		break;
	default:
		vcpu_request_end(vcpu, exit_report(vcpu));
	}
}

/* The debug exit that KVM would report if the processor had executed the stepped instruction. */
static void report_step_done(struct vcpu *vcpu)
{
	vcpu->run->debug.arch = (struct kvm_debug_exit_arch){
		.exception = EXCEPTION_DB,
		.pc = vcpu_special_registers(vcpu)->cs.base + vcpu_registers(vcpu)->rip,
		.dr6 = DR6_STEP_DONE,
	};
}

/* True if the PMU has handled the exit, so that the debug handler does not get it. */
static bool dispatch_breakpoint(struct vcpu *vcpu)
{
	const struct vcpu_pmu_operations *pmu = vcpu->handlers->pmu;

	if (vcpu->run->debug.arch.exception != EXCEPTION_BP || !pmu || !pmu->breakpoint)
		return false;
	if (!pmu->breakpoint(vcpu) || !(vcpu->debug.control & KVM_GUESTDBG_SINGLESTEP))
		return true;
	report_step_done(vcpu);
	return false;
}

static void dispatch_debug(struct vcpu *vcpu)
{
	if (dispatch_breakpoint(vcpu))
		return;
	if (vcpu->handlers->debug)
		vcpu->handlers->debug(vcpu->handlers->context, vcpu);
	else
		vcpu_request_end(vcpu, exit_report(vcpu));
}

static void dispatch_read_msr(struct vcpu *vcpu)
{
	const struct vcpu_pmu_operations *pmu = vcpu->handlers->pmu;
	struct kvm_run *run = vcpu->run;
	uint64_t value = 0;

	run->msr.error = !pmu || !pmu->read_msr || !pmu->read_msr(vcpu, run->msr.index, &value);
	run->msr.data = value;
}

static void dispatch_write_msr(struct vcpu *vcpu)
{
	const struct vcpu_pmu_operations *pmu = vcpu->handlers->pmu;
	struct kvm_run *run = vcpu->run;

	run->msr.error =
		!pmu || !pmu->write_msr || !pmu->write_msr(vcpu, run->msr.index, run->msr.data);
}

/* Handles one exit. KVM completes the io, mmio or MSR access when KVM_RUN is entered next. */
static void dispatch_exit(struct vcpu *vcpu)
{
	struct kvm_run *run = vcpu->run;

	vcpu->exits++;
	switch (run->exit_reason) {
	case KVM_EXIT_IO:
		dispatch_io(vcpu);
		break;
	case KVM_EXIT_MMIO:
		vcpu->handlers->mmio(vcpu->handlers->context, vcpu, run->mmio.phys_addr,
				     run->mmio.is_write, run->mmio.data, run->mmio.len);
		break;
	case KVM_EXIT_X86_RDMSR:
		dispatch_read_msr(vcpu);
		break;
	case KVM_EXIT_X86_WRMSR:
		dispatch_write_msr(vcpu);
		break;
	case KVM_EXIT_INTR:
	case KVM_EXIT_IRQ_WINDOW_OPEN:
		break;
	case KVM_EXIT_SYSTEM_EVENT:
		dispatch_system_event(vcpu);
		break;
	case KVM_EXIT_DEBUG:
		dispatch_debug(vcpu);
		break;
	default:
		vcpu_request_end(vcpu, exit_report(vcpu));
	}
}

/*
 * KVM_RUN returned for a kick. A pending io or mmio access is complete: KVM_RUN completes it before
 * it checks immediate_exit, so the registers are those between two instructions. immediate_exit is
 * cleared before the reasons are read: a later signal sets it again.
 */
static void handle_kick(struct vcpu *vcpu)
{
	vcpu->run->immediate_exit = 0;
	if (vcpu->sample_due) {
		vcpu->sample_due = 0;
		if (vcpu->handlers->sample)
			vcpu->handlers->sample(vcpu->handlers->context, vcpu);
	}
	if (vcpu->handlers->kicked)
		vcpu->handlers->kicked(vcpu->handlers->context, vcpu);
	if (atomic_load(&vcpu->stop))
		vcpu_request_end(vcpu, VCPU_END_STOPPED);
}

/* KVM_RUN between the PMU's enter and leave. Returns its errno, or 0. */
static int enter_guest(struct vcpu *vcpu)
{
	const struct vcpu_pmu_operations *pmu = vcpu->handlers->pmu;
	int error;

	if (pmu && pmu->enter)
		pmu->enter(vcpu);
	error = ioctl(vcpu->fd, KVM_RUN, 0) ? errno : 0;
	if (pmu && pmu->leave)
		pmu->leave(vcpu);
	return error;
}

static enum vcpu_end run_until_end(struct vcpu *vcpu)
{
	vcpu->end_requested = false;
	/* An earlier stop request has set immediate_exit: the first KVM_RUN returns for it. */
	while (!vcpu->end_requested) {
		int error = enter_guest(vcpu);

		if (!error) {
			dispatch_exit(vcpu);
		} else if (error == EINTR) {
			handle_kick(vcpu);
		} else if (error != EAGAIN) { /* EAGAIN: a waiting vCPU got its INIT or SIPI */
			exit_report_run_failed(vcpu, error);
			return VCPU_END_HOST_ERROR;
		}
	}
	return vcpu->requested_end;
}

enum vcpu_end vcpu_run(struct vcpu *vcpu)
{
	sigset_t mask, before;
	enum vcpu_end end;

	vcpu_signal_mask(&mask);
	vcpu_enter_thread(vcpu);
	pthread_sigmask(SIG_SETMASK, &mask, &before);
	end = run_until_end(vcpu);
	vcpu_leave_thread(vcpu);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return end;
}
