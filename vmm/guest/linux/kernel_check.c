/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/kernel_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/guest/linux/kernel_image.h"
#include "vmm/guest/page_walk.h"

#define GATE_SIZE  16 /* SDM vol. 3A 6.14.1 */
#define PAGE_FAULT 14

enum evidence { EVIDENCE_NONE, EVIDENCE_FOR, EVIDENCE_EARLY, EVIDENCE_AGAINST };

/* The handler of VECTOR. */
static int read_gate(const struct guest_view *view, const struct guest_paging *paging,
		     const struct guest_registers *registers, unsigned int vector,
		     uint64_t *handler)
{
	uint8_t gate[GATE_SIZE];
	uint16_t low, middle;
	uint32_t high;

	if ((vector + 1) * GATE_SIZE > registers->idt_limit + 1u ||
	    guest_read_virtual(view, paging, registers->idt_base + (uint64_t)vector * GATE_SIZE,
			       gate, sizeof(gate)))
		return -EFAULT;
	memcpy(&low, gate, 2);
	memcpy(&middle, gate + 6, 2);
	memcpy(&high, gate + 8, 4);
	*handler = low | (uint64_t)middle << 16 | (uint64_t)high << 32;
	return 0;
}

/*
 * Exception handlers are symbols of the entry code, to the byte; that of page
 * faults says so in its name. While the kernel starts they are one array of
 * stubs (arch/x86/kernel/head_64.S, early_idt_handler_array).
 */
static enum evidence check_gate(const struct symbols *symbols, unsigned int vector,
				uint64_t handler)
{
	struct symbol symbol;

	if (handler < KERNEL_IMAGE_START)
		return EVIDENCE_EARLY;
	if (!symbols_find(symbols, handler, &symbol))
		return EVIDENCE_AGAINST;
	if (!strcmp(symbol.name, "early_idt_handler_array"))
		return (vector == 0) == (symbol.start == handler) ? EVIDENCE_FOR : EVIDENCE_AGAINST;
	if (symbol.start != handler || (vector == PAGE_FAULT && !strstr(symbol.name, "page_fault")))
		return EVIDENCE_AGAINST;
	return EVIDENCE_FOR;
}

bool kernel_handles_exceptions(const struct guest_view *view,
			       const struct guest_registers *registers)
{
	uint64_t handler;

	return registers->paging.cr4 & CR4_FRED ||
	       (!read_gate(view, &registers->paging, registers, PAGE_FAULT, &handler) &&
		handler >= KERNEL_IMAGE_START);
}

static enum evidence check_idt(const struct symbols *symbols, const struct guest_view *view,
			       const struct guest_paging *paging,
			       const struct guest_registers *registers)
{
	static const unsigned int vectors[] = { 0, 6, 13, PAGE_FAULT };

	if (registers->paging.cr4 & CR4_FRED)
		return EVIDENCE_NONE;
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		enum evidence evidence;
		uint64_t handler;

		if (read_gate(view, paging, registers, vectors[i], &handler))
			return EVIDENCE_EARLY;
		evidence = check_gate(symbols, vectors[i], handler);
		if (evidence != EVIDENCE_FOR)
			return evidence;
	}
	return EVIDENCE_FOR;
}

/* "Linux version RELEASE (builder) (compiler) #number time" */
static void set_release(struct guest_kernel *kernel)
{
	if (sscanf(kernel->version_banner, "Linux version %64s", kernel->release) != 1)
		kernel->release[0] = '\0';
}

static enum evidence check_banner(struct guest_kernel *kernel, const struct guest_view *view,
				  const struct guest_paging *paging)
{
	static const char start[] = "Linux version ";
	struct symbol symbol;
	char banner[1024];

	if (!symbols_find_name(kernel->symbols, "linux_banner", &symbol))
		return EVIDENCE_NONE;
	if (guest_read_string(view, paging, symbol.start, banner, sizeof(banner)) ||
	    strncmp(banner, start, sizeof(start) - 1) != 0)
		return EVIDENCE_AGAINST;
	banner[strcspn(banner, "\n")] = '\0';
	snprintf(kernel->version_banner, sizeof(kernel->version_banner), "%.*s",
		 (int)sizeof(kernel->version_banner) - 1, banner);
	set_release(kernel);
	return EVIDENCE_FOR;
}

static int check_text(struct guest_kernel *kernel)
{
	struct symbol start, end;

	if ((!symbols_find_name(kernel->symbols, "_text", &start) &&
	     !symbols_find_name(kernel->symbols, "_stext", &start)) ||
	    !symbols_find_name(kernel->symbols, "_etext", &end) || start.start % 4096 ||
	    end.start <= start.start)
		return -EILSEQ;
	kernel->text_start = start.start;
	kernel->text_end = end.start;
	return 0;
}

int kernel_check(struct guest_kernel *kernel, const struct guest_view *view,
		 const struct guest_paging *paging, const struct guest_registers *registers)
{
	enum evidence banner, idt;

	if (check_text(kernel))
		return -EILSEQ;
	banner = check_banner(kernel, view, paging);
	idt = check_idt(kernel->symbols, view, paging, registers);
	if (banner == EVIDENCE_AGAINST || idt == EVIDENCE_AGAINST)
		return error_set(-EINVAL,
				 "symbols decoded for a kernel at %#" PRIx64
				 " disagree with the guest's %s: "
				 "addresses stay without names",
				 kernel->text_start,
				 idt == EVIDENCE_AGAINST ? "IDT" : "linux_banner");
	if (idt == EVIDENCE_EARLY)
		return error_set(
			-EAGAIN,
			"the guest's kernel is still starting: it handles no exceptions yet");
	if (banner == EVIDENCE_NONE && idt == EVIDENCE_NONE)
		return error_set(
			-EINVAL,
			"nothing confirms the symbols found in the guest: addresses stay without names");
	return 0;
}
