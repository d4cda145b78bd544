/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/vcpu.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/kvm/cpuid.h"
#include "vmm/kvm/exit_report.h"
#include "vmm/kvm/msr.h"
#include "vmm/kvm/vm.h"

#define SYNC_REGS (KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS | KVM_SYNC_X86_EVENTS)

/* Local vector table of a LAPIC in struct kvm_lapic_state (SDM vol. 3A 11.5.1). */
#define LAPIC_LVT_LINT0       0x350
#define LAPIC_LVT_LINT1       0x360
#define LAPIC_DELIVERY_MASK   0x700u
#define LAPIC_MASKED          0x10000u
#define LAPIC_DELIVERY_NMI    0x400u
#define LAPIC_DELIVERY_EXTINT 0x700u

/* The vCPU that this thread runs: what the signal handlers work on. */
static _Thread_local struct vcpu *current;

static int vcpu_failed(const struct vcpu *vcpu, const char *what)
{
	int error = errno;

	return error_set(-error, "vCPU %u: this host's KVM refused %s: %s; see kvmscope doctor", vcpu->index,
			 what, strerror(error));
}

/*
 * Both run on the vCPU's thread, wherever it is. immediate_exit makes the
 * next KVM_RUN return at once, so a signal between the check and the ioctl
 * is not lost. A thread that runs no vCPU (any more) ignores them.
 */
static void on_kick(int signal)
{
	if (current)
		current->run->immediate_exit = 1;
}

/* A timer's signal comes once for all expirations while it was pending (timer_getoverrun(2)). */
static void on_sample(int signal, siginfo_t *information, void *context)
{
	if (current) {
		current->sample_expirations +=
			1 + (information->si_code == SI_TIMER ? information->si_overrun : 0);
		current->sample_due = 1;
		current->run->immediate_exit = 1;
	}
}

static void install_signal_handlers(void)
{
	/* SA_RESTART: KVM_RUN returns all the same, and what handlers of exits do is not disturbed. */
	struct sigaction kick = { .sa_handler = on_kick, .sa_flags = SA_RESTART };
	struct sigaction sample = { .sa_sigaction = on_sample, .sa_flags = SA_RESTART | SA_SIGINFO };

	sigaction(VCPU_KICK_SIGNAL, &kick, NULL);
	sigaction(VCPU_SAMPLE_SIGNAL, &sample, NULL);
}

static int set_cpuid(const struct vcpu *vcpu, const struct vm *vm)
{
	struct cpuid_options options = {
		.cpus = vm->cpus,
		.apic_id = vcpu->index,
		.tsc_deadline = vm_capability(vm, KVM_CAP_TSC_DEADLINE_TIMER),
	};
	struct cpuid_table *table = malloc(sizeof(*table));
	int error;

	if (!table)
		return error_set(-ENOMEM, "no memory for the CPUID table");
	error = cpuid_supported(vm->kvm_fd, table);
	if (!error) {
		cpuid_filter(table, &options);
		if (ioctl(vcpu->fd, KVM_SET_CPUID2, &table->header))
			error = vcpu_failed(vcpu, "the CPUID table (KVM_SET_CPUID2)");
	}
	free(table);
	return error;
}

static void set_lvt(struct kvm_lapic_state *lapic, size_t offset, uint32_t delivery)
{
	uint32_t value;

	memcpy(&value, lapic->regs + offset, sizeof(value));
	value = (value & ~(LAPIC_DELIVERY_MASK | LAPIC_MASKED)) | delivery;
	memcpy(lapic->regs + offset, &value, sizeof(value));
}

/* As firmware leaves them: the PIC on LINT0, NMI on LINT1 (MultiProcessor Specification 1.4, 3.6.2). */
static int set_lapic_lines(const struct vcpu *vcpu)
{
	struct kvm_lapic_state lapic;

	if (ioctl(vcpu->fd, KVM_GET_LAPIC, &lapic))
		return vcpu_failed(vcpu, "the LAPIC's state (KVM_GET_LAPIC)");
	set_lvt(&lapic, LAPIC_LVT_LINT0, LAPIC_DELIVERY_EXTINT);
	set_lvt(&lapic, LAPIC_LVT_LINT1, LAPIC_DELIVERY_NMI);
	if (ioctl(vcpu->fd, KVM_SET_LAPIC, &lapic))
		return vcpu_failed(vcpu, "the LAPIC's state (KVM_SET_LAPIC)");
	return 0;
}

static int map_run(struct vcpu *vcpu, const struct vm *vm)
{
	int size = ioctl(vm->kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
	void *run;

	if (size < (int)sizeof(struct kvm_run))
		return vcpu_failed(vcpu, "its run structure (KVM_GET_VCPU_MMAP_SIZE)");
	run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu->fd, 0);
	if (run == MAP_FAILED)
		return vcpu_failed(vcpu, "its run structure (mmap)");
	vcpu->run = run;
	vcpu->run_size = (size_t)size;
	return 0;
}

/* Registers come with each exit from here on; the first ones are read, since no exit was yet. */
static int start_sync_regs(struct vcpu *vcpu, const struct vm *vm)
{
	if ((vm_capability(vm, KVM_CAP_SYNC_REGS) & SYNC_REGS) != SYNC_REGS)
		return error_set(-ENOTSUP,
				 "this host's KVM has no KVM_CAP_SYNC_REGS, which samples are read by; "
				 "it came with Linux 4.17");
	if (ioctl(vcpu->fd, KVM_GET_REGS, &vcpu->run->s.regs.regs) ||
	    ioctl(vcpu->fd, KVM_GET_SREGS, &vcpu->run->s.regs.sregs))
		return vcpu_failed(vcpu, "its registers (KVM_GET_REGS)");
	vcpu->run->kvm_valid_regs = SYNC_REGS;
	return 0;
}

static int set_up(struct vcpu *vcpu, const struct vm *vm)
{
	int error;

	vcpu->fd = ioctl(vm->vm_fd, KVM_CREATE_VCPU, (unsigned long)vcpu->index);
	if (vcpu->fd < 0)
		return vcpu_failed(vcpu, "a vCPU (KVM_CREATE_VCPU)");
	error = map_run(vcpu, vm);
	if (!error)
		error = set_cpuid(vcpu, vm);
	if (!error)
		error = set_lapic_lines(vcpu);
	if (!error) {
		msr_reset(vcpu->fd);
		error = start_sync_regs(vcpu, vm);
	}
	return error;
}

int vcpu_create(struct vm *vm, unsigned int index, const struct vcpu_handlers *handlers)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct vcpu *vcpu;
	int error;

	assert(index == vm->vcpu_count && index < vm->cpus && vm->cpus <= VM_CPUS_MAX);
	vcpu = calloc(1, sizeof(*vcpu));
	if (!vcpu)
		return error_set(-ENOMEM, "no memory for vCPU %u", index);
	vcpu->vm = vm;
	vcpu->index = index;
	vcpu->fd = -1;
	vcpu->handlers = handlers;
	pthread_mutex_init(&vcpu->lock, NULL);
	pthread_once(&once, install_signal_handlers);
	error = set_up(vcpu, vm);
	if (error) {
		vcpu_destroy(vcpu);
		return error;
	}
	vm->vcpus[vm->vcpu_count++] = vcpu;
	return 0;
}

void vcpu_destroy(struct vcpu *vcpu)
{
	assert(!atomic_load(&vcpu->thread_id));
	if (vcpu->run)
		munmap(vcpu->run, vcpu->run_size);
	if (vcpu->fd >= 0)
		close(vcpu->fd);
	pthread_mutex_destroy(&vcpu->lock);
	free(vcpu);
}

/* One KVM_EXIT_IO may carry several accesses of a string instruction. */
static void dispatch_io(struct vcpu *vcpu)
{
	struct kvm_run *run = vcpu->run;
	uint8_t *data = (uint8_t *)run + run->io.data_offset;

	for (uint32_t i = 0; i < run->io.count && !vcpu->end_asked; i++, data += run->io.size)
		vcpu->handlers->io(vcpu->handlers->context, vcpu, run->io.port,
				   run->io.direction == KVM_EXIT_IO_OUT, data, run->io.size);
}

static void dispatch_system_event(struct vcpu *vcpu)
{
	switch (vcpu->run->system_event.type) {
	case KVM_SYSTEM_EVENT_SHUTDOWN:
		vcpu_ask_end(vcpu, VCPU_END_POWER_OFF);
		break;
	case KVM_SYSTEM_EVENT_RESET:
		vcpu_ask_end(vcpu, VCPU_END_RESET);
		break;
	default:
		exit_report_unknown(vcpu);
		vcpu_ask_end(vcpu, VCPU_END_INTERNAL_ERROR);
	}
}

/* What the guest did that KVM leaves to us. The access of io and mmio completes when KVM_RUN is next entered.
 */
static void dispatch_exit(struct vcpu *vcpu)
{
	struct kvm_run *run = vcpu->run;

	vcpu->exits++;
	switch (run->exit_reason) {
	case KVM_EXIT_IO:
		dispatch_io(vcpu);
		break;
	case KVM_EXIT_MMIO:
		vcpu->handlers->mmio(vcpu->handlers->context, vcpu, run->mmio.phys_addr, run->mmio.is_write,
				     run->mmio.data, run->mmio.len);
		break;
	case KVM_EXIT_INTR:
	case KVM_EXIT_IRQ_WINDOW_OPEN:
		break;
	case KVM_EXIT_SYSTEM_EVENT:
		dispatch_system_event(vcpu);
		break;
	case KVM_EXIT_SHUTDOWN:
		exit_report_shutdown(vcpu);
		vcpu_ask_end(vcpu, VCPU_END_SHUTDOWN);
		break;
	case KVM_EXIT_INTERNAL_ERROR:
		exit_report_internal_error(vcpu);
		vcpu_ask_end(vcpu, VCPU_END_INTERNAL_ERROR);
		break;
	case KVM_EXIT_FAIL_ENTRY:
		exit_report_fail_entry(vcpu);
		vcpu_ask_end(vcpu, VCPU_END_INTERNAL_ERROR);
		break;
	default:
		exit_report_unknown(vcpu);
		vcpu_ask_end(vcpu, VCPU_END_INTERNAL_ERROR);
	}
}

/*
 * KVM_RUN was left for a kick. A pending io or mmio access is complete here:
 * KVM_RUN completes it before it looks at immediate_exit, so the registers
 * are those between two instructions. immediate_exit is cleared before the
 * reasons are looked at: a signal that comes later sets it again.
 */
static void take_kick(struct vcpu *vcpu)
{
	vcpu->run->immediate_exit = 0;
	if (vcpu->sample_due) {
		vcpu->sample_due = 0;
		if (vcpu->handlers->sample)
			vcpu->handlers->sample(vcpu->handlers->context, vcpu);
	}
	if (atomic_load(&vcpu->stop))
		vcpu_ask_end(vcpu, VCPU_END_STOPPED);
}

static enum vcpu_end run_until_end(struct vcpu *vcpu)
{
	vcpu->end_asked = false;
	/* A stop from before the thread was here has set immediate_exit: the first KVM_RUN returns for it. */
	while (!vcpu->end_asked) {
		if (!ioctl(vcpu->fd, KVM_RUN, 0)) {
			dispatch_exit(vcpu);
		} else if (errno == EINTR) {
			take_kick(vcpu);
		} else if (errno != EAGAIN) { /* EAGAIN: a waiting vCPU got its INIT or SIPI */
			exit_report_run_failed(vcpu, errno);
			return VCPU_END_HOST_ERROR;
		}
	}
	return vcpu->asked_end;
}

/* Only the kicks, and the faults that a thread causes by itself. */
static void vcpu_signal_mask(sigset_t *mask)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };

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

enum vcpu_end vcpu_run(struct vcpu *vcpu)
{
	sigset_t mask, before;
	enum vcpu_end end;

	vcpu_signal_mask(&mask);
	enter_thread(vcpu);
	pthread_sigmask(SIG_SETMASK, &mask, &before);
	end = run_until_end(vcpu);
	leave_thread(vcpu);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return end;
}

void vcpu_ask_end(struct vcpu *vcpu, enum vcpu_end end)
{
	assert(vcpu_on_thread(vcpu));
	vcpu->asked_end = end;
	vcpu->end_asked = true;
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

bool vcpu_is_halted(const struct vcpu *vcpu)
{
	struct kvm_mp_state state;

	assert(vcpu_on_thread(vcpu));
	return !ioctl(vcpu->fd, KVM_GET_MP_STATE, &state) && state.mp_state == KVM_MP_STATE_HALTED;
}

const struct kvm_regs *vcpu_registers(struct vcpu *vcpu)
{
	assert(vcpu_on_thread(vcpu));
	return &vcpu->run->s.regs.regs;
}

const struct kvm_sregs *vcpu_special_registers(struct vcpu *vcpu)
{
	assert(vcpu_on_thread(vcpu));
	return &vcpu->run->s.regs.sregs;
}

int vcpu_set_registers(struct vcpu *vcpu, const struct kvm_regs *registers)
{
	assert(vcpu_on_thread(vcpu));
	if (ioctl(vcpu->fd, KVM_SET_REGS, registers))
		return vcpu_failed(vcpu, "new registers (KVM_SET_REGS)");
	vcpu->run->s.regs.regs = *registers;
	return 0;
}

int vcpu_set_special_registers(struct vcpu *vcpu, const struct kvm_sregs *registers)
{
	assert(vcpu_on_thread(vcpu));
	if (ioctl(vcpu->fd, KVM_SET_SREGS, registers))
		return vcpu_failed(vcpu, "new special registers (KVM_SET_SREGS)");
	vcpu->run->s.regs.sregs = *registers;
	return 0;
}
