/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/collector_modules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/error.h"
#include "vmm/record/module_lookup.h"
#include "vmm/symbols/build_id_cache.h"

/* By name, which is unique. */
static struct guest_module *find(const struct collector_modules *modules,
				 const struct module_index *names, const char *name)
{
	size_t i = module_index_first(names, module_index_name(name));

	while (i != MODULE_INDEX_END && strcmp(modules->modules[i].name, name) != 0)
		i = module_index_next(names, i);
	return i == MODULE_INDEX_END ? NULL : &modules->modules[i];
}

/* The modules of a kernel, by start. */
struct loaded {
	const struct guest_kernel *kernel;
	struct module_index index;
};

static int open_loaded(struct loaded *loaded, const struct guest_kernel *kernel)
{
	loaded->kernel = kernel;
	if (module_index_open(&loaded->index, kernel->module_count))
		return -ENOMEM;
	for (size_t i = 0; i < kernel->module_count; i++)
		module_index_add(&loaded->index, kernel->modules[i].start, i);
	return 0;
}

static bool is_loaded(const struct loaded *loaded, const struct guest_module *module)
{
	size_t i = module_index_first(&loaded->index, module->start);

	for (; i != MODULE_INDEX_END; i = module_index_next(&loaded->index, i))
		if (loaded->kernel->modules[i].start == module->start &&
		    !strcmp(loaded->kernel->modules[i].name, module->name))
			return true;
	return false;
}

/* A longer array than its capacity says does no harm: it is shared by the three. */
static int make_room(struct collector_modules *modules, size_t more)
{
	size_t count = modules->count + more, gone = modules->capacity, shared = gone;

	return array_reserve(&modules->gone, &gone, count) ||
			       array_reserve(&modules->shared, &shared, count) ||
			       array_reserve(&modules->modules, &modules->capacity, count)
		       ? -ENOMEM
		       : 0;
}

static void add(struct collector_modules *modules, struct module_index *names,
		const struct guest_module *module)
{
	struct guest_module *known = find(modules, names, module->name);

	if (known && known->start == module->start) {
		*known = *module;
	} else if (!known && build_id_cache_name_is_plain(module->name)) {
		module_index_add(names, module_index_name(module->name), modules->count);
		modules->gone[modules->count] = false;
		modules->shared[modules->count] = true; /* until it is known */
		modules->modules[modules->count++] = *module;
	}
}

static int copy_symbols(struct symbols *to, const struct symbols *from, const char *module)
{
	size_t count = from ? symbols_count(from) : 0;
	int error = 0;

	for (size_t i = 0; !error && i < count; i++) {
		struct symbol symbol;

		symbols_at(from, i, &symbol);
		if (symbol.module && !strcmp(symbol.module, module))
			error = symbols_add(to, symbol.start, symbol.end - symbol.start,
					    symbol.type, symbol.name, symbol.module);
	}
	return error;
}

/* Keeps the symbols of modules that were loaded before and are not now. */
static int keep_symbols(struct collector_modules *modules, const struct guest_kernel *older,
			const struct loaded *newer)
{
	struct symbols *all = symbols_new();
	int error = all ? 0 : -ENOMEM;

	for (size_t i = 0; !error && i < modules->count; i++)
		if (modules->gone[i])
			error = copy_symbols(all, modules->unloaded, modules->modules[i].name);
		else if (!is_loaded(newer, &modules->modules[i]))
			error = copy_symbols(all, older->symbols, modules->modules[i].name);
	if (error) {
		symbols_free(all);
		return error;
	}
	symbols_finish(all);
	symbols_free(modules->unloaded);
	modules->unloaded = all;
	return 0;
}

static bool some_went(const struct collector_modules *modules, const struct loaded *newer)
{
	for (size_t i = 0; i < modules->count; i++)
		if (!modules->gone[i] && !is_loaded(newer, &modules->modules[i]))
			return true;
	return false;
}

static int add_all(struct collector_modules *modules, const struct guest_module *list, size_t count)
{
	struct module_index names;

	if (module_index_open(&names, modules->count + count))
		return -ENOMEM;
	for (size_t i = 0; i < modules->count; i++)
		module_index_add(&names, module_index_name(modules->modules[i].name), i);
	for (size_t i = 0; i < count; i++)
		if (!list[i].program)
			add(modules, &names, &list[i]);
	module_index_close(&names);
	return 0;
}

static int find_shared(struct collector_modules *modules)
{
	struct module_spans spans;

	if (module_timeline_spans(&modules->timeline, &spans))
		return -ENOMEM;
	for (size_t i = 0; i < modules->count; i++)
		modules->shared[i] =
			module_timeline_is_shared(&modules->timeline, &spans, &modules->modules[i]);
	module_spans_close(&spans);
	return 0;
}

int collector_modules_scan(struct collector_modules *modules, const struct guest_module *list,
			   size_t count, const struct collector_scan *latest,
			   const struct collector_scan *now)
{
	int error = make_room(modules, count);

	if (!error)
		error = module_timeline_update(&modules->timeline, list, count, latest, now);
	if (!error)
		error = add_all(modules, list, count);
	if (!error)
		error = find_shared(modules);
	return error ? error_set(error, "no memory for the guest's modules") : 0;
}

int collector_modules_update(struct collector_modules *modules, const struct guest_kernel *older,
			     const struct guest_kernel *newer)
{
	struct loaded loaded;
	int error = open_loaded(&loaded, newer);

	if (!error && older && some_went(modules, &loaded))
		error = keep_symbols(modules, older, &loaded);
	for (size_t i = 0; !error && i < modules->count; i++)
		modules->gone[i] = !is_loaded(&loaded, &modules->modules[i]);
	module_index_close(&loaded.index);
	return error ? error_set(error, "no memory for the guest's modules") : 0;
}

void collector_modules_free(struct collector_modules *modules)
{
	free(modules->modules);
	free(modules->gone);
	free(modules->shared);
	module_timeline_free(&modules->timeline);
	symbols_free(modules->unloaded);
	*modules = (struct collector_modules){ 0 };
}
