/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/guest_kernel.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/guest/build_id_note.h"
#include "vmm/guest/linux/kallsyms.h"
#include "vmm/guest/linux/kernel_btf.h"
#include "vmm/guest/linux/kernel_check.h"
#include "vmm/guest/linux/kernel_identity.h"
#include "vmm/guest/linux/kernel_image.h"
#include "vmm/guest/linux/kernel_orc.h"
#include "vmm/guest/linux/kernel_told.h"
#include "vmm/guest/page_walk.h"

#define NOTES_MAX      65536
#define CANDIDATES_MAX 16
#define BTF_MAX        (64ull << 20)

/* A search: the guest, and a CR3 that is tried. */
struct search {
	const struct guest_view *view;
	const struct guest_registers *registers;
	struct guest_paging paging;
	struct guest_kernel *found;
};

/* How much around a token index is copied: enough for most kernels, then for any. */
static const struct {
	uint64_t before, behind;
} windows[] = { { 5ull << 20, 2ull << 20 }, { 24ull << 20, 12ull << 20 } };

static uint64_t maximum(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t minimum(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/*
 * A symbol ends at the next higher one, which *NEXT is moved to; the last at
 * the end of its page.
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

/* Per-CPU symbols are offsets, no addresses, to 6.14. */
static int add_all(struct symbols *symbols, struct symbols *per_cpu,
		   const struct kallsyms *kallsyms)
{
	char name[KALLSYMS_NAME_MAX], type;
	uint64_t position = 0;
	uint32_t next = 0;

	for (uint32_t i = 0; i < kallsyms->count; i++) {
		uint64_t address = kallsyms_address(kallsyms, i);

		if (kallsyms_next_name(kallsyms, &position, &type, name))
			return -EINVAL;
		if (symbols_add(address < KERNEL_IMAGE_START ? per_cpu : symbols, address,
				size_of_symbol(kallsyms, &next, address), type, name, NULL))
			return -ENOMEM;
	}
	return 0;
}

static int build(struct search *search, const struct kallsyms *kallsyms)
{
	struct guest_kernel *kernel = search->found;
	int error;

	symbols_free(kernel->symbols);
	symbols_free(kernel->per_cpu);
	kernel->symbols = symbols_new();
	kernel->per_cpu = symbols_new();
	if (!kernel->symbols || !kernel->per_cpu)
		return -ENOMEM;
	error = add_all(kernel->symbols, kernel->per_cpu, kallsyms);
	if (!error)
		error = symbols_finish(kernel->symbols);
	return error ? error : symbols_finish(kernel->per_cpu);
}

/* Builds the table of symbols with the addresses as they are read now, and checks it. */
static int build_and_check(struct search *search, const struct kallsyms *kallsyms)
{
	struct guest_kernel *kernel = search->found;
	int error = build(search, kallsyms);

	if (error == -EINVAL)
		return error_set(
			error,
			"the guest's kallsyms has names that are none: addresses stay without names");
	if (error)
		return error_set(error, "no memory for the guest kernel's symbols");
	return kernel_check(kernel, search->view, &search->paging, search->registers);
}

/* The first form that the guest's own data confirms; else what speaks against the last that made
 * sense. */
static int try_all_addresses(struct search *search, struct kallsyms *kallsyms)
{
	int result = error_set(-EINVAL,
			       "the guest's kallsyms has addresses of a form that is not known: "
			       "addresses stay without names");

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
	uint64_t start = maximum(range->start, (token_index - windows[window].before) & ~7ull);
	uint64_t size = minimum(range->end, token_index + windows[window].behind) - start;
	struct kallsyms kallsyms;
	uint8_t *copy;
	int error = guest_copy_virtual(search->view, &search->paging, start, size, &copy);

	if (error)
		return error_set(error, "can not copy the guest's kallsyms at %#" PRIx64,
				 token_index);
	error = kallsyms_locate(&kallsyms, span_of(copy, size), start, token_index - start);
	if (error)
		error = error_set(-ENOENT,
				  "no kallsyms tables that fit together at %#" PRIx64
				  " of the guest",
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
	int result = -ESRCH; /* nothing that could be one */

	/* A kernel has one; a guest that is full of what looks like it is not worth the time. */
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

/* -ESRCH: under this CR3 there is nothing that looks like a kernel's kallsyms. */
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

/* Under KPTI the user half maps little more than the entry code; its kernel half stands beside it.
 */
static int search_kernel(struct search *search)
{
	int error;

	/* While a guest starts it is looked at again and again: that is to cost next to nothing. */
	if (!kernel_handles_exceptions(search->view, search->registers))
		return error_set(
			-EAGAIN,
			"no Linux kernel runs in the guest, or it is still starting: it handles no "
			"exceptions yet");
	search->paging = search->registers->paging;
	search->paging.cr3 &= ~CR3_PTI_USER;
	error = search_paging(search);
	if (error == -ESRCH && search->registers->paging.cr3 & CR3_PTI_USER) {
		search->paging.cr3 = search->registers->paging.cr3;
		error = search_paging(search);
	}
	if (error == -ESRCH)
		return error_set(-ENOENT,
				 "no Linux kernel with kallsyms is mapped in the guest (yet): "
				 "addresses stay without names");
	return error;
}

/*
 * A process's tables go with it, and those that the kernel starts with are
 * replaced; its own stay. -EAGAIN: they do not map it yet.
 */
static int use_kernel_tables(struct search *search)
{
	struct guest_kernel *kernel = search->found;
	struct guest_paging own = search->paging;
	struct guest_translation top, expected, translation;
	struct symbol symbol;

	kernel->paging = search->paging;
	if (!symbols_find_name(kernel->symbols, "init_top_pgt", &symbol) ||
	    guest_translate(search->view, &search->paging, symbol.start, &top) ||
	    guest_translate(search->view, &search->paging, kernel->text_start, &expected))
		return 0;
	own.cr3 = top.gpa;
	if (guest_translate(search->view, &own, kernel->text_start, &translation) ||
	    translation.gpa != expected.gpa)
		return error_set(
			-EAGAIN,
			"the guest's kernel is still starting: it has no page tables of its own yet");
	kernel->paging = own;
	return 0;
}

static void read_build_id(const struct search *search)
{
	struct guest_kernel *kernel = search->found;
	struct symbol start, end;
	uint8_t *notes;

	if (!symbols_find_name(kernel->symbols, "__start_notes", &start) ||
	    !symbols_find_name(kernel->symbols, "__stop_notes", &end) ||
	    end.start - start.start > NOTES_MAX ||
	    guest_copy_virtual(search->view, &kernel->paging, start.start, end.start - start.start,
			       &notes))
		return;
	kernel->build_id_size = build_id_find(span_of(notes, end.start - start.start),
					      kernel->build_id, GUEST_BUILD_ID_MAX);
	free(notes);
}

/* What the kernel's own BTF tells of its structures. */
static void read_layouts(const struct search *search)
{
	struct guest_kernel *kernel = search->found;
	struct symbol start, end;
	struct btf btf;
	uint8_t *data;

	if (!symbols_find_name(kernel->symbols, "__start_BTF", &start) ||
	    !symbols_find_name(kernel->symbols, "__stop_BTF", &end) ||
	    end.start - start.start > BTF_MAX ||
	    guest_copy_virtual(search->view, &kernel->paging, start.start, end.start - start.start,
			       &data))
		return;
	if (!btf_open(&btf, span_of(data, end.start - start.start))) {
		guest_kernel_read_layouts(kernel, &btf);
		btf_close(&btf);
	}
	free(data);
}

void guest_kernel_free(struct guest_kernel *kernel)
{
	if (!kernel)
		return;
	kernel_orc_free(kernel->orc);
	symbols_free(kernel->symbols);
	symbols_free(kernel->per_cpu);
	module_presence_free(kernel->presence);
	user_images_free(kernel->images);
	guest_cgroups_free(kernel->cgroups);
	free(kernel->modules);
	free(kernel);
}

static int copy_kernel_symbols(struct symbols *to, const struct symbols *from)
{
	int error = 0;

	for (size_t i = 0; i < symbols_count(from) && !error; i++) {
		struct symbol symbol;

		symbols_at(from, i, &symbol);
		if (!symbol.module)
			error = symbols_add(to, symbol.start, symbol.end - symbol.start,
					    symbol.type, symbol.name, NULL);
	}
	return error;
}

/* They are not finished: those of modules follow. */
static int copy_all_symbols(struct guest_kernel *to, const struct guest_kernel *from)
{
	int error = copy_kernel_symbols(to->per_cpu, from->per_cpu);

	return error ? error : copy_kernel_symbols(to->symbols, from->symbols);
}

int guest_kernel_update_presence(struct guest_kernel *kernel, const struct guest_module *modules,
				 size_t count)
{
	struct module_presence *presence;
	int error;

	if (kernel->presence && module_presence_matches(kernel->presence, modules, count))
		return 0;
	error = module_presence_create(&presence, kernel, modules, count, kernel->presence);
	if (!error)
		__atomic_store_n(&kernel->presence, presence, __ATOMIC_RELEASE);
	return error;
}

struct module_presence *guest_kernel_presence(const struct guest_kernel *kernel)
{
	return __atomic_load_n(&kernel->presence, __ATOMIC_ACQUIRE);
}

/* Adds what modules have now to KERNEL, whose symbols are its own and not finished. */
static int add_modules(struct guest_kernel *kernel, const struct guest_view *view)
{
	struct module_list list = { 0 };
	struct kernel_orc *unwinder;
	int error = 0;

	if (kernel->module_list)
		error = module_list_read(&list, view, &kernel->paging, kernel->module_list,
					 &kernel->module_layout, kernel->symbols, kernel->per_cpu);
	else if (kernel->reported)
		error = reported_kernel_list_modules(&list, kernel, view, kernel->symbols);
	/* A list that breaks off gives the modules before the break. */
	if (error != -ENOMEM)
		error = symbols_finish(kernel->symbols);
	if (!error)
		error = symbols_finish(kernel->per_cpu);
	if (!error)
		error = kernel_orc_create(&unwinder, view, &kernel->paging, kernel->symbols, &list);
	if (error != -ENOMEM) {
		kernel->orc = error ? NULL : unwinder;
		kernel->modules = list.modules;
		kernel->module_count = list.count;
		list.modules = NULL;
		error = guest_kernel_update_presence(kernel, kernel->modules, kernel->module_count);
	}
	module_list_free(&list);
	return error;
}

int guest_kernel_refresh(struct guest_kernel **newer, const struct guest_kernel *kernel,
			 const struct guest_view *view)
{
	struct guest_kernel *copy = malloc(sizeof(*copy));
	int error = -ENOMEM;

	if (copy) {
		*copy = *kernel;
		copy->symbols = symbols_new();
		copy->per_cpu = symbols_new();
		copy->orc = NULL;
		copy->modules = NULL;
		copy->module_count = 0;
		copy->presence = NULL;
		copy->images = user_images_share(kernel->images);
		copy->cgroups = guest_cgroups_share(kernel->cgroups);
		if (copy->symbols && copy->per_cpu)
			error = copy_all_symbols(copy, kernel);
		if (!error)
			error = add_modules(copy, view);
	}
	if (error) {
		guest_kernel_free(copy);
		return error_set(error, "no memory for the guest kernel's symbols");
	}
	*newer = copy;
	return 0;
}

int guest_kernel_list_modules(const struct guest_kernel *kernel, const struct guest_view *view,
			      struct guest_module **modules, size_t *count)
{
	struct module_list list = { 0 };
	int error = 0;

	if (kernel->module_list)
		error = module_list_read(&list, view, &kernel->paging, kernel->module_list,
					 &kernel->module_layout, NULL, NULL);
	else if (kernel->reported)
		error = reported_kernel_list_modules(&list, kernel, view, NULL);
	if (!error) {
		*modules = list.modules;
		*count = list.count;
		list.modules = NULL;
	}
	module_list_free(&list);
	return error ? error_set(error, "the list of the guest's modules can't be read to its end")
		     : 0;
}

int guest_kernel_list_programs(const struct guest_kernel *kernel, const struct guest_view *view,
			       struct guest_module **list, size_t *count)
{
	return bpf_programs_read(list, count, view, &kernel->paging, &kernel->programs);
}

bool guest_modules_equal(const struct guest_module *left, size_t left_count,
			 const struct guest_module *right, size_t right_count)
{
	if (left_count != right_count)
		return false;
	for (size_t i = 0; i < left_count; i++)
		if (left[i].start != right[i].start || left[i].size != right[i].size ||
		    left[i].program != right[i].program ||
		    strcmp(left[i].name, right[i].name) != 0 ||
		    left[i].build_id_size != right[i].build_id_size ||
		    memcmp(left[i].build_id, right[i].build_id, left[i].build_id_size) != 0)
			return false;
	return true;
}

/* The kernel alone is known: what else there is to know about it. */
static int complete(struct search *search)
{
	struct guest_kernel *kernel = search->found;
	int error = use_kernel_tables(search);

	if (!error)
		error = guest_kernel_identify(kernel, search->view);
	if (error)
		return error;
	read_build_id(search);
	read_layouts(search);
	symbols_reopen(kernel->symbols);
	symbols_reopen(kernel->per_cpu);
	error = add_modules(kernel, search->view);
	return error ? error_set(error, "no memory for the guest kernel's symbols") : 0;
}

bool guest_kernel_has_module_list(const struct guest_kernel *kernel)
{
	return kernel->module_list;
}

static int check_told(const struct guest_kernel *kernel, const struct reported_kernel *told)
{
	if (reported_kernel_matches(kernel, told))
		return 0;
	return error_set(
		-EILSEQ,
		"what the guest's agent tells of the kernel is not of the one that runs: it "
		"is not used");
}

int guest_kernel_use_report(struct guest_kernel *kernel, struct reported_kernel *told)
{
	int error = check_told(kernel, told);

	kernel->reported = error ? NULL : told;
	return error;
}

/* Under the CR3s that search_kernel() tries. */
static int check_kernel(struct search *search)
{
	struct guest_kernel *kernel = search->found;
	int error;

	search->paging = search->registers->paging;
	search->paging.cr3 &= ~CR3_PTI_USER;
	error = kernel_check(kernel, search->view, &search->paging, search->registers);
	if (error == -EINVAL && search->registers->paging.cr3 & CR3_PTI_USER) {
		search->paging.cr3 = search->registers->paging.cr3;
		error = kernel_check(kernel, search->view, &search->paging, search->registers);
	}
	return error;
}

/* The symbols of TOLD in place of those that are decoded, and the same proofs. */
static int take_told(struct search *search, const struct reported_kernel *told)
{
	struct guest_kernel *kernel = search->found;
	int error;

	kernel->symbols = symbols_new();
	kernel->per_cpu = symbols_new();
	error = kernel->symbols && kernel->per_cpu
			? copy_kernel_symbols(kernel->symbols, told->symbols)
			: -ENOMEM;
	if (!error)
		error = copy_kernel_symbols(kernel->per_cpu, told->per_cpu);
	if (!error)
		error = symbols_finish(kernel->symbols);
	if (!error)
		error = symbols_finish(kernel->per_cpu);
	if (error)
		return error_set(error, "no memory for the guest kernel's symbols");
	error = check_kernel(search);
	return error == -EILSEQ ? error_set(-EINVAL, "the guest's agent tells symbols of no kernel")
				: error;
}

/* What is known by the symbols of TOLD; NULL: by those that are in memory. */
static int find(struct search *search, const struct reported_kernel *told)
{
	int error = told ? take_told(search, told) : search_kernel(search);

	if (!error)
		error = complete(search);
	return error || !told ? error : check_told(search->found, told);
}

static int find_by(struct guest_kernel **kernel, const struct guest_view *view,
		   const struct guest_registers *registers, const struct reported_kernel *told)
{
	struct search search = { .view = view, .registers = registers };
	int error;

	if (!(registers->paging.efer & EFER_LMA))
		return error_set(
			-ENOENT,
			"the guest is not in 64-bit mode (yet): no kernel whose symbols could be read");
	search.found = calloc(1, sizeof(*search.found));
	if (!search.found)
		return error_set(-ENOMEM, "no memory for the guest kernel's symbols");
	error = find(&search, told);
	if (error) {
		guest_kernel_free(search.found);
		return error == -EAGAIN ? -ENOENT : error;
	}
	*kernel = search.found;
	return 0;
}

int guest_kernel_find(struct guest_kernel **kernel, const struct guest_view *view,
		      const struct guest_registers *registers)
{
	return find_by(kernel, view, registers, NULL);
}

int guest_kernel_find_reported(struct guest_kernel **kernel, const struct guest_view *view,
			       const struct guest_registers *registers,
			       const struct reported_kernel *told)
{
	return find_by(kernel, view, registers, told);
}
