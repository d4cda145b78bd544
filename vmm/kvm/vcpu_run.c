/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a vCPU: its signals, and the loop that enters the guest and handles exits. */
#include <assert.h>
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "vmm/kvm/exit_report.h"
#include "vmm/kvm/vcpu.h"

/* SDM vol. 3A table 6-1; DR6 with BS, vol. 3B 18.2.3. */
#define EXCEPTION_DB  1
#define EXCEPTION_BP  3
#define DR6_STEP_DONE 0xffff4ff0

/* The vCPU that this thread runs, for the signal handlers. */
static _Thread_local struct vcpu *current;

/*
 * Both handlers run on the vCPU's thread. immediate_exit makes the next KVM_RUN return at once, so
 * a signal between a check and the ioctl is not lost. Threads that run no vCPU ignore the signals.
 */
static void on_kick(int signal)
{
	if (current) {
		current->kicks++;
		current->run->immediate_exit = 1;
	}
}

/* A pending timer signal may represent several expirations (timer_getoverrun(2)). */
static void on_sample(int signal, siginfo_t *information, void *context)
{
	if (current) {
		current->sample_expirations +=
			1 + (information->si_code == SI_TIMER ? information->si_overrun : 0);
		current->sample_due = 1;
		current->run->immediate_exit = 1;
	}
}

void vcpu_install_signals(void)
{
	/* SA_RESTART is for the system calls of exit handlers; KVM_RUN returns nevertheless. */
	struct sigaction kick = { .sa_handler = on_kick, .sa_flags = SA_RESTART };
	struct sigaction sample = { .sa_sigaction = on_sample,
				    .sa_flags = SA_RESTART | SA_SIGINFO };

	sigaction(VCPU_KICK_SIGNAL, &kick, NULL);
	sigaction(VCPU_SAMPLE_SIGNAL, &sample, NULL);
}

/* All signals but the kicks and the synchronous faults. */
static void signal_mask(sigset_t *mask)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS };

	sigfillset(mask);
	sigdelset(mask, VCPU_KICK_SIGNAL);
	sigdelset(mask, VCPU_SAMPLE_SIGNAL);
	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
		sigdelset(mask, faults[i]);
}

static void enter_thread(struct vcpu *vcpu)
{
	assert(!current && !atomic_load(&vcpu->thread_id));
	pthread_mutex_lock(&vcpu->lock);
	current = vcpu;
	vcpu->thread = pthread_self();
	atomic_store(&vcpu->thread_id, (pid_t)syscall(SYS_gettid));
	pthread_mutex_unlock(&vcpu->lock);
}

static void leave_thread(struct vcpu *vcpu)
{
	pthread_mutex_lock(&vcpu->lock);
	current = NULL;
	atomic_store(&vcpu->thread_id, 0);
	pthread_mutex_unlock(&vcpu->lock);
}

/* immediate_exit stays set: it may be from a stop request, and costs the first KVM_RUN only. */
void vcpu_bind_thread(struct vcpu *vcpu)
{
	assert(!atomic_load(&vcpu->thread_id));
	vcpu->run->immediate_exit = 1;
	ioctl(vcpu->fd, KVM_RUN, 0);
}

void vcpu_request_end(struct vcpu *vcpu, enum vcpu_end end)
{
	assert(vcpu_on_thread(vcpu));
	vcpu->requested_end = end;
	vcpu->end_requested = true;
}

void vcpu_kick(struct vcpu *vcpu)
{
	pthread_mutex_lock(&vcpu->lock);
	if (atomic_load(&vcpu->thread_id))
		pthread_kill(vcpu->thread, VCPU_KICK_SIGNAL);
	else
		vcpu->run->immediate_exit = 1;
	pthread_mutex_unlock(&vcpu->lock);
}

void vcpu_stop(struct vcpu *vcpu)
{
	atomic_store(&vcpu->stop, true);
	vcpu_kick(vcpu);
}

struct vcpu *vcpu_current(void)
{
	return current;
}

bool vcpu_on_thread(const struct vcpu *vcpu)
{
	return current == vcpu || !atomic_load(&vcpu->thread_id);
}

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

/* KVM_RUN returned at STARTED. */
static void count_exit(struct vcpu *vcpu, uint32_t reason, uint64_t started)
{
	struct vcpu_exit_count *count = &vcpu->exit_counts[reason % VCPU_EXIT_REASONS];
	uint64_t ns = clock_ns(CLOCK_MONOTONIC) - started;

	count->count++;
	count->ns += ns;
	count->ns_max = ns > count->ns_max ? ns : count->ns_max;
}

static void handle_exit(struct vcpu *vcpu)
{
	uint32_t reason = vcpu->run->exit_reason;
	uint64_t started = vcpu->exit_counts ? clock_ns(CLOCK_MONOTONIC) : 0;

	dispatch_exit(vcpu);
	if (vcpu->exit_counts)
		count_exit(vcpu, reason, started);
}

static enum vcpu_end run_until_end(struct vcpu *vcpu)
{
	vcpu->end_requested = false;
	/* An earlier stop request has set immediate_exit: the first KVM_RUN returns for it. */
	while (!vcpu->end_requested) {
		int error = enter_guest(vcpu);

		if (!error) {
			handle_exit(vcpu);
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

	signal_mask(&mask);
	enter_thread(vcpu);
	pthread_sigmask(SIG_SETMASK, &mask, &before);
	end = run_until_end(vcpu);
	leave_thread(vcpu);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return end;
}
