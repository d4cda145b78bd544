/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/exit_report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "shared/error.h"
#include "vmm/kvm/vcpu_debug.h"

#define INSTRUCTION_SIZE_MAX 15

typedef unsigned long long ull;

/* --- names of instructions ------------------------------------------------------- */

#define ANY (-1)

enum prefix { PREFIX_NONE, PREFIX_66, PREFIX_F2, PREFIX_F3 };

/*
 * OPCODE follows 0x0f unless one_byte is set. Unless it is PREFIX_NONE, PREFIX must be present.
 * MODRM is the whole byte; REG is its middle field, and MEMORY selects a memory or a register
 * operand (SDM vol. 2, app. A).
 */
struct pattern {
	const char *name;
	enum prefix prefix;
	int modrm, reg;
	uint8_t opcode;
	bool one_byte;
	bool memory;
};

static const struct pattern patterns[] = {
	{ "FWAIT", PREFIX_NONE, ANY, ANY, 0x9b, true, false },
	{ "INT", PREFIX_NONE, ANY, ANY, 0xcd, true, false },
	{ "STAC", PREFIX_NONE, 0xcb, ANY, 0x01, false, false },
	{ "CLAC", PREFIX_NONE, 0xca, ANY, 0x01, false, false },
	{ "XGETBV", PREFIX_NONE, 0xd0, ANY, 0x01, false, false },
	{ "SWAPGS", PREFIX_NONE, 0xf8, ANY, 0x01, false, false },
	{ "RDTSCP", PREFIX_NONE, 0xf9, ANY, 0x01, false, false },
	{ "VERW", PREFIX_NONE, ANY, 5, 0x00, false, false },
	{ "VERW", PREFIX_NONE, ANY, 5, 0x00, false, true },
	{ "XSAVE", PREFIX_NONE, ANY, 4, 0xae, false, true },
	{ "XRSTOR", PREFIX_NONE, ANY, 5, 0xae, false, true },
	{ "XSAVEOPT", PREFIX_NONE, ANY, 6, 0xae, false, true },
	{ "RDFSBASE", PREFIX_F3, ANY, 0, 0xae, false, false },
	{ "RDGSBASE", PREFIX_F3, ANY, 1, 0xae, false, false },
	{ "WRFSBASE", PREFIX_F3, ANY, 2, 0xae, false, false },
	{ "WRGSBASE", PREFIX_F3, ANY, 3, 0xae, false, false },
	{ "CMPXCHG16B", PREFIX_NONE, ANY, 1, 0xc7, false, true },
	{ "XRSTORS", PREFIX_NONE, ANY, 3, 0xc7, false, true },
	{ "XSAVEC", PREFIX_NONE, ANY, 4, 0xc7, false, true },
	{ "XSAVES", PREFIX_NONE, ANY, 5, 0xc7, false, true },
	{ "RDRAND", PREFIX_NONE, ANY, 6, 0xc7, false, false },
	{ "RDSEED", PREFIX_NONE, ANY, 7, 0xc7, false, false },
	{ "POPCNT", PREFIX_F3, ANY, ANY, 0xb8, false, false },
	{ "TZCNT", PREFIX_F3, ANY, ANY, 0xbc, false, false },
	{ "LZCNT", PREFIX_F3, ANY, ANY, 0xbd, false, false },
	{ "ENDBR", PREFIX_F3, 0xfa, ANY, 0x1e, false, false },
};

static bool is_legacy_prefix(uint8_t byte)
{
	return byte && strchr("\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3", byte);
}

static enum prefix prefix_of(uint8_t byte, enum prefix before)
{
	if (byte == 0xf2 || byte == 0xf3)
		return byte == 0xf2 ? PREFIX_F2 : PREFIX_F3;
	return byte == 0x66 && before == PREFIX_NONE ? PREFIX_66 : before;
}

static bool matches(const struct pattern *pattern, bool one_byte, uint8_t opcode,
		    enum prefix prefix, int modrm)
{
	if (pattern->one_byte != one_byte || pattern->opcode != opcode)
		return false;
	if (pattern->prefix != PREFIX_NONE && pattern->prefix != prefix)
		return false;
	if (pattern->modrm != ANY)
		return modrm == pattern->modrm;
	if (pattern->reg != ANY)
		return modrm >= 0 && (modrm >> 3 & 7) == pattern->reg &&
		       pattern->memory == (modrm >> 6 != 3);
	return true;
}

const char *instruction_name(const uint8_t *bytes, size_t size)
{
	enum prefix prefix = PREFIX_NONE;
	bool one_byte = true;
	size_t at = 0;
	int modrm;

	while (at < size && is_legacy_prefix(bytes[at]))
		prefix = prefix_of(bytes[at++], prefix);
	if (at < size && (bytes[at] & 0xf0) == 0x40) /* REX */
		at++;
	if (at < size && bytes[at] == 0x0f) {
		one_byte = false;
		at++;
	}
	if (at >= size)
		return NULL;
	if (one_byte && (bytes[at] == 0xc4 || bytes[at] == 0xc5))
		return "VEX-encoded instructions (AVX, BMI)";
	modrm = at + 1 < size ? bytes[at + 1] : ANY;
	for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
		if (matches(&patterns[i], one_byte, bytes[at], prefix, modrm))
			return patterns[i].name;
	return NULL;
}

/* --- messages ------------------------------------------------------------------- */

static void format_registers(struct vcpu *vcpu, char *text, size_t size)
{
	const struct kvm_regs *r = vcpu_registers(vcpu);
	const struct kvm_sregs *s = vcpu_special_registers(vcpu);

	snprintf(text, size,
		 "  rip %016llx rflags %08llx cs %04x ss %04x cpl %u\n"
		 "  rax %016llx rbx %016llx rcx %016llx rdx %016llx\n"
		 "  rsi %016llx rdi %016llx rsp %016llx rbp %016llx\n"
		 "  cr0 %08llx cr2 %016llx cr3 %016llx cr4 %08llx efer %llx idt %llx+%x",
		 (ull)r->rip, (ull)r->rflags, s->cs.selector, s->ss.selector, s->ss.dpl,
		 (ull)r->rax, (ull)r->rbx, (ull)r->rcx, (ull)r->rdx, (ull)r->rsi, (ull)r->rdi,
		 (ull)r->rsp, (ull)r->rbp, (ull)s->cr0, (ull)s->cr2, (ull)s->cr3, (ull)s->cr4,
		 (ull)s->efer, (ull)s->idt.base, s->idt.limit);
}

/* Copies the bytes that KVM could not execute: those it reports, else those at RIP. */
static size_t failed_instruction(struct vcpu *vcpu, uint8_t *bytes)
{
	const struct kvm_run *run = vcpu->run;

	if (run->internal.ndata >= 1 + (1 + INSTRUCTION_SIZE_MAX + 7) / 8 &&
	    run->emulation_failure.flags & KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES &&
	    run->emulation_failure.insn_size &&
	    run->emulation_failure.insn_size <= INSTRUCTION_SIZE_MAX) {
		memcpy(bytes, run->emulation_failure.insn_bytes, run->emulation_failure.insn_size);
		return run->emulation_failure.insn_size;
	}
	return vcpu_read_virtual(vcpu,
				 vcpu_special_registers(vcpu)->cs.base + vcpu_registers(vcpu)->rip,
				 bytes, INSTRUCTION_SIZE_MAX);
}

static void format_bytes(const uint8_t *bytes, size_t count, char *text, size_t size)
{
	size_t length = 0;

	snprintf(text, size, "not readable");
	for (size_t i = 0; i < count && length < size; i++)
		length += (size_t)snprintf(text + length, size - length, i ? " %02x" : "%02x",
					   bytes[i]);
}

/* Sets the message "vCPU N: FORMAT", with the registers on the lines after it. */
static void __attribute__((format(printf, 3, 4)))
report(struct vcpu *vcpu, int error, const char *format, ...)
{
	char reason[400], registers[512];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	format_registers(vcpu, registers, sizeof(registers));
	error_set(error, "vCPU %u: %s\n%s", vcpu->index, reason, registers);
}

static void report_emulation_failure(struct vcpu *vcpu)
{
	uint8_t bytes[INSTRUCTION_SIZE_MAX];
	char text[INSTRUCTION_SIZE_MAX * 3 + 16];
	size_t count = failed_instruction(vcpu, bytes);
	const char *name = instruction_name(bytes, count);
	bool kernel = vcpu_special_registers(vcpu)->ss.dpl == 0;

	format_bytes(bytes, count, text, sizeof(text));
	report(vcpu, -ENOTSUP,
	       "KVM could not execute the guest's instruction at RIP %#llx (bytes: %s): this KVM "
	       "interprets guest %s code and does not know %s; see kvmscope doctor",
	       (ull)vcpu_registers(vcpu)->rip, text, kernel ? "kernel" : "user",
	       name ? name : "these bytes");
}

static const char *suberror_name(uint32_t suberror)
{
	switch (suberror) {
	case KVM_INTERNAL_ERROR_SIMUL_EX:
		return "another exception while KVM delivered one";
	case KVM_INTERNAL_ERROR_DELIVERY_EV:
		return "an exit while KVM delivered an event; is the IDT or the stack outside of RAM?";
	case KVM_INTERNAL_ERROR_UNEXPECTED_EXIT_REASON:
		return "a hardware exit that KVM did not expect";
	default:
		return "unknown";
	}
}

enum vcpu_end exit_report(struct vcpu *vcpu)
{
	const struct kvm_run *run = vcpu->run;

	switch (run->exit_reason) {
	case KVM_EXIT_SHUTDOWN:
		report(vcpu, -EIO,
		       "triple fault: the guest could handle neither an exception nor the double "
		       "fault after it");
		return VCPU_END_SHUTDOWN;
	case KVM_EXIT_INTERNAL_ERROR:
		if (run->internal.suberror == KVM_INTERNAL_ERROR_EMULATION)
			report_emulation_failure(vcpu);
		else
			report(vcpu, -EIO,
			       "KVM_EXIT_INTERNAL_ERROR, suberror %u (%s), data %#llx %#llx; the "
			       "guest cannot continue",
			       run->internal.suberror, suberror_name(run->internal.suberror),
			       (ull)run->internal.data[0], (ull)run->internal.data[1]);
		break;
	case KVM_EXIT_FAIL_ENTRY:
		report(vcpu, -EIO,
		       "the processor refused to enter the guest, hardware reason %#llx: its state "
		       "is not valid",
		       (ull)run->fail_entry.hardware_entry_failure_reason);
		break;
	default:
		report(vcpu, -EIO, "KVM exit with unknown reason %u; see <linux/kvm.h>",
		       run->exit_reason);
	}
	return VCPU_END_INTERNAL_ERROR;
}

void exit_report_run_failed(struct vcpu *vcpu, int error)
{
	report(vcpu, -error, "KVM_RUN failed: %s; see kvmscope doctor and the host's kernel log",
	       strerror(error));
}
