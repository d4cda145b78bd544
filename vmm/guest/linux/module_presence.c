/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/module_presence.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shared/sample_record.h"
#include "vmm/guest/deadline.h"
#include "vmm/guest/linux/bpf_programs.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/page_walk.h"

struct place {
	struct guest_module module;
	bool is_unwound_wrongly; /* the unwinder has not its table, but another's or none: it
				    guesses then */
	_Atomic uint64_t seen;
};

struct module_presence {
	struct module_presence *older;
	uint64_t image, image_end; /* of the kernel itself */
	size_t count, gone_count;
	struct place places[]; /* COUNT by address; behind them those that went, and the unwinder
				  has yet */
};

static int compare_places(const void *left, const void *right)
{
	const struct place *a = left, *b = right;

	return a->module.start < b->module.start ? -1 : a->module.start > b->module.start;
}

static void add(struct module_presence *presence, const struct guest_module *module)
{
	struct place *place = &presence->places[presence->count++];

	place->module = *module;
	/* Code of BPF programs has no table, and is known to keep frame pointers. */
	place->is_unwound_wrongly = !module->program;
}

static struct place *find(struct module_presence *presence, uint64_t address)
{
	size_t low = 0, high = presence->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		struct place *place = &presence->places[middle];

		if (address < place->module.start)
			high = middle;
		else if (address >= place->module.start + place->module.size)
			low = middle + 1;
		else
			return place;
	}
	return NULL;
}

/* NULL: it is not there. */
static struct place *find_module(struct module_presence *presence,
				 const struct guest_module *module)
{
	struct place *place = find(presence, module->start);

	return place && guest_modules_equal(&place->module, 1, module, 1) ? place : NULL;
}

/* The unwinder has the tables of the kernel's own modules: of those that are there, and of those
 * that went.
 */
static void add_tables(struct module_presence *presence, const struct guest_kernel *kernel)
{
	for (size_t i = 0; i < kernel->module_count; i++) {
		struct place *place = find_module(presence, &kernel->modules[i]);

		if (place)
			place->is_unwound_wrongly = false;
		else
			presence->places[presence->count + presence->gone_count++].module =
				kernel->modules[i];
	}
}

static unsigned int count_all(const struct module_presence *presence)
{
	unsigned int count = 0;

	for (; presence; presence = presence->older)
		count++;
	return count;
}

int module_presence_create(struct module_presence **result, const struct guest_kernel *kernel,
			   const struct guest_module *modules, size_t count,
			   struct module_presence *older)
{
	struct module_presence *presence;
	struct symbol end;

	if (count_all(older) > MODULE_PRESENCE_OLDER_MAX)
		return -E2BIG;
	presence = calloc(1, sizeof(*presence) +
				     (count + kernel->module_count) * sizeof(presence->places[0]));
	if (!presence)
		return -ENOMEM;
	presence->older = older;
	presence->image = kernel->text_start;
	presence->image_end =
		symbols_find_name(kernel->symbols, "_end", &end) ? end.start : kernel->text_end;
	for (size_t i = 0; i < count; i++)
		add(presence, &modules[i]);
	qsort(presence->places, presence->count, sizeof(presence->places[0]), compare_places);
	add_tables(presence, kernel);
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

/* Its code is none that is listed, and was unwound by the table of one that went. */
static bool is_in_gone(const struct module_presence *presence, uint64_t address)
{
	for (size_t i = 0; i < presence->gone_count; i++) {
		const struct guest_module *gone = &presence->places[presence->count + i].module;

		if (address - gone->start < gone->size)
			return true;
	}
	return false;
}

static bool is_there(const struct guest_module *module, const struct guest_view *view,
		     const struct guest_paging *paging)
{
	uint8_t build_id[GUEST_BUILD_ID_MAX];

	if (module->program)
		return bpf_program_is_loaded(module, view, paging);
	if (!module->build_id_size)
		return true;
	return !guest_read_virtual(view, paging, module->build_id_gva, build_id,
				   module->build_id_size) &&
	       !memcmp(build_id, module->build_id, module->build_id_size);
}

/* Of one without a build id nothing was found. */
static void note(struct place *place, uint64_t time)
{
	uint64_t before = atomic_load_explicit(&place->seen, memory_order_relaxed);

	if (!place->module.build_id_size && !place->module.program)
		return;
	while (before < time &&
	       !atomic_compare_exchange_weak_explicit(&place->seen, &before, time,
						      memory_order_relaxed, memory_order_relaxed))
		;
}

static void mark_unsure(struct guest_callchain *chain, uint16_t index)
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
	return address - presence->image < presence->image_end - presence->image;
}

void module_presence_check(struct module_presence *presence, const struct guest_view *view,
			   const struct guest_paging *paging, uint64_t time,
			   struct guest_callchain *chain)
{
	const struct place *last = NULL;

	for (uint16_t i = 0; i < chain->kernel_depth; i++) {
		struct place *place;

		if (in_image(presence, chain->addresses[i]))
			continue;
		place = find(presence, chain->addresses[i]);
		if (i && place && place != last && deadline_passed(chain->deadline)) {
			cut(chain, i);
			return;
		}
		if (place && (place == last || is_there(&place->module, view, paging))) {
			note(place, time);
			last = place;
		} else {
			mark_unsure(chain, i);
		}
		if (place ? place != last || place->is_unwound_wrongly
			  : is_in_gone(presence, chain->addresses[i] | SAMPLE_ADDRESS_CERTAIN))
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
			struct place *place = &presence->places[i];
			uint64_t seen = atomic_load_explicit(&place->seen, memory_order_relaxed);

			if (seen)
				each(context, &place->module, seen);
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
