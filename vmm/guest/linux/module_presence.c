/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/module_presence.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/clock_ns.h"
#include "shared/sample_record.h"
#include "vmm/guest/linux/bpf_programs.h"

struct entry {
	struct guest_module module;
	bool lacks_table; /* the unwinder guesses: it has no table, or another module's */
	_Atomic uint64_t seen;
};

struct module_presence {
	struct module_presence *older;
	uint64_t image_start, image_end; /* of the kernel itself */
	size_t count, unloaded_count;
	/* COUNT modules in address order, then unloaded ones that the unwinder has tables for. */
	struct entry entries[];
};

static int compare_entries(const void *left, const void *right)
{
	const struct entry *a = left, *b = right;

	return a->module.start < b->module.start ? -1 : a->module.start > b->module.start;
}

static void add(struct module_presence *presence, const struct guest_module *module)
{
	struct entry *entry = &presence->entries[presence->count++];

	entry->module = *module;
	/* BPF programs have no table, but always frame pointers. */
	entry->lacks_table = !module->program;
}

static struct entry *find(struct module_presence *presence, uint64_t address)
{
	struct entry *entries = presence->entries;
	size_t at = array_partition(presence->count, i,
				    entries[i].module.start + entries[i].module.size <= address);

	return at < presence->count && address >= entries[at].module.start ? &entries[at] : NULL;
}

/* The entry that equals MODULE; NULL: none. */
static struct entry *find_module(struct module_presence *presence,
				 const struct guest_module *module)
{
	struct entry *entry = find(presence, module->start);

	return entry && guest_modules_equal(&entry->module, 1, module, 1) ? entry : NULL;
}

static void add_tables(struct module_presence *presence,
		       const struct module_presence_tables *tables)
{
	for (size_t i = 0; i < tables->module_count; i++) {
		struct entry *entry = find_module(presence, &tables->modules[i]);

		if (entry)
			entry->lacks_table = false;
		else
			presence->entries[presence->count + presence->unloaded_count++].module =
				tables->modules[i];
	}
}

static unsigned int count_all(const struct module_presence *presence)
{
	unsigned int count = 0;

	for (; presence; presence = presence->older)
		count++;
	return count;
}

int module_presence_create(struct module_presence **result,
			   const struct module_presence_tables *tables,
			   const struct guest_module *modules, size_t count,
			   struct module_presence *older)
{
	struct module_presence *presence;

	if (count_all(older) > MODULE_PRESENCE_OLDER_MAX)
		return -E2BIG;
	presence = calloc(1, sizeof(*presence) +
				     (count + tables->module_count) * sizeof(presence->entries[0]));
	if (!presence)
		return -ENOMEM;
	presence->older = older;
	presence->image_start = tables->image_start;
	presence->image_end = tables->image_end;
	for (size_t i = 0; i < count; i++)
		add(presence, &modules[i]);
	qsort(presence->entries, presence->count, sizeof(presence->entries[0]), compare_entries);
	add_tables(presence, tables);
	*result = presence;
	return 0;
}

void module_presence_free(struct module_presence *presence)
{
	while (presence) {
		struct module_presence *older = presence->older;

		free(presence);
		presence = older;
	}
}

bool module_presence_matches(struct module_presence *presence, const struct guest_module *modules,
			     size_t count)
{
	if (presence->count != count)
		return false;
	for (size_t i = 0; i < count; i++)
		if (!find_module(presence, &modules[i]))
			return false;
	return true;
}

/* Was ADDRESS, which is in no listed module, unwound with the table of an unloaded one? */
static bool is_in_unloaded(const struct module_presence *presence, uint64_t address)
{
	for (size_t i = 0; i < presence->unloaded_count; i++) {
		const struct guest_module *unloaded =
			&presence->entries[presence->count + i].module;

		if (address - unloaded->start < unloaded->size)
			return true;
	}
	return false;
}

static bool is_there(const struct guest_module *module, const struct guest_view *view,
		     const struct guest_paging *paging)
{
	if (module->program)
		return bpf_program_is_loaded(module, view, paging);
	return !module->build_id_size || guest_module_has_build_id(module, view, paging);
}

/* Without a build id, presence is not proven and no time is recorded. */
static void record_seen(struct entry *entry, uint64_t time)
{
	uint64_t before = atomic_load_explicit(&entry->seen, memory_order_relaxed);

	if (!entry->module.build_id_size && !entry->module.program)
		return;
	while (before < time &&
	       !atomic_compare_exchange_weak_explicit(&entry->seen, &before, time,
						      memory_order_relaxed, memory_order_relaxed))
		;
}

static void mark_uncertain(struct guest_callchain *chain, uint16_t index)
{
	chain->addresses[index] &= ~SAMPLE_ADDRESS_CERTAIN;
	if (!index)
		chain->flags |= SAMPLE_UNCERTAIN;
}

static void cut(struct guest_callchain *chain, uint16_t kernel_depth)
{
	if (kernel_depth == chain->kernel_depth && !chain->user_depth)
		return;
	chain->kernel_depth = kernel_depth;
	chain->user_depth = 0;
	chain->flags |= SAMPLE_KERNEL_TRUNCATED;
}

static bool in_image(const struct module_presence *presence, uint64_t address)
{
	return address - presence->image_start < presence->image_end - presence->image_start;
}

void module_presence_check(struct module_presence *presence, const struct guest_view *view,
			   const struct guest_paging *paging, uint64_t time,
			   struct guest_callchain *chain)
{
	const struct entry *last = NULL;

	for (uint16_t i = 0; i < chain->kernel_depth; i++) {
		struct entry *entry;

		if (in_image(presence, chain->addresses[i]))
			continue;
		entry = find(presence, chain->addresses[i]);
		if (i && entry && entry != last && deadline_passed(chain->deadline)) {
			cut(chain, i);
			return;
		}
		if (entry && (entry == last || is_there(&entry->module, view, paging))) {
			record_seen(entry, time);
			last = entry;
		} else {
			mark_uncertain(chain, i);
		}
		if (entry ? entry != last || entry->lacks_table
			  : is_in_unloaded(presence, chain->addresses[i] | SAMPLE_ADDRESS_CERTAIN))
			cut(chain, i + 1);
	}
}

void module_presence_for_each_seen(struct module_presence *presence,
				   void (*each)(void *context, const struct guest_module *module,
						uint64_t time),
				   void *context)
{
	for (; presence; presence = presence->older)
		for (size_t i = 0; i < presence->count; i++) {
			struct entry *entry = &presence->entries[i];
			uint64_t seen = atomic_load_explicit(&entry->seen, memory_order_relaxed);

			if (seen)
				each(context, &entry->module, seen);
		}
}

void module_presence_reclaim(struct module_presence *presence,
			     void (*each)(void *context, const struct guest_module *module,
					  uint64_t time),
			     void *context)
{
	if (!presence)
		return;
	module_presence_for_each_seen(presence->older, each, context);
	module_presence_free(presence->older);
	presence->older = NULL;
}
