/* SPDX-License-Identifier: Apache-2.0 */
/* How this KVM runs guest code: natively or interpreted, and which instructions it supports. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/machine/probe_guest.h"
#include "vmm/machine/probe_list.h"

/*
 * Guest kernel code counts as interpreted if it is slow both in absolute terms (software KVM does
 * about a million iterations per second) and relative to user code, which such a KVM runs a
 * thousand times faster. A machine that is itself emulated, or busy, is slow at both.
 */
#define LOOP_ITERATIONS   150000u
#define FAST_RATE         10e6
#define INTERPRETED_RATIO 20
#define ATTEMPTS          3

static double now(void)
{
	return (double)clock_ns(CLOCK_MONOTONIC) / 1e9;
}

/* mov ecx, LOOP_ITERATIONS; dec ecx; jnz to it; end */
static const uint8_t loop[] = { 0xb9,
				LOOP_ITERATIONS & 0xff,
				LOOP_ITERATIONS >> 8 & 0xff,
				LOOP_ITERATIONS >> 16,
				0,
				0xff,
				0xc9,
				0x75,
				0xfc,
				PROBE_END };

/* Loop iterations per second at CPL; 0 with a message if the loop does not end. */
static double loop_rate(int cpl)
{
	struct probe_vm vm;
	double start, rate;

	if (probe_vm_open(&vm, loop, sizeof(loop), cpl))
		return 0;
	start = now();
	if (probe_vm_run(&vm) < 0)
		return 0;
	if (!probe_vm_ended(&vm)) {
		error_set(-ENOTSUP, "a loop at CPL%d ends with %s", cpl, probe_vm_exit(&vm));
		return 0;
	}
	rate = LOOP_ITERATIONS / (now() - start);
	probe_vm_close(&vm);
	return rate;
}

/* The best of several attempts: a busy host, or an emulator's first translation, slows single
 * ones. */
static double best_rate(int cpl)
{
	double best = 0;

	for (int i = 0; i < ATTEMPTS && best < FAST_RATE; i++) {
		double rate = loop_rate(cpl);

		if (rate > best)
			best = rate;
	}
	return best;
}

void probe_kernel_speed(struct probe_row *row)
{
	double kernel = best_rate(0), user;
	bool native;

	if (kernel == 0) {
		probe_report_error(row);
		return;
	}
	user = best_rate(3);
	native = kernel >= FAST_RATE || kernel >= user / INTERPRETED_RATIO;
	probe_report(row, native ? PROBE_YES : PROBE_NO,
		     "%s: %.1f million loop iterations/s at CPL0, %.0f at CPL3",
		     native ? "native" : "interpreted", kernel / 1e6, user / 1e6);
}

enum cpuid_register { EAX, EBX, ECX, EDX };

/* An instruction that Linux uses in kernel mode, and its CPUID bit (leaf 0: always present). */
struct instruction {
	const char *name;
	uint32_t leaf;
	enum cpuid_register where;
	unsigned int bit;
	uint64_t cr4; /* bits it needs */
	uint8_t size;
	uint8_t code[20];
};

#define CR4_OSXSAVE (1ull << 18)
#define SET_RBX     "\xbb\x00\x00\x01\x00" /* mov ebx, PROBE_DATA */

static const struct instruction instructions[] = {
	{ "INT n", 0, EAX, 0, 0, 2, "\xcd\x80" }, /* PROBE_VECTOR */
	{ "FWAIT", 0, EAX, 0, 0, 1, "\x9b" },
	{ "FXRSTOR", 1, EDX, 24, 0, 9, SET_RBX "\x48\x0f\xae\x0b" },
	{ "XRSTOR", 1, ECX, 26, CR4_OSXSAVE, 15, SET_RBX "\xb8\x01\0\0\0\x31\xd2\x0f\xae\x2b" },
	{ "STAC", 7, EBX, 20, 0, 3, "\x0f\x01\xcb" },
	{ "CLAC", 7, EBX, 20, 0, 3, "\x0f\x01\xca" },
	{ "POPCNT", 1, ECX, 23, 0, 4, "\xf3\x0f\xb8\xc1" },
	{ "CMPXCHG16B", 1, ECX, 13, 0, 9, "\xbf\x00\x00\x01\x00\x48\x0f\xc7\x0f" },
};

#define INSTRUCTIONS (sizeof(instructions) / sizeof(instructions[0]))

/* LEAF in the guest's kernel mode: not every KVM shows what KVM_SET_CPUID2 set. */
static int guest_cpuid(uint32_t leaf, struct kvm_regs *regs)
{
	const uint8_t code[] = { 0xb8, (uint8_t)leaf, 0, 0, 0, 0x31, 0xc9, 0x0f, 0xa2, PROBE_END };
	struct probe_vm vm;
	int exit, error = probe_vm_open(&vm, code, sizeof(code), 0);

	if (error)
		return error;
	exit = probe_vm_run(&vm);
	if (exit < 0)
		return exit;
	if (!probe_vm_ended(&vm) || ioctl(vm.vcpu_fd, KVM_GET_REGS, regs))
		return error_set(-ENOTSUP, "CPUID at CPL0 ends with %s", probe_vm_exit(&vm));
	probe_vm_close(&vm);
	return 0;
}

/* 1 if the guest's CPUID has the instruction, 0 if not, or a negative errno. */
static int cpuid_has(const struct instruction *instruction)
{
	struct kvm_regs regs = { 0 };
	uint64_t value;
	int error;

	if (instruction->leaf == 0)
		return 1;
	error = guest_cpuid(instruction->leaf, &regs);
	if (error)
		return error;
	value = instruction->where == EBX   ? regs.rbx
		: instruction->where == ECX ? regs.rcx
					    : regs.rdx;
	return value >> instruction->bit & 1;
}

static int add_cr4(struct probe_vm *vm, uint64_t bits)
{
	struct kvm_sregs sregs;

	if (ioctl(vm->vcpu_fd, KVM_GET_SREGS, &sregs))
		return error_set(-errno, "KVM_GET_SREGS: %m");
	sregs.cr4 |= bits;
	return ioctl(vm->vcpu_fd, KVM_SET_SREGS, &sregs) ? error_set(-errno, "KVM_SET_SREGS: %m")
							 : 0;
}

/* 1 if the guest executes the instruction or its CPUID lacks it, 0 if not, or a negative errno. */
static int try_instruction(const struct instruction *instruction)
{
	static const uint8_t end[] = { PROBE_END };
	uint8_t code[sizeof(instruction->code) + sizeof(end)];
	struct probe_vm vm;
	int works, error = cpuid_has(instruction);

	if (error <= 0)
		return error < 0 ? error : 1;
	memcpy(code, instruction->code, instruction->size);
	memcpy(code + instruction->size, end, sizeof(end));
	error = probe_vm_open(&vm, code, instruction->size + sizeof(end), 0);
	if (error)
		return error;
	error = instruction->cr4 ? add_cr4(&vm, instruction->cr4) : 0;
	if (!error)
		error = probe_vm_run(&vm);
	if (error < 0)
		return error;
	works = probe_vm_ended(&vm);
	probe_vm_close(&vm);
	return works;
}

void probe_kernel_instructions(struct probe_row *row)
{
	char missing[160] = "";

	for (size_t i = 0; i < INSTRUCTIONS; i++) {
		int works = try_instruction(&instructions[i]);

		if (works < 0) {
			probe_report(row, PROBE_NO, "%s: %s", instructions[i].name,
				     error_message());
			return;
		}
		if (works == 0)
			snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing),
				 "%s%s", *missing ? ", " : "", instructions[i].name);
	}
	if (*missing)
		probe_report(row, PROBE_NO, "this KVM does not execute at CPL0: %s", missing);
	else
		probe_report(
			row, PROBE_YES,
			"INT n, FWAIT, FXRSTOR, XRSTOR, STAC, POPCNT, CMPXCHG16B, if CPUID has them");
}

#define MSR_STAR         0xc0000081u
#define MSR_LSTAR        0xc0000082u
#define MSR_SYSCALL_MASK 0xc0000084u

static int set_msr(struct probe_vm *vm, uint32_t index, uint64_t value)
{
	union {
		struct kvm_msrs list;
		uint8_t room[sizeof(struct kvm_msrs) + sizeof(struct kvm_msr_entry)];
	} msrs = { .list.nmsrs = 1 };

	msrs.list.entries[0].index = index;
	msrs.list.entries[0].data = value;
	return ioctl(vm->vcpu_fd, KVM_SET_MSRS, &msrs) == 1
		       ? 0
		       : error_set(-EINVAL, "cannot set MSR %#x: %m", index);
}

static int set_system_call_msrs(struct probe_vm *vm)
{
	int error = set_msr(vm, MSR_STAR, (uint64_t)PROBE_KERNEL_CODE << 32 | 0x23ull << 48);

	if (!error)
		error = set_msr(vm, MSR_LSTAR, PROBE_HANDLER);
	return error ? error : set_msr(vm, MSR_SYSCALL_MASK, 0);
}

/*
 * iretq to CPL3, as when a kernel starts a process: pushes ss, PROBE_USER_STACK, rflags (IOPL 3),
 * cs and PROBE_USER_CODE.
 */
static const uint8_t enter_user[] = {
	0x6a, PROBE_USER_DATA,    0x68, 0x00, 0x00, 0x03, 0x00, 0x68, 0x02, 0x30, 0x00, 0x00,
	0x6a, PROBE_USER_CODE_64, 0x68, 0x00, 0xa0, 0x00, 0x00, 0x48, 0xcf
};

static const uint8_t system_call[] = { 0x0f, 0x05, PROBE_END };

void probe_system_call(struct probe_row *row)
{
	struct probe_vm vm;

	if (probe_vm_open(&vm, enter_user, sizeof(enter_user), 0) || set_system_call_msrs(&vm)) {
		probe_report_error(row);
		return;
	}
	memcpy(vm.memory + PROBE_USER_CODE, system_call, sizeof(system_call));
	if (probe_vm_run(&vm) < 0)
		probe_report_error(row);
	else if (!probe_vm_ended(&vm) || probe_vm_value(&vm) != PROBE_HANDLER_VALUE)
		probe_report(row, PROBE_NO, "IRETQ to CPL3 and SYSCALL end with %s",
			     probe_vm_exit(&vm));
	else
		probe_report(row, PROBE_YES, "IRETQ to CPL3, SYSCALL back to CPL0");
}
