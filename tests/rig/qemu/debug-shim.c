/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LD_PRELOAD shim for Debian 12's qemu-system-x86_64 (7.2, TCG): debug registers for guests of an
 * emulated SVM machine.
 *
 * A hypervisor on QEMU's emulated SVM cannot debug its guest, because three things differ from the
 * processor (AMD APM volume 2, 15.12 to 15.15 and 13.1), all in QEMU's
 * target/i386/tcg/sysemu/svm_helper.c. This shim fixes them in the running program, so that
 * Debian's package can be used unmodified:
 *
 * 1. VMRUN and #VMEXIT load DR7 without arming its breakpoints. DR7 is the only field read by
 * x86_ldq_phys() at offset 0x560 of a VMCB; the shim calls cpu_x86_update_dr7() there, which arms
 * them.
 * 2. INT3 is treated as a software interrupt (intercept SWINT), so that KVM_GUESTDBG_USE_SW_BP
 * never sees it; it is exception 3.
 * 3. DR7.GD is not implemented: a guest's MOV DR must raise #DB with DR6.BD before the intercept
 * for debug registers is checked.
 *
 * 2 and 3 use cpu_svm_check_intercept_param(env, type, ...). Debian's binary exports all these
 * functions, because its devices are modules. The required offsets are read from the functions'
 * code, and nothing is changed if the code is not as expected.
 *
 * Prints "debug-shim: active" to standard error if everything is in place, or "debug-shim: ..."
 * with the reason if not. Silent in programs other than QEMU.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Intercept codes of AMD APM volume 2, appendix C. */
enum {
	EXIT_READ_DR0 = 0x20,
	EXIT_WRITE_DR15 = 0x3f,
	EXIT_EXCEPTION_DB = 0x41,
	EXIT_EXCEPTION_BP = 0x43,
	EXIT_SWINT = 0x75,
};

#define VMCB_SAVE_DR7 0x560 /* control area 0x400, then 0x160 in the save area */
#define DR6_BD        (UINT64_C(1) << 13)
#define DR7_GD        (UINT64_C(1) << 13)
#define OPCODE_INT3   0xcc
#define ENV_EIP       (16 * sizeof(uint64_t)) /* struct CPUArchState: regs[16], then eip */

/* x86: jmp *0(%rip), followed by the address */
enum { JUMP_SIZE = 14, GUARD_SIZE = 16 };

typedef void check_intercept(void *env, uint32_t type, uint64_t param, uintptr_t return_address);

/* QEMU's own functions, by their QEMU names. */
static struct {
	uint8_t *cpu_svm_check_intercept_param;
	uint8_t *x86_ldq_phys;
	void (*cpu_x86_update_dr7)(void *env, uint32_t dr7);
	void (*cpu_physical_memory_rw)(uint64_t address, void *buffer, uint64_t size, bool write);
	uint32_t (*cpu_ldub_code)(void *env, uint64_t address);
} qemu;

/* The layout, as read from their code. */
static struct {
	uint32_t hflags;  /* byte of CPUArchState.hflags that holds the guest-mode flag */
	uint8_t in_guest; /* the flag in it */
	uint32_t dr7;     /* CPUArchState.dr[7] */
	uint32_t env;     /* offset of CPUArchState in X86CPU, which begins with a CPUState */
	check_intercept *check_intercept_body; /* the code after the test for guest mode */
} layout;

static bool in_guest_mode(const uint8_t *env)
{
	return env[layout.hflags] & layout.in_guest;
}

static bool is_int3(uint8_t *env)
{
	uint64_t eip;

	memcpy(&eip, env + ENV_EIP, sizeof(eip));
	return qemu.cpu_ldub_code(env, eip) == OPCODE_INT3;
}

/* The #DB of a MOV DR with DR7.GD set: sets DR6.BD and clears GD, as the processor does. */
static bool raise_general_detect(uint8_t *env)
{
	uint64_t *dr7 = (uint64_t *)(env + layout.dr7), *dr6 = dr7 - 1;

	if (!(*dr7 & DR7_GD))
		return false;
	*dr6 |= DR6_BD;
	*dr7 &= ~DR7_GD;
	return true;
}

static void replaced_check_intercept(void *env, uint32_t type, uint64_t param,
				     uintptr_t return_address)
{
	if (!in_guest_mode(env))
		return;
	if (type == EXIT_SWINT && is_int3(env))
		type = EXIT_EXCEPTION_BP;
	else if (type >= EXIT_READ_DR0 && type <= EXIT_WRITE_DR15 && raise_general_detect(env))
		type = EXIT_EXCEPTION_DB;
	layout.check_intercept_body(env, type, param, return_address);
}

static uint64_t replaced_ldq_phys(uint8_t *cpu, uint64_t address)
{
	uint64_t value = 0;

	qemu.cpu_physical_memory_rw(address, &value, sizeof(value), false);
	if ((address & 0xfff) == VMCB_SAVE_DR7 && !(value >> 32))
		qemu.cpu_x86_update_dr7(cpu + layout.env, value);
	return value;
}

static bool find_functions(void)
{
	qemu.cpu_svm_check_intercept_param = dlsym(RTLD_DEFAULT, "cpu_svm_check_intercept_param");
	qemu.x86_ldq_phys = dlsym(RTLD_DEFAULT, "x86_ldq_phys");
	qemu.cpu_x86_update_dr7 = dlsym(RTLD_DEFAULT, "cpu_x86_update_dr7");
	qemu.cpu_physical_memory_rw = dlsym(RTLD_DEFAULT, "cpu_physical_memory_rw");
	qemu.cpu_ldub_code = dlsym(RTLD_DEFAULT, "cpu_ldub_code");
	return qemu.cpu_svm_check_intercept_param && qemu.x86_ldq_phys && qemu.cpu_x86_update_dr7 &&
	       qemu.cpu_physical_memory_rw && qemu.cpu_ldub_code;
}

/* Expects: testb $in_guest, hflags(%rdi); jne over; ret; padding to GUARD_SIZE; over: the body. */
static bool read_guest_mode_test(void)
{
	const uint8_t *code = qemu.cpu_svm_check_intercept_param;

	if (code[0] != 0xf6 || code[1] != 0x87 || code[7] != 0x75 || code[8] != GUARD_SIZE - 9 ||
	    code[9] != 0xc3)
		return false;
	memcpy(&layout.hflags, code + 2, sizeof(layout.hflags));
	layout.in_guest = code[6];
	layout.check_intercept_body =
		(check_intercept *)(qemu.cpu_svm_check_intercept_param + GUARD_SIZE);
	return true;
}

/*
 * The 32-bit displacement of the first instruction in CODE with these OPCODE bytes; 0: not found.
 */
static int32_t find_displacement(const uint8_t *code, size_t size, const uint8_t opcode[3])
{
	int32_t displacement;

	for (size_t i = 0; i + 7 <= size; i++) {
		if (memcmp(code + i, opcode, 3))
			continue;
		memcpy(&displacement, code + i + 3, sizeof(displacement));
		return displacement;
	}
	return 0;
}

static bool read_layout(void)
{
	static const uint8_t lea_rdi_r14[3] = { 0x4c, 0x8d,
						0xb7 }; /* env_cpu(env): a negative displacement */
	static const uint8_t mov_rdi_rax[3] = { 0x48, 0x8b, 0x87 }; /* env->dr[7] */
	int32_t env, dr7;

	if (!read_guest_mode_test())
		return false;
	env = find_displacement((const uint8_t *)layout.check_intercept_body, 192, lea_rdi_r14);
	dr7 = find_displacement((const uint8_t *)qemu.cpu_x86_update_dr7, 56, mov_rdi_rax);
	if (env >= 0 || dr7 <= 0)
		return false;
	layout.env = -env;
	layout.dr7 = dr7;
	return true;
}

/* Makes FUNCTION jump to TARGET. FUNCTION may cross a page boundary. */
static bool redirect(uint8_t *function, uintptr_t target)
{
	uintptr_t page_size = sysconf(_SC_PAGESIZE), page = (uintptr_t)function & ~(page_size - 1);
	uint8_t jump[JUMP_SIZE] = { 0xff, 0x25 };

	memcpy(jump + 6, &target, sizeof(target));
	if (mprotect((void *)page, 2 * page_size, PROT_READ | PROT_WRITE | PROT_EXEC))
		return false;
	memcpy(function, jump, sizeof(jump));
	return !mprotect((void *)page, 2 * page_size, PROT_READ | PROT_EXEC);
}

__attribute__((constructor)) static void mend(void)
{
	if (!find_functions())
		return;
	if (!read_layout())
		fprintf(stderr,
			"debug-shim: unknown build of QEMU, nothing is fixed; Debian 12's 7.2 is supported\n");
	else if (!redirect(qemu.cpu_svm_check_intercept_param,
			   (uintptr_t)replaced_check_intercept) ||
		 !redirect(qemu.x86_ldq_phys, (uintptr_t)replaced_ldq_phys))
		fprintf(stderr, "debug-shim: cannot make QEMU's code writable: %m\n");
	else
		fprintf(stderr, "debug-shim: active\n");
}
