/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error messages for exits that end a guest. Each function sets error_message() to what happened,
 * the registers, and the likely cause. On the vCPU's thread, right after the exit.
 */
#ifndef KVMSCOPE_KVM_EXIT_REPORT_H
#define KVMSCOPE_KVM_EXIT_REPORT_H

#include "vmm/kvm/vcpu.h"

/* Reports the exit in vcpu->run, which the VMM cannot handle. Returns the result of vcpu_run(). */
enum vcpu_end exit_report(struct vcpu *vcpu);

/* Reports that KVM_RUN failed with ERROR (a positive errno). */
void exit_report_run_failed(struct vcpu *vcpu, int error);

#endif
