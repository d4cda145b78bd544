/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/guest_kernel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/guest/image_identity.h"
#include "vmm/guest/linux/guest_cgroup.h"
#include "vmm/guest/linux/kernel_image.h"
#include "vmm/guest/linux/kernel_search.h"
#include "vmm/guest/linux/module_presence.h"
#include "vmm/guest/linux/orc_table.h"
#include "vmm/guest/linux/reported_kernel.h"
#include "vmm/guest/linux/user_image.h"
#include "vmm/guest/page_walk.h"

#define NOTES_MAX 65536
#define BTF_MAX   (64ull << 20)

/*
 * Switches to the kernel's own page tables: those of a process are freed with it, and those that
 * the kernel starts with are replaced. -EAGAIN: they do not map the kernel yet.
 */
static int use_kernel_tables(struct guest_kernel *kernel, const struct guest_view *view)
{
	struct guest_paging own = kernel->paging;
	struct guest_translation top, expected, translation;
	struct symbol symbol;
	/* arch/x86/kernel/head_64.S and head_32.S */
	const char *name = guest_paging_is_32bit(&own) ? "swapper_pg_dir" : "init_top_pgt";

	if (!symbols_find_name(kernel->symbols, name, &symbol) ||
	    guest_translate(view, &kernel->paging, symbol.start, &top) ||
	    guest_translate(view, &kernel->paging, kernel->text_start, &expected))
		return 0;
	own.cr3 = top.gpa;
	if (guest_translate(view, &own, kernel->text_start, &translation) ||
	    translation.gpa != expected.gpa)
		return error_set(
			-EAGAIN,
			"the guest's kernel is still starting: it has no page tables of its own yet");
	kernel->paging = own;
	return 0;
}

/* Copies the part of the image between two symbols. The caller frees BYTES; empty: not possible. */
static struct span copy_section(const struct guest_kernel *kernel, const struct guest_view *view,
				const char *start_name, const char *stop_name, size_t max,
				uint8_t **bytes)
{
	struct symbol start, stop;

	*bytes = NULL;
	if (!symbols_find_name(kernel->symbols, start_name, &start) ||
	    !symbols_find_name(kernel->symbols, stop_name, &stop) ||
	    stop.start - start.start > max ||
	    guest_copy_virtual(view, &kernel->paging, start.start, stop.start - start.start, bytes))
		return (struct span){ 0 };
	return span_of(*bytes, stop.start - start.start);
}

static void read_build_id(struct guest_kernel *kernel, const struct guest_view *view)
{
	uint8_t *bytes;
	struct span notes =
		copy_section(kernel, view, "__start_notes", "__stop_notes", NOTES_MAX, &bytes);

	kernel->build_id_size = build_id_in_notes(notes, kernel->build_id, GUEST_BUILD_ID_MAX);
	free(bytes);
}

static void read_layouts(struct guest_kernel *kernel, const struct guest_view *view)
{
	struct span data;
	uint8_t *bytes;
	struct btf btf;

	/* Readers of structures expect 8-byte pointers. */
	if (guest_paging_is_32bit(&kernel->paging))
		return;
	data = copy_section(kernel, view, "__start_BTF", "__stop_BTF", BTF_MAX, &bytes);
	if (!btf_open(&btf, data)) {
		guest_kernel_read_layouts(kernel, &btf);
		btf_close(&btf);
	}
	free(bytes);
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

/* Gives KERNEL unfinished copies of the kernel's own symbols in SYMBOLS and PER_CPU. */
static int copy_symbols(struct guest_kernel *kernel, const struct symbols *symbols,
			const struct symbols *per_cpu)
{
	int error;

	kernel->symbols = symbols_new();
	kernel->per_cpu = symbols_new();
	if (!kernel->symbols || !kernel->per_cpu)
		return -ENOMEM;
	error = copy_kernel_symbols(kernel->per_cpu, per_cpu);
	return error ? error : copy_kernel_symbols(kernel->symbols, symbols);
}

int guest_kernel_update_presence(struct guest_kernel *kernel, const struct guest_module *modules,
				 size_t count)
{
	struct module_presence_tables tables = { .image_start = kernel->text_start,
						 .image_end = kernel->text_end,
						 .modules = kernel->modules,
						 .module_count = kernel->module_count };
	struct module_presence *presence;
	struct symbol end;
	int error;

	if (kernel->presence && module_presence_matches(kernel->presence, modules, count))
		return 0;
	if (symbols_find_name(kernel->symbols, "_end", &end))
		tables.image_end = end.start;
	error = module_presence_create(&presence, &tables, modules, count, kernel->presence);
	if (!error)
		__atomic_store_n(&kernel->presence, presence, __ATOMIC_RELEASE);
	return error;
}

struct module_presence *guest_kernel_presence(const struct guest_kernel *kernel)
{
	return __atomic_load_n(&kernel->presence, __ATOMIC_ACQUIRE);
}

/* Reads the modules, and adds their symbols to SYMBOLS and PER_CPU unless those are NULL. */
static int read_modules(struct module_list *list, const struct guest_kernel *kernel,
			const struct guest_view *view, struct symbols *symbols,
			struct symbols *per_cpu)
{
	if (kernel->module_list)
		return module_list_read(list, view, &kernel->paging, kernel->module_list,
					&kernel->module_layout, symbols, per_cpu);
	if (kernel->reported)
		return reported_kernel_list_modules(list, kernel->reported, view, &kernel->paging,
						    symbols);
	return 0;
}

/* Adds the modules that are loaded now to KERNEL, whose symbols are its own and unfinished. */
static int add_modules(struct guest_kernel *kernel, const struct guest_view *view)
{
	struct module_list list = { 0 };
	int error = read_modules(&list, kernel, view, kernel->symbols, kernel->per_cpu);

	/* A list that broke off has the modules up to that point. */
	if (error != -ENOMEM) {
		symbols_finish(kernel->symbols);
		symbols_finish(kernel->per_cpu);
		error = kernel_orc_create(&kernel->orc, view, &kernel->paging, kernel->symbols,
					  &list);
	}
	if (error != -ENOMEM) {
		kernel->modules = list.modules;
		kernel->module_count = list.count;
		list.modules = NULL;
		error = guest_kernel_update_presence(kernel, kernel->modules, kernel->module_count);
	}
	module_list_free(&list);
	return error;
}

static int no_memory(int error)
{
	return error ? error_set(error, "no memory for the guest kernel's symbols") : 0;
}

int guest_kernel_refresh(struct guest_kernel **newer, const struct guest_kernel *kernel,
			 const struct guest_view *view)
{
	struct guest_kernel *copy = malloc(sizeof(*copy));
	int error;

	if (!copy)
		return no_memory(-ENOMEM);
	*copy = *kernel;
	copy->orc = NULL;
	copy->modules = NULL;
	copy->module_count = 0;
	copy->presence = NULL;
	copy->images = user_images_share(kernel->images);
	copy->cgroups = guest_cgroups_share(kernel->cgroups);
	error = copy_symbols(copy, kernel->symbols, kernel->per_cpu);
	if (!error)
		error = add_modules(copy, view);
	if (error) {
		guest_kernel_free(copy);
		return no_memory(error);
	}
	*newer = copy;
	return 0;
}

int guest_kernel_list_modules(const struct guest_kernel *kernel, const struct guest_view *view,
			      struct guest_module **modules, size_t *count)
{
	struct module_list list = { 0 };
	int error = read_modules(&list, kernel, view, NULL, NULL);

	if (!error) {
		*modules = list.modules;
		*count = list.count;
		list.modules = NULL;
	}
	module_list_free(&list);
	return error ? error_set(error, "cannot read the guest's list of modules to its end") : 0;
}

int guest_kernel_list_programs(const struct guest_kernel *kernel, const struct guest_view *view,
			       struct guest_module **list, size_t *count)
{
	return bpf_programs_read(list, count, view, &kernel->paging, &kernel->programs);
}

bool guest_kernel_has_module_list(const struct guest_kernel *kernel)
{
	return kernel->module_list;
}

static bool has_symbol(const struct reported_kernel *reported, const char *name, uint64_t address)
{
	struct symbol symbol;

	return symbols_find_name(reported->symbols, name, &symbol) && symbol.start == address;
}

/* Is REPORTED of the same build and boot? */
static int check_report(const struct guest_kernel *kernel, const struct reported_kernel *reported)
{
	bool other_build =
		reported->build_id_size && kernel->build_id_size &&
		(reported->build_id_size != kernel->build_id_size ||
		 memcmp(reported->build_id, kernel->build_id, kernel->build_id_size) != 0);

	/* With KASLR another boot starts elsewhere; another build ends elsewhere. */
	if (!other_build &&
	    (has_symbol(reported, "_text", kernel->text_start) ||
	     has_symbol(reported, "_stext", kernel->text_start)) &&
	    has_symbol(reported, "_etext", kernel->text_end))
		return 0;
	return error_set(-EILSEQ,
			 "the kernel that the guest's agent reports is not the running one: "
			 "it is not used");
}

int guest_kernel_use_report(struct guest_kernel *kernel, struct reported_kernel *reported)
{
	int error = check_report(kernel, reported);

	kernel->reported = error ? NULL : reported;
	return error;
}

static int use_reported_symbols(struct guest_kernel *kernel, const struct guest_view *view,
				const struct guest_registers *registers,
				const struct reported_kernel *reported)
{
	int error = copy_symbols(kernel, reported->symbols, reported->per_cpu);

	if (error)
		return no_memory(error);
	symbols_finish(kernel->symbols);
	symbols_finish(kernel->per_cpu);
	error = kernel_search_confirm(kernel, view, registers, &kernel->paging);
	return error == -EILSEQ
		       ? error_set(-EINVAL,
				   "the guest's agent reports symbols that are not a kernel's")
		       : error;
}

/* Finds the kernel and everything about it. REPORTED: uses those symbols; NULL: those in memory. */
static int find_all(struct guest_kernel *kernel, const struct guest_view *view,
		    const struct guest_registers *registers, const struct reported_kernel *reported)
{
	int error = reported ? use_reported_symbols(kernel, view, registers, reported)
			     : kernel_search(kernel, view, registers, &kernel->paging);

	if (!error)
		error = use_kernel_tables(kernel, view);
	if (!error)
		error = guest_kernel_identify(kernel, view);
	if (error)
		return error;
	read_build_id(kernel, view);
	read_layouts(kernel, view);
	symbols_reopen(kernel->symbols);
	symbols_reopen(kernel->per_cpu);
	error = no_memory(add_modules(kernel, view));
	return error || !reported ? error : check_report(kernel, reported);
}

static int find(struct guest_kernel **result, const struct guest_view *view,
		const struct guest_registers *registers, const struct reported_kernel *reported)
{
	struct guest_kernel *kernel;
	int error;

	if (!guest_kernel_can_run(registers))
		return error_set(
			-ENOENT,
			"the guest does not use paging (yet): no kernel whose symbols could be read");
	kernel = calloc(1, sizeof(*kernel));
	if (!kernel)
		return no_memory(-ENOMEM);
	error = find_all(kernel, view, registers, reported);
	if (error) {
		guest_kernel_free(kernel);
		return error == -EAGAIN ? -ENOENT : error;
	}
	*result = kernel;
	return 0;
}

int guest_kernel_find(struct guest_kernel **kernel, const struct guest_view *view,
		      const struct guest_registers *registers)
{
	return find(kernel, view, registers, NULL);
}

int guest_kernel_find_reported(struct guest_kernel **kernel, const struct guest_view *view,
			       const struct guest_registers *registers,
			       const struct reported_kernel *reported)
{
	return find(kernel, view, registers, reported);
}
