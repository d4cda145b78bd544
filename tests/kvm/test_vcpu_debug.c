/* SPDX-License-Identifier: Apache-2.0 */
/* The effect of breakpoints on a vCPU, with the ioctls alone: the guest is a loop at CPL 0. */
#include "shared/error.h"
#include "tests/kvm/bare_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/kvm/vcpu_debug.h"
#include "vmm/machine/host_probe.h"

#define ROUNDS   5
#define LOOP     (BARE_GUEST_CODE + 5)
#define DR7_SLOT 0x402ull /* DR0 to execute */
#define DR6_B0   1ull
#define DR6_BS   (1ull << 14)

/* mov ecx, ROUNDS; 1: nop; dec ecx; jnz 1b; mov edx, 0xf4; out dx, eax; hlt */
static const uint8_t loop_code[] = { 0xb9, ROUNDS, 0,    0, 0, 0x90, 0xff, 0xc9, 0x75,
				     0xfb, 0xba,   0xf4, 0, 0, 0,    0xef, 0xf4 };

struct record {
	unsigned int hits, steps, others;
	uint64_t after_step; /* RIP */
};

static const struct kvm_guest_debug breakpoint = {
	.control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_HW_BP,
	.arch.debugreg = { [0] = LOOP, [7] = DR7_SLOT },
};
static const struct kvm_guest_debug step = { .control = KVM_GUESTDBG_ENABLE |
							KVM_GUESTDBG_SINGLESTEP };

static void on_io(void *context, struct vcpu *vcpu, uint16_t port, bool write, void *data,
		  unsigned int size)
{
	if (write && port == 0xf4)
		vcpu_request_end(vcpu, VCPU_END_DEBUG_EXIT);
}

static void on_debug(void *context, struct vcpu *vcpu)
{
	const struct kvm_debug_exit_arch *exit = &vcpu->run->debug.arch;
	struct record *record = context;

	if (exit->dr6 & DR6_B0 && exit->pc == LOOP && vcpu_registers(vcpu)->rip == LOOP) {
		record->hits++;
		CHECK_EQUAL(vcpu_set_guest_debug(vcpu, &step), 0);
	} else if (exit->dr6 & DR6_BS) {
		record->steps++;
		record->after_step = exit->pc;
		CHECK_EQUAL(vcpu_set_guest_debug(vcpu, &breakpoint), 0);
	} else {
		record->others++;
	}
}

TEST(vcpu_debug, breakpoint_is_stepped_over_and_hit_again)
{
	struct record record = { 0 };
	struct vcpu_handlers handlers = { .io = on_io, .debug = on_debug, .context = &record };
	struct vm vm;

	BARE_GUEST_REQUIRED();
	REQUIRE_EQUAL(bare_guest_create(&vm, &handlers, loop_code, sizeof(loop_code), 0), 0);
	CHECK_EQUAL(vcpu_set_guest_debug(vm.vcpus[0], &breakpoint), 0);
	CHECK_EQUAL(vcpu_run(vm.vcpus[0]), VCPU_END_DEBUG_EXIT);
	CHECK_EQUAL(record.hits, ROUNDS);
	CHECK_EQUAL(record.steps, ROUNDS);
	CHECK_EQUAL(record.after_step, LOOP + 1);
	CHECK_EQUAL(record.others, 0);
	vm_destroy(&vm);
}

TEST(vcpu_debug, unhandled_exit_ends_the_guest_with_a_message)
{
	struct vcpu_handlers handlers = { .io = on_io };
	struct vm vm;

	BARE_GUEST_REQUIRED();
	REQUIRE_EQUAL(bare_guest_create(&vm, &handlers, loop_code, sizeof(loop_code), 0), 0);
	CHECK_EQUAL(vcpu_set_guest_debug(vm.vcpus[0], &breakpoint), 0);
	CHECK_EQUAL(vcpu_run(vm.vcpus[0]), VCPU_END_INTERNAL_ERROR);
	CHECK(strlen(error_message()) > 0);
	vm_destroy(&vm);
}

TEST(vcpu_debug, guest_s_registers_are_independent_of_the_host_s)
{
	struct vcpu_handlers handlers = { .io = on_io };
	struct kvm_debugregs guest = { .db = { 0x1000, 0x2000, 0x3000, 0x4000 },
				       .dr6 = 0xffff0ff0,
				       .dr7 = 0x400 };
	struct kvm_debugregs read;
	struct vm vm;

	BARE_GUEST_REQUIRED();
	REQUIRE_EQUAL(bare_guest_create(&vm, &handlers, loop_code, sizeof(loop_code), 0), 0);
	CHECK_EQUAL(vcpu_set_debug_registers(vm.vcpus[0], &guest), 0);
	CHECK_EQUAL(vcpu_set_guest_debug(vm.vcpus[0], &breakpoint), 0);
	CHECK_EQUAL(vcpu_get_debug_registers(vm.vcpus[0], &read), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQUAL(read.db[i], guest.db[i]);
	CHECK_EQUAL(read.dr7, 0x400);
	vm_destroy(&vm);
}

#define INT3_LOOP    (BARE_GUEST_CODE + 7)
#define HOST_INT3    (INT3_LOOP + 1)
#define BEHIND_GUEST (INT3_LOOP + 3)
#define INT3_HANDLER (BARE_GUEST_CODE + 32)
#define IDT          0x5000ull

/*
 * mov ecx, ROUNDS; xor ebx, ebx; 1: nop; int3 of the host; int3 of the
 * guest; dec ecx; jnz 1b; mov eax, ebx; mov edx, 0xf4; out dx, eax; hlt.
 * The guest's handler, at 32: add rbx, [rsp]; iretq.
 */
static const uint8_t int3_code[] = {
	0xb9, ROUNDS, 0,    0,    0,    0x31, 0xdb, 0x90, 0xcc, 0xcc, 0xff, 0xc9, 0x75,
	0xf9, 0x89,   0xd8, 0xba, 0xf4, 0,    0,    0,    0xef, 0xf4, 0,    0,    0,
	0,    0,      0,    0,    0,    0,    0x48, 0x03, 0x1c, 0x24, 0x48, 0xcf,
};

struct int3_record {
	struct record breakpoints;
	unsigned int host, guest;
	uint32_t value; /* the guest's final value */
};

static void on_int3_io(void *context, struct vcpu *vcpu, uint16_t port, bool write, void *data,
		       unsigned int size)
{
	struct int3_record *record = context;

	memcpy(&record->value, data, sizeof(record->value));
	on_io(&record->breakpoints, vcpu, port, write, data, size);
}

static void on_int3_debug(void *context, struct vcpu *vcpu)
{
	const struct kvm_debug_exit_arch *exit = &vcpu->run->debug.arch;
	static const struct kvm_guest_debug at_loop = {
		.control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_HW_BP,
		.arch.debugreg = { [0] = INT3_LOOP, [7] = DR7_SLOT }
	};
	struct kvm_regs registers = *vcpu_registers(vcpu);
	struct int3_record *record = context;

	CHECK_EQUAL(exit->pc, registers.rip);
	if (exit->exception == 3 && exit->pc == HOST_INT3) {
		record->host++;
		registers.rip++;
		CHECK_EQUAL(vcpu_set_registers(vcpu, &registers), 0);
	} else if (exit->exception == 3) {
		record->guest++;
		CHECK_EQUAL(vcpu_inject_breakpoint(vcpu), 0);
	} else if (exit->dr6 & DR6_B0 && exit->pc == INT3_LOOP) {
		record->breakpoints.hits++;
		CHECK_EQUAL(vcpu_set_guest_debug(vcpu, &step), 0);
	} else {
		record->breakpoints.steps++;
		CHECK_EQUAL(vcpu_set_guest_debug(vcpu, &at_loop), 0);
	}
}

static void set_int3_handler(struct vm *vm)
{
	const uint64_t gate[2] = { (INT3_HANDLER & 0xffff) | 0x10ull << 16 | 0x8e00ull << 32 |
				   (INT3_HANDLER >> 16) << 48 };
	struct kvm_sregs sregs = *vcpu_special_registers(vm->vcpus[0]);

	CHECK_EQUAL(memory_write(&vm->memory, IDT + 3 * sizeof(gate), gate, sizeof(gate)), 0);
	sregs.idt = (struct kvm_dtable){ .base = IDT, .limit = 0xfff };
	CHECK_EQUAL(vcpu_set_special_registers(vm->vcpus[0], &sregs), 0);
}

/* Each user of KVM_SET_GUEST_DEBUG sets its own part and leaves the other's unchanged. */
TEST(vcpu_debug, int3_of_host_and_guest_beside_a_breakpoint)
{
	struct probe_row row = { .id = NULL };
	struct int3_record record = { .host = 0 };
	struct vcpu_handlers handlers = { .io = on_int3_io,
					  .debug = on_int3_debug,
					  .context = &record };
	struct kvm_guest_debug none = { .control = 0 };
	struct vm vm;

	BARE_GUEST_REQUIRED();
	REQUIRE_EQUAL(probe_one("debug.int3", &row), 0);
	if (!(row.works & PROBE_IN_KERNEL))
		SKIP("this KVM does not leave the guest for INT3: %s", row.detail);
	REQUIRE_EQUAL(bare_guest_create(&vm, &handlers, int3_code, sizeof(int3_code), 0), 0);
	set_int3_handler(&vm);
	CHECK_EQUAL(vcpu_set_software_breakpoints(vm.vcpus[0], true), 0);
	CHECK_EQUAL(vcpu_set_guest_debug(vm.vcpus[0], &none), 0);
	CHECK_EQUAL(vcpu_set_guest_debug(
			    vm.vcpus[0],
			    &(struct kvm_guest_debug){
				    .control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_HW_BP,
				    .arch.debugreg = { [0] = INT3_LOOP, [7] = DR7_SLOT } }),
		    0);
	CHECK_EQUAL(vcpu_run(vm.vcpus[0]), VCPU_END_DEBUG_EXIT);
	CHECK_EQUAL(record.breakpoints.hits, ROUNDS);
	CHECK_EQUAL(record.host, ROUNDS);
	CHECK_EQUAL(record.guest, ROUNDS);
	CHECK_EQUAL(record.value, ROUNDS * BEHIND_GUEST);
	vm_destroy(&vm);
}
