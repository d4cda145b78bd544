/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel is found by its kallsyms. The decoded symbols must agree with what the CPU itself uses
 * (its IDT) and with the kernel's banner.
 */
#include "vmm/guest/linux/kernel_search.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "shared/error.h"
#include "vmm/guest/linux/kallsyms.h"
#include "vmm/guest/linux/kernel_image.h"
#include "vmm/guest/page_walk.h"

#define CANDIDATES_MAX 16
#define GATE_SIZE      16 /* SDM vol. 3A 6.14.1; in 32-bit mode 8 (6.11) */
#define PAGE_FAULT     14

enum evidence { EVIDENCE_NONE, EVIDENCE_FOR, EVIDENCE_EARLY, EVIDENCE_AGAINST };

/* The guest, and the CR3 that is tried. */
struct search {
	const struct guest_view *view;
	const struct guest_registers *registers;
	struct guest_paging paging;
	struct guest_kernel *kernel;
};

/* Bytes copied around a token index: enough for most kernels, then for any. */
static const struct {
	uint64_t before, after;
} windows[] = { { 5ull << 20, 2ull << 20 }, { 24ull << 20, 12ull << 20 } };

/* Reads the handler of VECTOR from the IDT. */
static int read_gate(const struct guest_view *view, const struct guest_paging *paging,
		     const struct guest_registers *registers, unsigned int vector,
		     uint64_t *handler)
{
	unsigned int size = guest_paging_is_32bit(paging) ? GATE_SIZE / 2 : GATE_SIZE;
	uint8_t gate[GATE_SIZE] = { 0 };
	uint16_t low, middle;
	uint32_t high;

	if ((vector + 1) * size > registers->idt_limit + 1u ||
	    guest_read_virtual(view, paging, registers->idt_base + (uint64_t)vector * size, gate,
			       size))
		return -EFAULT;
	memcpy(&low, gate, 2);
	memcpy(&middle, gate + 6, 2);
	memcpy(&high, gate + 8, 4);
	*handler = low | (uint64_t)middle << 16 | (uint64_t)high << 32;
	return 0;
}

/*
 * Exception handlers start exactly at symbols of the entry code, and the one for page faults has
 * that in its name. While the kernel starts, they are one array of stubs
 * (arch/x86/kernel/head_64.S, early_idt_handler_array).
 */
static enum evidence check_gate(const struct symbols *symbols, const struct guest_paging *paging,
				unsigned int vector, uint64_t handler)
{
	struct symbol symbol;

	if (handler < kernel_image_start(paging))
		return EVIDENCE_EARLY;
	if (!symbols_find(symbols, handler, &symbol))
		return EVIDENCE_AGAINST;
	if (!strcmp(symbol.name, "early_idt_handler_array"))
		return (vector == 0) == (symbol.start == handler) ? EVIDENCE_FOR : EVIDENCE_AGAINST;
	if (symbol.start != handler || (vector == PAGE_FAULT && !strstr(symbol.name, "page_fault")))
		return EVIDENCE_AGAINST;
	return EVIDENCE_FOR;
}

/* Is the page fault handler in the kernel image? Before that no symbols can be confirmed. */
static bool handles_exceptions(const struct guest_view *view,
			       const struct guest_registers *registers)
{
	uint64_t handler;

	return registers->paging.cr4 & CR4_FRED ||
	       (!read_gate(view, &registers->paging, registers, PAGE_FAULT, &handler) &&
		handler >= kernel_image_start(&registers->paging));
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
		evidence = check_gate(symbols, paging, vectors[i], handler);
		if (evidence != EVIDENCE_FOR)
			return evidence;
	}
	return EVIDENCE_FOR;
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
	/* "Linux version RELEASE (builder) (compiler) #number time" */
	if (sscanf(banner, "Linux version %64s", kernel->release) != 1)
		kernel->release[0] = '\0';
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

/*
 * Checks the finished symbols against guest memory, and fills in text_start, text_end,
 * version_banner and release. 0; -EAGAIN if the kernel is only starting, -EINVAL if the symbols are
 * not its own, with a message; -EILSEQ, without one, if they are not a kernel's.
 */
static int check_kernel(struct search *search)
{
	struct guest_kernel *kernel = search->kernel;
	enum evidence banner, idt;

	if (check_text(kernel))
		return -EILSEQ;
	banner = check_banner(kernel, search->view, &search->paging);
	idt = check_idt(kernel->symbols, search->view, &search->paging, search->registers);
	if (banner == EVIDENCE_AGAINST || idt == EVIDENCE_AGAINST)
		return error_set(-EINVAL,
				 "symbols decoded for a kernel at %#" PRIx64
				 " disagree with the guest's %s: "
				 "addresses stay unsymbolized",
				 kernel->text_start,
				 idt == EVIDENCE_AGAINST ? "IDT" : "linux_banner");
	if (idt == EVIDENCE_EARLY)
		return error_set(
			-EAGAIN,
			"the guest's kernel is still starting: it handles no exceptions yet");
	if (banner == EVIDENCE_NONE && idt == EVIDENCE_NONE)
		return error_set(
			-EINVAL,
			"nothing confirms the symbols found in the guest: addresses stay unsymbolized");
	return 0;
}

/* A symbol ends at the next higher one, which *NEXT is moved to; the last at the end of its page.
 */
static uint64_t size_of_symbol(const struct kallsyms *kallsyms, uint32_t *next, uint64_t start)
{
	for (; *next < kallsyms->count; ++*next) {
		uint64_t end = kallsyms_address(kallsyms, *next);

		if (end > start)
			return end - start;
	}
	return 4096 - start % 4096;
}

/* Until 6.14 per-CPU symbols are offsets, not addresses. */
static int add_all(struct symbols *symbols, struct symbols *per_cpu,
		   const struct kallsyms *kallsyms, uint64_t image_start)
{
	char name[KALLSYMS_NAME_MAX], type;
	uint64_t position = 0;
	uint32_t next = 0;

	for (uint32_t i = 0; i < kallsyms->count; i++) {
		uint64_t address = kallsyms_address(kallsyms, i);

		if (kallsyms_next_name(kallsyms, &position, &type, name))
			return -EINVAL;
		if (symbols_add(address < image_start ? per_cpu : symbols, address,
				size_of_symbol(kallsyms, &next, address), type, name, NULL))
			return -ENOMEM;
	}
	return 0;
}

static int build(struct search *search, const struct kallsyms *kallsyms)
{
	struct guest_kernel *kernel = search->kernel;
	int error;

	symbols_free(kernel->symbols);
	symbols_free(kernel->per_cpu);
	kernel->symbols = symbols_new();
	kernel->per_cpu = symbols_new();
	if (!kernel->symbols || !kernel->per_cpu)
		return -ENOMEM;
	error = add_all(kernel->symbols, kernel->per_cpu, kallsyms,
			kernel_image_start(&search->paging));
	symbols_finish(kernel->symbols);
	symbols_finish(kernel->per_cpu);
	return error;
}

/* Builds and checks the symbol table with the current encoding of addresses. */
static int build_and_check(struct search *search, const struct kallsyms *kallsyms)
{
	int error = build(search, kallsyms);

	if (error == -EINVAL)
		return error_set(
			error,
			"the guest's kallsyms has invalid names: addresses stay unsymbolized");
	if (error)
		return error_set(error, "no memory for the guest kernel's symbols");
	return check_kernel(search);
}

/* Uses the first encoding that guest data confirms; otherwise the error of the last valid one. */
static int try_all_addresses(struct search *search, struct kallsyms *kallsyms)
{
	int result =
		error_set(-EINVAL, "the guest's kallsyms has addresses in an unknown encoding: "
				   "addresses stay unsymbolized");

	for (unsigned int form = 0;; form++) {
		int error = kallsyms_try_addresses(kallsyms, form);

		if (error == -ERANGE)
			return result;
		if (error)
			continue;
		error = build_and_check(search, kallsyms);
		if (error != -EINVAL && error != -EILSEQ)
			return error;
	}
}

static int try_window(struct search *search, const struct mapped_range *range, uint64_t token_index,
		      size_t window)
{
	uint64_t start = MAX(range->start, (token_index - windows[window].before) & ~7ull);
	uint64_t size = MIN(range->end, token_index + windows[window].after) - start;
	struct kallsyms kallsyms;
	uint8_t *copy;
	int error = guest_copy_virtual(search->view, &search->paging, start, size, &copy);

	if (error)
		return error_set(error, "cannot copy the guest's kallsyms at %#" PRIx64,
				 token_index);
	error = kallsyms_locate(&kallsyms, span_of(copy, size), start, token_index - start);
	if (error)
		error = error_set(-ENOENT,
				  "no consistent kallsyms tables at %#" PRIx64 " of the guest",
				  token_index);
	else
		error = try_all_addresses(search, &kallsyms);
	free(copy);
	return error;
}

static int try_token_index(struct search *search, const struct mapped_range *range,
			   uint64_t token_index)
{
	int error = -ENOENT;

	for (size_t window = 0; error == -ENOENT && window < sizeof(windows) / sizeof(windows[0]);
	     window++)
		error = try_window(search, range, token_index, window);
	return error;
}

static int search_range(struct search *search, const struct mapped_range *range)
{
	uint64_t from = range->start, token_index;
	int result = -ESRCH; /* no candidate */

	/* A kernel has one: the bound is for guests that are full of candidates. */
	for (int left = CANDIDATES_MAX;
	     left && !kernel_image_find_token_index(search->view, &search->paging, range, from,
						    &token_index);
	     left--) {
		result = try_token_index(search, range, token_index);
		if (!result)
			return 0;
		from = token_index + 4;
	}
	return result;
}

/* -ESRCH: there is no candidate under this CR3. */
static int search_paging(struct search *search)
{
	struct mapped_range range = { 0 };
	int result = -ESRCH;

	while (kernel_image_next_range(search->view, &search->paging, range.end, &range)) {
		int error = search_range(search, &range);

		if (!error)
			return 0;
		if (error != -ESRCH)
			result = error;
	}
	return result;
}

/*
 * Runs TRY with the kernel half of the page tables in CR3, then with the user half if that fails
 * with NO_MATCH. With KPTI the user half maps little more than the entry code.
 */
static int try_halves(struct search *search, struct guest_paging *paging,
		      int (*try)(struct search *search), int no_match)
{
	int error;

	search->paging = search->registers->paging;
	search->paging.cr3 &= ~CR3_PTI_USER;
	error = try(search);
	if (error == no_match && search->registers->paging.cr3 & CR3_PTI_USER) {
		search->paging.cr3 = search->registers->paging.cr3;
		error = try(search);
	}
	*paging = search->paging;
	return error;
}

int kernel_search(struct guest_kernel *kernel, const struct guest_view *view,
		  const struct guest_registers *registers, struct guest_paging *paging)
{
	struct search search = { .view = view, .registers = registers, .kernel = kernel };
	int error;

	/* A starting guest is polled: return early. */
	if (!handles_exceptions(view, registers))
		return error_set(
			-EAGAIN,
			"no Linux kernel runs in the guest, or it is still starting: it handles no "
			"exceptions yet");
	error = try_halves(&search, paging, search_paging, -ESRCH);
	if (error == -ESRCH)
		return error_set(-ENOENT,
				 "no Linux kernel with kallsyms is mapped in the guest (yet): "
				 "addresses stay unsymbolized");
	return error;
}

int kernel_search_confirm(struct guest_kernel *kernel, const struct guest_view *view,
			  const struct guest_registers *registers, struct guest_paging *paging)
{
	struct search search = { .view = view, .registers = registers, .kernel = kernel };

	return try_halves(&search, paging, check_kernel, -EINVAL);
}
