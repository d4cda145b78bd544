/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trapped RDPMC in a guest of our own: the values it reads, its faults, and the exceptions that the
 * guest sees.
 */
#include "shared/error.h"
#include "tests/kvm/bare_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/kvm/vcpu_debug.h"
#include "vmm/machine/host_probe.h"
#include "vmm/pmu/rdpmc_traps.h"
#include "vmm/pmu/vcpu_pmu.h"
#include "vmm/sample/vm_view.h"

#define IDT   0x5000ull
#define VALUE 0x123456789abull

#define DR6_BS    (1ull << 14)
#define DR7_SLOT0 0x402ull

/* Offsets in the code. */
#define READ    2
#define FAULT   14
#define OWN     16
#define STEPPED 28

/*
 * xor ecx, ecx; READ: rdpmc; mov ebx, eax; mov r9d, edx; mov ecx, 0x1234; FAULT: rdpmc; OWN: int3;
 * xor ecx, ecx; pushfq; or dword [rsp], RFLAGS.TF; popfq; STEPPED: rdpmc; nop; mov edx, 0xf4;
 * out dx, eax; hlt
 */
static const uint8_t code[] = { 0x31, 0xc9, 0x0f, 0x33, 0x89, 0xc3, 0x41, 0x89, 0xd1, 0xb9,
				0x34, 0x12, 0x00, 0x00, 0x0f, 0x33, 0xcc, 0x31, 0xc9, 0x9c,
				0x81, 0x0c, 0x24, 0x00, 0x01, 0x00, 0x00, 0x9d, 0x0f, 0x33,
				0x90, 0xba, 0xf4, 0x00, 0x00, 0x00, 0xef, 0xf4 };

/* #GP: add rsp, 8; add qword [rsp], 2; inc esi; iretq */
static const uint8_t on_gp[] = { 0x48, 0x83, 0xc4, 0x08, 0x48, 0x83, 0x04,
				 0x24, 0x02, 0xff, 0xc6, 0x48, 0xcf };
/* #DB: mov r8, [rsp]; mov r10, dr6; and dword [rsp + 16], ~RFLAGS.TF; iretq */
static const uint8_t on_db[] = { 0x4c, 0x8b, 0x04, 0x24, 0x41, 0x0f, 0x21, 0xf2, 0x81,
				 0x64, 0x24, 0x10, 0xff, 0xfe, 0xff, 0xff, 0x48, 0xcf };
/* #BP: inc edi; mov r11, [rsp]; iretq */
static const uint8_t on_bp[] = { 0xff, 0xc7, 0x4c, 0x8b, 0x1c, 0x24, 0x48, 0xcf };

struct guest {
	struct vm vm;
	struct vm_view view;
	struct rdpmc_traps *traps;
	struct kvm_regs end; /* the values at the OUT */
	unsigned int hits, steps;
	uint64_t after_step; /* RIP */
};

static void on_io(void *context, struct vcpu *vcpu, uint16_t port, bool write, void *data,
		  unsigned int size)
{
	struct guest *guest = context;

	guest->end = *vcpu_registers(vcpu);
	vcpu_request_end(vcpu, VCPU_END_DEBUG_EXIT);
}

/* A host breakpoint at the first RDPMC is stepped over. */
static void on_debug(void *context, struct vcpu *vcpu)
{
	static const struct kvm_guest_debug step = { .control = KVM_GUESTDBG_ENABLE |
								KVM_GUESTDBG_SINGLESTEP };
	static const struct kvm_guest_debug none = { .control = 0 };
	const struct kvm_debug_exit_arch *exit = &vcpu->run->debug.arch;
	struct guest *guest = context;

	if (exit->dr6 & DR6_BS) {
		guest->steps++;
		guest->after_step = exit->pc;
		CHECK_EQUAL(vcpu_set_guest_debug(vcpu, &none), 0);
	} else {
		guest->hits++;
		CHECK_EQUAL(exit->pc, BARE_GUEST_CODE + READ);
		CHECK_EQUAL(vcpu_set_guest_debug(vcpu, &step), 0);
	}
}

static void set_handler(struct guest *guest, unsigned int vector, const uint8_t *bytes, size_t size)
{
	uint64_t at = BARE_GUEST_CODE + 0x100 + vector * 0x40;
	uint64_t gate[2] = { (at & 0xffff) | 0x10ull << 16 | 0x8e00ull << 32 | (at >> 16) << 48 };

	CHECK_EQUAL(memory_write(&guest->vm.memory, at, bytes, size), 0);
	CHECK_EQUAL(
		memory_write(&guest->vm.memory, IDT + vector * sizeof(gate), gate, sizeof(gate)),
		0);
}

static void make_guest(struct guest *guest, const struct vcpu_handlers *handlers, bool int3,
		       const void *bytes, size_t size)
{
	struct rdpmc_traps_options options = { .vm = &guest->vm,
					       .registers = vm_view_registers,
					       .int3 = int3 };
	struct kvm_sregs sregs;

	REQUIRE_EQUAL(bare_guest_create(&guest->vm, handlers, bytes, size, 0), 0);
	set_handler(guest, 1, on_db, sizeof(on_db));
	set_handler(guest, 3, on_bp, sizeof(on_bp));
	set_handler(guest, 13, on_gp, sizeof(on_gp));
	sregs = *vcpu_special_registers(guest->vm.vcpus[0]);
	sregs.idt = (struct kvm_dtable){ .base = IDT, .limit = 0xfff };
	CHECK_EQUAL(vcpu_set_special_registers(guest->vm.vcpus[0], &sregs), 0);
	vm_view_init(&guest->view, &guest->vm.memory);
	options.view = &guest->view.view;
	REQUIRE_EQUAL(rdpmc_traps_create(&guest->traps, &options), 0);
}

static void destroy_guest(struct guest *guest)
{
	rdpmc_traps_destroy(guest->traps);
	vm_destroy(&guest->vm);
}

/*
 * The first counter, which is stopped: its MSR on both vendors' PMUs. The other vendor's MSR does
 * not exist.
 */
static void write_counter(struct vcpu *vcpu)
{
	CHECK(pmu_vcpu_write_msr(vcpu, 0xc0010004, VALUE) ||
	      pmu_vcpu_write_msr(vcpu, 0x4c1, VALUE));
}

static const struct rdpmc_sites sites = { .sites = { { BARE_GUEST_CODE + READ, 2, 0x0f },
						     { BARE_GUEST_CODE + FAULT, 2, 0x0f },
						     { BARE_GUEST_CODE + STEPPED, 2, 0x0f } },
					  .count = 3 };

static void check_guest(const struct guest *guest)
{
	struct rdpmc_traps_statistics statistics;

	CHECK_EQUAL(guest->end.rbx, (uint32_t)VALUE);
	CHECK_EQUAL(guest->end.r9, VALUE >> 32);
	CHECK_EQUAL(guest->end.rsi, 1); /* #GP */
	CHECK_EQUAL(guest->end.rdi, 1); /* #BP */
	CHECK_EQUAL(guest->end.r11, BARE_GUEST_CODE + OWN + 1);
	CHECK_EQUAL(guest->end.r8, BARE_GUEST_CODE + STEPPED + 2);
	CHECK(guest->end.r10 & DR6_BS);
	rdpmc_traps_statistics(guest->traps, &statistics);
	CHECK_EQUAL(statistics.completed, 3);
	CHECK_EQUAL(statistics.guest_breakpoints, 1);
}

TEST(rdpmc_traps, trapped_instruction_reads_faults_and_steps_like_the_original)
{
	struct guest guest = { .hits = 0 };
	const struct vcpu_handlers handlers = {
		.io = on_io, .debug = on_debug, .pmu = &rdpmc_traps_pmu, .context = &guest
	};
	const struct kvm_guest_debug at_read = {
		.control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_HW_BP,
		.arch.debugreg = { [0] = BARE_GUEST_CODE + READ, [7] = DR7_SLOT0 }
	};
	struct probe_row row = { .id = NULL };
	uint8_t seen[sizeof(code)];

	BARE_GUEST_REQUIRED();
	REQUIRE_EQUAL(probe_one("debug.int3", &row), 0);
	if (!(row.works & PROBE_IN_KERNEL))
		SKIP("this KVM does not leave the guest for INT3: %s", row.detail);
	make_guest(&guest, &handlers, true, code, sizeof(code));
	write_counter(guest.vm.vcpus[0]);
	CHECK_EQUAL(rdpmc_traps_arm(guest.traps, guest.vm.vcpus[0], &sites), 0);
	CHECK_EQUAL(vcpu_set_guest_debug(guest.vm.vcpus[0], &at_read), 0);
	CHECK_EQUAL(vcpu_run(guest.vm.vcpus[0]), VCPU_END_DEBUG_EXIT);
	check_guest(&guest);
	CHECK_EQUAL(guest.hits, 1);
	CHECK_EQUAL(guest.steps, 1);
	CHECK_EQUAL(guest.after_step, BARE_GUEST_CODE + READ + 2);
	/* Reads return the guest's own code. */
	CHECK_EQUAL(guest_read_physical(&guest.view.view, BARE_GUEST_CODE, seen, sizeof(seen)), 0);
	CHECK(!memcmp(seen, code, sizeof(code)));
	destroy_guest(&guest);
}

/* Checks the kernel in which INT3 is executed against the one in which the trap was set. */
enum idt {
	IDT_SAME,
	IDT_SAME_HANDLER, /* in another IDT: the NMI's one in Linux before 5.8 */
	IDT_OTHER_HANDLER,
};

/* Loads another IDT with the same handlers, optionally with another one for #BP. */
static void load_other_idt(struct guest *guest, bool other_handler)
{
	struct kvm_sregs sregs = *vcpu_special_registers(guest->vm.vcpus[0]);
	const uint16_t moved = (BARE_GUEST_CODE & 0xffff) + 0x800;
	uint8_t gates[0x100];

	memory_read(&guest->vm.memory, IDT, gates, sizeof(gates));
	if (other_handler)
		memcpy(gates + 3 * 16, &moved, sizeof(moved));
	memory_write(&guest->vm.memory, IDT + 0x800, gates, sizeof(gates));
	sregs.idt.base += 0x800;
	CHECK_EQUAL(vcpu_set_special_registers(guest->vm.vcpus[0], &sregs), 0);
}

/* True if an INT3 is treated as a trap in its place, if there is INT3 and BEHIND now. */
static bool is_ours(enum idt idt, uint8_t behind)
{
	static const struct rdpmc_sites site = { .sites = { { BARE_GUEST_CODE, 2, 0x0f } },
						 .count = 1 };
	static const uint8_t rdpmc[] = { 0x0f, 0x33 };
	const uint8_t now[] = { 0xcc, behind };
	struct guest guest = { .hits = 0 };
	const struct vcpu_handlers handlers = { .io = on_io,
						.pmu = &rdpmc_traps_pmu,
						.context = &guest };
	struct vcpu *vcpu;
	bool ours;

	make_guest(&guest, &handlers, true, rdpmc, sizeof(rdpmc));
	vcpu = guest.vm.vcpus[0];
	CHECK_EQUAL(rdpmc_traps_arm(guest.traps, vcpu, &site), 0);
	CHECK_EQUAL(memory_write(&guest.vm.memory, BARE_GUEST_CODE, now, sizeof(now)), 0);
	if (idt != IDT_SAME)
		load_other_idt(&guest, idt == IDT_OTHER_HANDLER);
	vcpu->run->debug.arch.pc = BARE_GUEST_CODE;
	ours = rdpmc_traps_pmu.breakpoint(vcpu);
	destroy_guest(&guest);
	return ours;
}

/* After a kexec, before the new kernel uses its PMU and is detected. */
TEST(rdpmc_traps, breakpoint_of_another_kernel_is_left_to_it)
{
	BARE_GUEST_REQUIRED();
	CHECK(is_ours(IDT_SAME, 0x33));
	CHECK(!is_ours(IDT_SAME, 0x90));
	CHECK(is_ours(IDT_SAME_HANDLER, 0x33));
	CHECK(!is_ours(IDT_OTHER_HANDLER, 0x33));
}

/* mov ecx, 0xc0010004 or 0xc1; rdmsr; mov edx, 0xf4; out dx, eax; hlt */
static uint8_t msr_code[] = { 0xb9, 0x04, 0x00, 0x01, 0xc0, 0x0f, 0x32,
			      0xba, 0xf4, 0,    0,    0,    0xef, 0xf4 };

#define HIGH_HALF 0xffffffff80000000ull

/*
 * Runs it at the address of Linux's kernel, or elsewhere; there is no Linux. Returns its number of
 * #GPs.
 */
static uint64_t faults_of_msr(bool as_linux, bool int3)
{
	struct guest guest = { .hits = 0 };
	const struct vcpu_handlers handlers = { .io = on_io,
						.pmu = &rdpmc_traps_pmu,
						.context = &guest };
	const uint64_t low = 0x2000 | 7, high = 0x6000 | 7, directory = 0x3000 | 7;
	uint32_t intel = 0xc1;
	struct kvm_regs registers;
	uint64_t value;

	make_guest(&guest, &handlers, int3, msr_code, sizeof(msr_code));
	if (!pmu_vcpu_read_msr(guest.vm.vcpus[0], 0xc0010004, &value))
		memory_write(&guest.vm.memory, BARE_GUEST_CODE + 1, &intel, sizeof(intel));
	memory_write(&guest.vm.memory, 0x1000, &low, sizeof(low));
	memory_write(&guest.vm.memory, 0x1000 + 511 * 8, &high, sizeof(high));
	memory_write(&guest.vm.memory, 0x6000 + 510 * 8, &directory, sizeof(directory));
	registers = *vcpu_registers(guest.vm.vcpus[0]);
	registers.rip += as_linux ? HIGH_HALF : 0;
	CHECK_EQUAL(vcpu_set_registers(guest.vm.vcpus[0], &registers), 0);
	CHECK_EQUAL(vcpu_run(guest.vm.vcpus[0]), VCPU_END_DEBUG_EXIT);
	destroy_guest(&guest);
	return guest.end.rsi;
}

TEST(rdpmc_traps, pmu_is_hidden_from_a_kernel_whose_rdpmc_cannot_be_trapped)
{
	BARE_GUEST_REQUIRED();
	CHECK_EQUAL(faults_of_msr(true, true), 1);
	CHECK_EQUAL(faults_of_msr(false, true), 0);
	CHECK_EQUAL(faults_of_msr(true, false), 1);
	CHECK_EQUAL(faults_of_msr(false, false), 0);
}
