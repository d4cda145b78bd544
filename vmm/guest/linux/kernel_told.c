/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/kernel_told.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/guest/page_walk.h"

static bool has(const struct reported_kernel *told, const char *name, uint64_t address)
{
	struct symbol symbol;

	return symbols_find_name(told->symbols, name, &symbol) && symbol.start == address;
}

bool reported_kernel_matches(const struct guest_kernel *kernel, const struct reported_kernel *told)
{
	if (told->build_id_size && kernel->build_id_size &&
	    (told->build_id_size != kernel->build_id_size ||
	     memcmp(told->build_id, kernel->build_id, told->build_id_size) != 0))
		return false;
	/* Another boot begins elsewhere, another build ends elsewhere. */
	return (has(told, "_text", kernel->text_start) ||
		has(told, "_stext", kernel->text_start)) &&
	       has(told, "_etext", kernel->text_end);
}

static bool is_there(const struct guest_module *module, const struct guest_kernel *kernel,
		     const struct guest_view *view)
{
	uint8_t build_id[GUEST_BUILD_ID_MAX];

	return !guest_read_virtual(view, &kernel->paging, module->build_id_gva, build_id,
				   module->build_id_size) &&
	       !memcmp(build_id, module->build_id, module->build_id_size);
}

/* LIST's modules are sorted by name, as those of who told them. */
static bool is_listed(const struct module_list *list, const char *name)
{
	size_t first = 0, end = list->count;

	while (first < end) {
		size_t middle = (first + end) / 2;
		int order = strcmp(name, list->modules[middle].name);

		if (!order)
			return true;
		if (order < 0)
			end = middle;
		else
			first = middle + 1;
	}
	return false;
}

static int add_symbols(struct symbols *to, const struct module_list *list,
		       const struct symbols *from)
{
	int error = 0;

	for (size_t i = 0; !error && i < symbols_count(from); i++) {
		struct symbol symbol;

		symbols_at(from, i, &symbol);
		if (symbol.module && is_listed(list, symbol.module))
			error = symbols_add(to, symbol.start, symbol.end - symbol.start,
					    symbol.type, symbol.name, symbol.module);
	}
	return error;
}

int reported_kernel_list_modules(struct module_list *list, const struct guest_kernel *kernel,
				 const struct guest_view *view, struct symbols *symbols)
{
	struct reported_kernel *told = kernel->reported;

	list->modules = calloc(told->module_count + 1, sizeof(*list->modules));
	list->orcs = calloc(told->module_count + 1, sizeof(*list->orcs));
	if (!list->modules || !list->orcs)
		return -ENOMEM;
	for (size_t i = 0; i < told->module_count; i++) {
		told->gone[i] = told->gone[i] || !is_there(&told->modules[i], kernel, view);
		if (!told->gone[i])
			list->modules[list->count++] = told->modules[i];
	}
	return symbols ? add_symbols(symbols, list, told->symbols) : 0;
}
