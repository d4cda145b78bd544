/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/msr.h"

#include <errno.h>
#include <linux/kvm.h>
#include <stddef.h>
#include <sys/ioctl.h>

#include "shared/log.h"

struct one_msr {
	struct kvm_msrs header;
	struct kvm_msr_entry entry;
};

/* KVM_GET_MSRS and KVM_SET_MSRS return the number of MSRs processed. */
static int access_msr(int vcpu_fd, unsigned long request, struct one_msr *msr)
{
	int done = ioctl(vcpu_fd, request, &msr->header);

	if (done < 0)
		return -errno;
	return done == 1 ? 0 : -ENOENT;
}

int msr_get(int vcpu_fd, uint32_t index, uint64_t *value)
{
	struct one_msr msr = { .header.nmsrs = 1, .entry.index = index };
	int error = access_msr(vcpu_fd, KVM_GET_MSRS, &msr);

	if (!error)
		*value = msr.entry.data;
	return error;
}

int msr_set(int vcpu_fd, uint32_t index, uint64_t value)
{
	struct one_msr msr = { .header.nmsrs = 1, .entry = { .index = index, .data = value } };

	return access_msr(vcpu_fd, KVM_SET_MSRS, &msr);
}

void msr_reset(int vcpu_fd)
{
	static const struct {
		uint32_t index;
		uint64_t value;
	} firmware[] = {
		/* IA32_MTRR_DEF_TYPE: MTRRs on, all memory write-back. Otherwise Linux disables
		 * PAT (SDM 3A 12.11). */
		{ 0x2ff, 1u << 11 | 6 },
		/* IA32_MISC_ENABLE: fast strings, otherwise Linux on Intel avoids REP MOVS; BTS
		 * and PEBS unavailable (SDM 4, table 2-2). */
		{ 0x1a0, 1u << 12 | 1u << 11 | 1 },
	};

	for (size_t i = 0; i < sizeof(firmware) / sizeof(*firmware); i++) {
		int error = msr_set(vcpu_fd, firmware[i].index, firmware[i].value);

		if (error)
			log_debug("cannot set MSR %#x to its value at boot (error %d)",
				  firmware[i].index, -error);
	}
}
