/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages for the exits that end a guest badly: each sets error_message()
 * to what happened, where (RIP and registers), and what it means. On the
 * vCPU's thread, right after the exit.
 */
#ifndef KVMSCOPE_KVM_EXIT_REPORT_H
#define KVMSCOPE_KVM_EXIT_REPORT_H

struct vcpu;

void exit_report_shutdown(struct vcpu *vcpu);
void exit_report_internal_error(struct vcpu *vcpu);
void exit_report_fail_entry(struct vcpu *vcpu);
void exit_report_unknown(struct vcpu *vcpu);

/* KVM_RUN itself failed with ERROR (a positive errno). */
void exit_report_run_failed(struct vcpu *vcpu, int error);

#endif
