/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/qmp_text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/attach/process.h"

/* Hexadecimal digits of 64 bits. */
#define DIGITS_MAX 16
#define CS_LONG    (1ull << 21) /* the L bit of a segment: SDM vol. 3A 3.4.5 */

/* The text of one vCPU. */
struct text {
	const char *start, *end;
};

/* A name begins a line or follows a space: "CS =" does not match "GCS =". */
static const char *find_name(struct text text, const char *name)
{
	const char *at;

	while ((at = memmem(text.start, (size_t)(text.end - text.start), name, strlen(name)))) {
		if (at == text.start || isspace((unsigned char)at[-1]))
			return at + strlen(name);
		text.start = at + 1;
	}
	return NULL;
}

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads a hexadecimal number after spaces. Returns its end, or NULL. */
static const char *read_number(const char *at, const char *end, uint64_t *number)
{
	unsigned int digits = 0;

	*number = 0;
	while (at < end && *at == ' ')
		at++;
	for (; at < end && digit_of(*at) >= 0; at++) {
		if (++digits > DIGITS_MAX)
			return NULL;
		*number = *number << 4 | (uint64_t)digit_of(*at);
	}
	return digits ? at : NULL;
}

static bool get(struct text text, const char *name, uint64_t *number)
{
	const char *at = find_name(text, name);

	return at && read_number(at, text.end, number);
}

/* "CS =0010 0000000000000000 ffffffff 00af9b00 ...": selector, base, limit, flags. */
static bool get_segment(struct text text, const char *name, uint64_t *base, uint64_t *flags)
{
	const char *at = find_name(text, name);
	uint64_t selector, limit;

	return at && (at = read_number(at, text.end, &selector)) &&
	       (at = read_number(at, text.end, base)) && (at = read_number(at, text.end, &limit)) &&
	       read_number(at, text.end, flags);
}

/* "IDT=     fffffe0000000000 00000fff" */
static bool get_table(struct text text, const char *name, uint64_t *base, uint64_t *limit)
{
	const char *at = find_name(text, name);

	return at && (at = read_number(at, text.end, base)) && read_number(at, text.end, limit);
}

static bool get_general(struct text text, struct guest_registers *registers)
{
	return get(text, "RAX=", &registers->rax) && get(text, "RBX=", &registers->rbx) &&
	       get(text, "RCX=", &registers->rcx) && get(text, "RDX=", &registers->rdx) &&
	       get(text, "RSI=", &registers->rsi) && get(text, "RDI=", &registers->rdi) &&
	       get(text, "RBP=", &registers->rbp) && get(text, "RSP=", &registers->rsp) &&
	       get(text, "R8 =", &registers->r8) && get(text, "R9 =", &registers->r9) &&
	       get(text, "R10=", &registers->r10) && get(text, "R11=", &registers->r11) &&
	       get(text, "R12=", &registers->r12) && get(text, "R13=", &registers->r13) &&
	       get(text, "R14=", &registers->r14) && get(text, "R15=", &registers->r15) &&
	       get(text, "RIP=", &registers->rip);
}

/* Outside of 64-bit mode QEMU shows 32-bit registers only. */
static bool get_general_32(struct text text, struct guest_registers *registers)
{
	return get(text, "EAX=", &registers->rax) && get(text, "EBX=", &registers->rbx) &&
	       get(text, "ECX=", &registers->rcx) && get(text, "EDX=", &registers->rdx) &&
	       get(text, "ESI=", &registers->rsi) && get(text, "EDI=", &registers->rdi) &&
	       get(text, "EBP=", &registers->rbp) && get(text, "ESP=", &registers->rsp) &&
	       get(text, "EIP=", &registers->rip);
}

static bool get_system(struct text text, struct guest_registers *registers)
{
	uint64_t limit, ignored;

	if (!get_table(text, "IDT=", &registers->idt_base, &limit) || limit > UINT16_MAX ||
	    !get_table(text, "GDT=", &registers->gdt_base, &ignored) ||
	    !get_segment(text, "GS =", &registers->gs_base, &ignored))
		return false;
	registers->idt_limit = (uint16_t)limit;
	return get(text, "CR0=", &registers->paging.cr0) &&
	       get(text, "CR3=", &registers->paging.cr3) &&
	       get(text, "CR4=", &registers->paging.cr4) &&
	       get(text, "EFER=", &registers->paging.efer);
}

static bool get_code_segment(struct text text, struct guest_registers *registers)
{
	uint64_t base, flags, cpl;

	if (!get_segment(text, "CS =", &base, &flags) || !get(text, "CPL=", &cpl) || cpl > 3)
		return false;
	registers->long_mode = flags & CS_LONG;
	registers->cpl = (uint8_t)cpl;
	if (!registers->long_mode)
		registers->rip += base;
	return true;
}

static bool get_flag(struct text text, const char *name, bool *flag)
{
	uint64_t number;

	if (!get(text, name, &number) || number > 1)
		return false;
	*flag = number;
	return true;
}

static bool parse_vcpu(struct text text, struct qmp_registers *registers)
{
	struct guest_registers *found = &registers->registers;

	return (get_general(text, found) || get_general_32(text, found)) &&
	       (get(text, "RFL=", &found->rflags) || get(text, "EFL=", &found->rflags)) &&
	       get_flag(text, "HLT=", &registers->halted) &&
	       get_flag(text, "SMM=", &registers->smm) && get_code_segment(text, found) &&
	       get_system(text, found);
}

/* "CPU#3" and white space. */
static bool parse_heading(const char *at, const char **end, unsigned int *id)
{
	*id = 0;
	for (; isdigit((unsigned char)*at); at++) {
		*id = *id * 10 + (unsigned int)(*at - '0');
		if (*id >= VMM_VCPUS_MAX)
			return false;
	}
	*end = at;
	return isspace((unsigned char)*at);
}

bool qmp_parse_registers(const char **text, struct qmp_registers *registers)
{
	static const char heading[] = "CPU#";
	const char *at = *text;

	while ((at = strstr(at, heading))) {
		struct text vcpu;
		const char *next;

		at += strlen(heading);
		*registers = (struct qmp_registers){ 0 };
		next = strstr(at, heading);
		vcpu.end = next ? next : at + strlen(at);
		*text = vcpu.end;
		if (parse_heading(at, &vcpu.start, &registers->id) && parse_vcpu(vcpu, registers))
			return true;
	}
	return false;
}

static int check_target(const json_t *vcpu)
{
	const char *target = json_string_value(json_object_get(vcpu, "target"));

	if (!target || !strcmp(target, "x86_64") || !strcmp(target, "i386"))
		return 0;
	return error_set(-ENOTSUP, "the guest is not x86 but %.16s", target);
}

static bool parse_vcpu_thread(const json_t *from, struct qmp_vcpu *vcpu)
{
	const json_t *id = json_object_get(from, "cpu-index"),
		     *tid = json_object_get(from, "thread-id");

	if (!json_is_integer(id) || json_integer_value(id) < 0 ||
	    json_integer_value(id) >= VMM_VCPUS_MAX || !json_is_integer(tid) ||
	    json_integer_value(tid) <= 0 || json_integer_value(tid) > INT32_MAX)
		return false;
	*vcpu = (struct qmp_vcpu){ .id = (unsigned int)json_integer_value(id),
				   .tid = (pid_t)json_integer_value(tid) };
	return true;
}

static bool has(const struct qmp_vcpu *vcpus, size_t count, unsigned int id)
{
	for (size_t i = 0; i < count; i++)
		if (vcpus[i].id == id)
			return true;
	return false;
}

int qmp_parse_vcpus(const json_t *result, struct qmp_vcpu *vcpus, size_t max)
{
	size_t count = 0, index;
	json_t *from;

	if (!json_is_array(result))
		return error_set(-EPROTO, "QEMU's monitor reports no vCPUs");
	json_array_foreach(result, index, from)
	{
		int error = check_target(from);

		if (error)
			return error;
		if (count == max || !parse_vcpu_thread(from, &vcpus[count]) ||
		    has(vcpus, count, vcpus[count].id))
			return error_set(-EPROTO, "QEMU's monitor reports inconsistent vCPUs");
		count++;
	}
	return (int)count;
}

/* GPAs have at most 52 bits (SDM vol. 3A 4.1.4). */
#define GPA_END       (1ull << 52)
#define TEXT_LINE_MAX 256

/* The next line of TEXT, truncated; false: none. */
static bool next_line(const char **text, char *line, size_t size)
{
	size_t length = strcspn(*text, "\r\n");

	if (!**text)
		return false;
	snprintf(line, size, "%.*s", length < size ? (int)length : (int)size - 1, *text);
	*text += length;
	if (**text == '\r')
		++*text;
	if (**text == '\n')
		++*text;
	return true;
}

/* "  0000000000100000-000000000fffffff (prio 0, ram): pc.ram @0000000000100000" */
static bool parse_range(const char *line, struct vmm_slot *slot)
{
	uint64_t first, last;
	char kind[8];

	if (sscanf(line, " %" SCNx64 "-%" SCNx64 " (prio %*d, %7[a-z]", &first, &last, kind) != 3 ||
	    (strcmp(kind, "ram") != 0 && strcmp(kind, "rom") != 0) || last < first ||
	    last >= GPA_END)
		return false;
	*slot = (struct vmm_slot){ .gpa = first, .size = last - first + 1 };
	return true;
}

/* The lines of the flat view " AS "memory", root: system", up to an empty line. */
static const char *find_view(const char *text)
{
	char line[TEXT_LINE_MAX];

	while (next_line(&text, line, sizeof(line)))
		if (!strncmp(line, " AS \"memory\",", strlen(" AS \"memory\",")))
			return text;
	return NULL;
}

size_t qmp_parse_memory(const char *text, struct vmm_slot *slots, size_t max)
{
	const char *view = find_view(text);
	char line[TEXT_LINE_MAX];
	uint64_t end = 0;
	size_t count = 0;

	while (view && next_line(&view, line, sizeof(line)) && *line) {
		struct vmm_slot slot;

		if (!parse_range(line, &slot))
			continue;
		if (count == max || slot.gpa < end)
			return 0;
		slots[count++] = slot;
		end = slot.gpa + slot.size;
	}
	return count;
}

bool qmp_parse_hva(const char *text, uint64_t *hva)
{
	const char *at = strstr(text, ") is 0x");

	return at && sscanf(at, ") is 0x%" SCNx64, hva) == 1 && *hva && *hva <= INT64_MAX;
}
