/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that a RESET restores: vCPUs, interrupt controllers and timer in KVM as they were
 * before the guest first ran. KVM has no reset operation (Documentation/virt/kvm/api.rst), so the
 * state is saved once. The TSC continues, and with it Linux's clocks, as across a kexec.
 */
#ifndef KVMSCOPE_KVM_RESET_STATE_H
#define KVMSCOPE_KVM_RESET_STATE_H

struct reset_state;
struct vm;

/* Saves the state of VM and its vCPUs, before any has run. -ENOMEM, the errors of the ioctls. */
int reset_state_save(struct reset_state **state, const struct vm *vm);
void reset_state_free(struct reset_state *state); /* NULL is a no-op */

/*
 * Restores STATE. No vCPU may have a thread, and no device may raise an interrupt meanwhile. After
 * an error of the ioctls the VM cannot run any longer.
 */
int reset_state_restore(const struct reset_state *state, struct vm *vm);

#endif
