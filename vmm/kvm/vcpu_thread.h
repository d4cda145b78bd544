/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a vCPU and its signals: the part of vcpu.h that only vcpu.c and vcpu_run.c use. */
#ifndef KVMSCOPE_KVM_VCPU_THREAD_H
#define KVMSCOPE_KVM_VCPU_THREAD_H

#include <signal.h>

struct vcpu;

/* Installs the process's handlers of the kick signals. Once, before any vCPU can be kicked. */
void vcpu_signals_install(void);

/* All signals but the kicks and the synchronous faults. */
void vcpu_signal_mask(sigset_t *mask);

/* The calling thread becomes the thread of VCPU, which has none, and ceases to be it. */
void vcpu_enter_thread(struct vcpu *vcpu);
void vcpu_leave_thread(struct vcpu *vcpu);

#endif
