/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVMSCOPE_KVM_VCPU_SIGNALS_H
#define KVMSCOPE_KVM_VCPU_SIGNALS_H

/* Installs the process's handlers of the kick signals, once, before there is a vCPU that could be
 * kicked. */
void vcpu_signals_install(void);

#endif
