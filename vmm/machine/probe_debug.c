/* SPDX-License-Identifier: Apache-2.0 */
/* Guest debugging: KVM_SET_GUEST_DEBUG with kernel and user code. */
#include <errno.h>
#include <sys/ioctl.h>

#include "shared/error.h"
#include "vmm/machine/probe_guest.h"
#include "vmm/machine/probe_list.h"

/* DR7: breakpoint 0 globally enabled; its type (execute, or write 4 bytes); SDM volume 3,
 * 18.2.4. */
#define DR7_ENABLE_0 0x402ull
#define DR7_WRITE_4  (0xdull << 16)

struct attempt {
	uint8_t code[12];
	uint8_t size;
	struct kvm_guest_debug debug;
	uint64_t expected_pc;
};

/* 1 if the guest stops at the expected PC at CPL, 0 if not, or a negative errno with a message. */
static int stops(const struct attempt *attempt, int cpl)
{
	struct probe_vm vm;
	int exit, error = probe_vm_open(&vm, attempt->code, attempt->size, cpl);

	if (error)
		return error;
	if (ioctl(vm.vcpu_fd, KVM_SET_GUEST_DEBUG, &attempt->debug))
		return error_set(-errno, "KVM_SET_GUEST_DEBUG: %m");
	exit = probe_vm_run(&vm);
	if (exit < 0)
		return exit;
	return exit == KVM_EXIT_DEBUG && vm.run->debug.arch.pc == attempt->expected_pc;
}

static void report(struct probe_row *row, const struct attempt *attempt)
{
	int kernel = stops(attempt, 0), user;

	if (kernel < 0) {
		probe_report_error(row);
		return;
	}
	user = stops(attempt, 3);
	row->works = (kernel ? PROBE_IN_KERNEL : 0) | (user > 0 ? PROBE_IN_USER : 0);
	probe_report(row,
		     kernel && user > 0   ? PROBE_YES
		     : kernel || user > 0 ? PROBE_PARTLY
					  : PROBE_NO,
		     "kernel code: %s, user code: %s", kernel ? "yes" : "no",
		     user > 0 ? "yes" : "no");
}

void probe_breakpoint(struct probe_row *row)
{
	const struct attempt attempt = {
		.code = { 0x90, 0x90, 0x90, 0x90, PROBE_END },
		.size = 7,
		.debug = { .control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_HW_BP,
			   .arch.debugreg = { [0] = PROBE_CODE + 2, [7] = DR7_ENABLE_0 } },
		.expected_pc = PROBE_CODE + 2,
	};

	report(row, &attempt);
}

/* mov ebx, PROBE_DATA; mov [rbx], eax. The guest stops after the write. */
void probe_watchpoint(struct probe_row *row)
{
	const struct attempt attempt = {
		.code = { 0xbb, 0x00, 0x00, 0x01, 0x00, 0x89, 0x03, 0x90, PROBE_END },
		.size = 11,
		.debug = { .control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_HW_BP,
			   .arch.debugreg = { [0] = PROBE_DATA,
					      [7] = DR7_ENABLE_0 | DR7_WRITE_4 } },
		.expected_pc = PROBE_CODE + 7,
	};

	report(row, &attempt);
}

void probe_single_step(struct probe_row *row)
{
	const struct attempt attempt = {
		.code = { 0x90, 0x90, 0x90, PROBE_END },
		.size = 6,
		.debug = { .control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP },
		.expected_pc = PROBE_CODE + 1,
	};

	report(row, &attempt);
}

void probe_int3(struct probe_row *row)
{
	const struct attempt attempt = {
		.code = { 0x90, 0xcc, PROBE_END },
		.size = 5,
		.debug = { .control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_SW_BP },
		.expected_pc = PROBE_CODE + 1,
	};

	report(row, &attempt);
}
