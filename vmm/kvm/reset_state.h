/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a RESET puts a VM back to: the state of its vCPUs and of the interrupt
 * controllers and the timer in KVM, as they were before the guest first ran. KVM has no
 * reset of its own (Documentation/virt/kvm/api.rst), so it is taken once and put back.
 *
 * The time stamp counter goes on, and with it the clocks that Linux makes of it, as at a kexec.
 */
#ifndef KVMSCOPE_KVM_RESET_STATE_H
#define KVMSCOPE_KVM_RESET_STATE_H

struct reset_state;
struct vm;

/* Takes the state of VM, with all of its vCPUs, before any of them has run. -ENOMEM, the errors of
 * the ioctls. */
int reset_state_take(struct reset_state **state, const struct vm *vm);
void reset_state_free(struct reset_state *state); /* NULL is a no-op */

/*
 * Puts it back. No vCPU has a thread, and no device raises an interrupt meanwhile. The errors
 * of the ioctls: the VM can not run any more then.
 */
int reset_state_put(const struct reset_state *state, struct vm *vm);

#endif
