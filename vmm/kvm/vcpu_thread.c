/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/vcpu_thread.h"

#include <assert.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vmm/kvm/vcpu.h"

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

void vcpu_signals_install(void)
{
	/* SA_RESTART is for the system calls of exit handlers; KVM_RUN returns nevertheless. */
	struct sigaction kick = { .sa_handler = on_kick, .sa_flags = SA_RESTART };
	struct sigaction sample = { .sa_sigaction = on_sample,
				    .sa_flags = SA_RESTART | SA_SIGINFO };

	sigaction(VCPU_KICK_SIGNAL, &kick, NULL);
	sigaction(VCPU_SAMPLE_SIGNAL, &sample, NULL);
}

void vcpu_signal_mask(sigset_t *mask)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };

	sigfillset(mask);
	sigdelset(mask, VCPU_KICK_SIGNAL);
	sigdelset(mask, VCPU_SAMPLE_SIGNAL);
	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
		sigdelset(mask, faults[i]);
}

void vcpu_enter_thread(struct vcpu *vcpu)
{
	assert(!current && !atomic_load(&vcpu->thread_id));
	pthread_mutex_lock(&vcpu->lock);
	current = vcpu;
	vcpu->thread = pthread_self();
	atomic_store(&vcpu->thread_id, (pid_t)syscall(SYS_gettid));
	pthread_mutex_unlock(&vcpu->lock);
}

void vcpu_leave_thread(struct vcpu *vcpu)
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
