/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/lapic.h"

#include <assert.h>
#include <errno.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>

#include "shared/error.h"
#include "vmm/kvm/msr.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vm.h"

/* Registers in struct kvm_lapic_state (SDM vol. 3A 11.4.1), and the local vector table's bits
 * (11.5.1). */
#define ID     0x20
#define LVT_PC 0x340

#define LVT_VECTOR     0xffu
#define DELIVERY       0x700u
#define DELIVERY_FIXED 0x000u
#define DELIVERY_NMI   0x400u
#define MASKED         0x10000u

#define MSR_X2APIC_LVT_PC 0x834

/* IA32_APIC_BASE (SDM vol. 3A 11.4.4, 11.12.1) */
#define BASE_ENABLED (1ull << 11)
#define BASE_X2APIC  (1ull << 10)

#define MSI_ADDRESS         0xfee00000u /* SDM vol. 3A 11.11.1 */
#define MSI_DESTINATION(id) ((uint32_t)(id) << 12)

static int get_state(const struct vcpu *vcpu, struct kvm_lapic_state *state)
{
	return vcpu_ioctl(vcpu, KVM_GET_LAPIC, state, "the LAPIC's state (KVM_GET_LAPIC)");
}

static uint32_t get_register(const struct kvm_lapic_state *state, size_t offset)
{
	uint32_t value;

	memcpy(&value, state->regs + offset, sizeof(value));
	return value;
}

/* The PIT raises GSI 0, pin 0 of the I/O APIC, from a kernel thread of its own. */
static bool pit_can_interrupt(const struct vm *vm)
{
	struct kvm_irqchip chip = { .chip_id = KVM_IRQCHIP_IOAPIC };

	return ioctl(vm->vm_fd, KVM_GET_IRQCHIP, &chip) ||
	       !chip.chip.ioapic.redirtbl[0].fields.mask;
}

static int mask_whole_state(struct vcpu *vcpu)
{
	struct kvm_lapic_state state;
	int error;

	if (vcpu->vm->cpus > 1 || pit_can_interrupt(vcpu->vm))
		return 0;
	pthread_mutex_lock(&vcpu->vm->irq_lock);
	error = get_state(vcpu, &state);
	if (!error) {
		uint32_t lvt = get_register(&state, LVT_PC) | MASKED;

		memcpy(state.regs + LVT_PC, &lvt, sizeof(lvt));
		error = vcpu_ioctl(vcpu, KVM_SET_LAPIC, &state,
				   "the LAPIC's state (KVM_SET_LAPIC)");
	}
	pthread_mutex_unlock(&vcpu->vm->irq_lock);
	return error;
}

static int set_mask(struct vcpu *vcpu, uint32_t lvt)
{
	int error;

	if (!(vcpu_special_registers(vcpu)->apic_base & BASE_X2APIC))
		return mask_whole_state(vcpu);
	error = msr_set(vcpu->fd, MSR_X2APIC_LVT_PC, lvt | MASKED);
	return error ? error_set(error, "vCPU %u: this host's KVM cannot mask LVTPC: %s",
				 vcpu->index, strerror(-error))
		     : 0;
}

static enum lapic_pmi send_nmi(struct vcpu *vcpu)
{
	return vcpu_ioctl(vcpu, KVM_NMI, NULL, "an NMI (KVM_NMI)") ? LAPIC_PMI_FAILED
								   : LAPIC_PMI_NMI;
}

/* Sends an MSI to this LAPIC, by the id that the guest has set (highest byte of the register). */
static enum lapic_pmi send_vector(struct vcpu *vcpu, const struct kvm_lapic_state *state,
				  uint32_t vector)
{
	struct kvm_msi msi = { .address_lo =
				       MSI_ADDRESS | MSI_DESTINATION(get_register(state, ID) >> 24),
			       .data = vector };

	if (ioctl(vcpu->vm->vm_fd, KVM_SIGNAL_MSI, &msi) >= 0)
		return LAPIC_PMI_VECTOR;
	vcpu_refused(vcpu, "an interrupt (KVM_SIGNAL_MSI)");
	return LAPIC_PMI_FAILED;
}

enum lapic_pmi lapic_raise_pmi(struct vcpu *vcpu, bool sets_mask)
{
	struct kvm_lapic_state state;
	uint32_t lvt, vector;
	bool nmi;

	assert(vcpu_on_thread(vcpu));
	if (!(vcpu_special_registers(vcpu)->apic_base & BASE_ENABLED))
		return LAPIC_PMI_MASKED;
	if (get_state(vcpu, &state))
		return LAPIC_PMI_FAILED;
	lvt = get_register(&state, LVT_PC);
	vector = lvt & LVT_VECTOR;
	nmi = (lvt & DELIVERY) == DELIVERY_NMI;
	if (lvt & MASKED)
		return LAPIC_PMI_MASKED;
	if (!nmi && ((lvt & DELIVERY) != DELIVERY_FIXED || vector < 16))
		return LAPIC_PMI_IGNORED;
	if (sets_mask && set_mask(vcpu, lvt))
		return LAPIC_PMI_FAILED;
	return nmi ? send_nmi(vcpu) : send_vector(vcpu, &state, vector);
}
