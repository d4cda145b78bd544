/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error messages for exits that end a guest. exit_report*() set error_message() to what happened,
 * the registers, and the likely cause. On the vCPU's thread, right after the exit.
 */
#ifndef KVMSCOPE_KVM_EXIT_REPORT_H
#define KVMSCOPE_KVM_EXIT_REPORT_H

#include "vmm/kvm/vcpu.h"

/* Reports the exit in vcpu->run, which the VMM cannot handle. Returns the result of vcpu_run(). */
enum vcpu_end exit_report(struct vcpu *vcpu);

/* Reports that KVM_RUN failed with ERROR (a positive errno). */
void exit_report_run_failed(struct vcpu *vcpu, int error);

/* The mnemonic (or group) of the 64-bit mode instruction at BYTES if KVM's instruction emulator
 * (arch/x86/kvm/emulate.c) does not support it, else NULL. Pure; reads at most SIZE bytes. */
const char *instruction_name(const uint8_t *bytes, size_t size);

#endif
