// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/collector_places.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/profile/build_id_cache.h"

#define PAGE_SIZE 4096ull /* the kernel has no two kinds of code in one */

static bool overlap(const struct guest_module *left, const struct guest_module *right)
{
	return left->start < right->start + right->size && right->start < left->start + left->size;
}

static bool same_build_id(const struct guest_module *left, const struct guest_module *right)
{
	return left->build_id_size == right->build_id_size &&
	       !memcmp(left->build_id, right->build_id, left->build_id_size);
}

/* Of two looks one after the other; a module has no build id yet while it is being set up. */
static bool stayed(const struct guest_module *older, const struct guest_module *newer)
{
	return older->start == newer->start && older->size == newer->size &&
	       older->program == newer->program && !strcmp(older->name, newer->name) &&
	       (!older->build_id_size || !newer->build_id_size || same_build_id(older, newer));
}

/* Of any two times: the code is the same. */
static bool is_again(const struct guest_module *older, const struct guest_module *newer)
{
	return newer->build_id_size && same_build_id(older, newer) && stayed(older, newer);
}

static const struct guest_module *find(const struct guest_module *modules, size_t count,
				       const struct guest_module *module)
{
	for (size_t i = 0; i < count; i++)
		if (stayed(module, &modules[i]))
			return &modules[i];
	return NULL;
}

static bool is_live(const struct collector_place *place)
{
	return !place->end && !place->over;
}

/* The place that MODULE has now; NULL: none. */
static struct collector_place *live_place(const struct collector_places *places,
					  const struct guest_module *module)
{
	for (size_t i = places->count; i-- > 0;)
		if (stayed(&places->places[i].module, module) && is_live(&places->places[i]))
			return &places->places[i];
	return NULL;
}

/* Readers know a module by its name; a BPF program by its place, and several may have one name. */
static bool name_is_its_own(const struct collector_places *places, const struct guest_module *module)
{
	for (size_t i = 0; i < places->count && !module->program; i++)
		if (!strcmp(places->places[i].module.name, module->name))
			return is_again(&places->places[i].module, module);
	return build_id_cache_name_is_plain(module->name);
}

static struct address_range pages_of(const struct guest_module *module)
{
	return (struct address_range){ .start = module->start & ~(PAGE_SIZE - 1),
				       .end = (module->start + module->size + PAGE_SIZE - 1) &
					      ~(PAGE_SIZE - 1) };
}

static bool is_used_place(const struct collector_places *places, const struct guest_module *module)
{
	for (size_t i = 0; i < places->count; i++)
		if (overlap(&places->places[i].module, module))
			return true;
	return address_ranges_overlap(&places->forgotten, pages_of(module));
}

/* Each has its end in time, so there must be room for as many. */
static int make_room(struct collector_places *places, size_t more)
{
	size_t capacity = places->count + more;
	struct collector_place *larger;

	if (capacity <= places->capacity)
		return 0;
	capacity += capacity / 2;
	larger = reallocarray(places->places, capacity, sizeof(*larger));
	if (!larger)
		return -ENOMEM;
	places->places = larger;
	places->capacity = capacity;
	return 0;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* LATEST saw it, if only at its end: then it was there for no time that is known. */
static void end(struct collector_places *places, struct collector_place *place,
		const struct collector_look *latest)
{
	uint64_t time = later(later(latest->begun, place->time), place->seen ? place->seen + 1 : 0);

	place->over = true;
	places->places[places->count++] = (struct collector_place){
		.module = place->module, .time = time, .end = true, .told = place->told
	};
}

/* Ends those that are not among MODULES. */
static void end_others(struct collector_places *places, const struct guest_module *modules, size_t count,
		       const struct collector_look *latest)
{
	for (size_t i = 0, before = places->count; i < before; i++) {
		struct collector_place *place = &places->places[i];
		const struct guest_module *now;

		if (!is_live(place))
			continue;
		now = find(modules, count, &place->module);
		if (!now)
			end(places, place, latest);
		else if (now->build_id_size)
			place->module = *now;
	}
}

/*
 * A BPF program may have had the place of another that no look saw, and samples of that one may be checked
 * when it is gone: only what the first list had is there since ever.
 */
static bool is_since_ever(const struct collector_places *places, const struct guest_module *module)
{
	return !(module->program && places->programs_listed) && !is_used_place(places, module);
}

static void begin(struct collector_places *places, const struct guest_module *module,
		  const struct collector_look *now)
{
	struct collector_place place = {
		.module = *module,
		.time = is_since_ever(places, module) ? 0 : now->ended,
		.told = name_is_its_own(places, module),
	};

	places->places[places->count++] = place;
}

int collector_places_update(struct collector_places *places, const struct guest_module *modules, size_t count,
			    const struct collector_look *latest, const struct collector_look *now)
{
	if (places->stopped || places->count + count > COLLECTOR_PLACES_MAX)
		return collector_places_stop(places, latest);
	if (make_room(places, places->count + count))
		return -ENOMEM;
	end_others(places, modules, count, latest);
	for (size_t i = 0; i < count; i++)
		if (!live_place(places, &modules[i]))
			begin(places, &modules[i], now);
	return 0;
}

void collector_places_seen(struct collector_places *places, const struct guest_module *module, uint64_t time)
{
	struct collector_place *place = live_place(places, module);

	if (place)
		place->seen = later(place->seen, time);
}

int collector_places_stop(struct collector_places *places, const struct collector_look *latest)
{
	if (make_room(places, places->count))
		return -ENOMEM;
	places->stopped = true;
	end_others(places, NULL, 0, latest);
	return 0;
}

bool collector_places_is_shared(const struct collector_places *places, const struct guest_module *module)
{
	const struct collector_place *first = NULL;

	for (size_t i = 0; i < places->count; i++) {
		const struct collector_place *place = &places->places[i];

		if (place->end || !overlap(&place->module, module))
			continue;
		if (first && !is_again(&first->module, &place->module))
			return true;
		first = first ? first : place;
	}
	if (address_ranges_overlap(&places->forgotten, pages_of(module)))
		return true;
	return places->stopped && !first; /* none was remembered any more */
}

/* Of a BPF program: the latest of that place and name before its END. */
static struct collector_place *beginning_of(struct collector_places *places,
					    const struct collector_place *end)
{
	for (size_t i = (size_t)(end - places->places); i-- > 0;)
		if (places->places[i].over && stayed(&places->places[i].module, &end->module))
			return &places->places[i];
	return NULL;
}

/* Marks the older half, or one, of the programs that are gone: how many. */
static size_t mark_forgotten(struct collector_places *places)
{
	size_t gone = 0, forgotten = 0;

	for (size_t i = 0; i < places->count; i++)
		gone += places->places[i].end && places->places[i].module.program;
	for (size_t i = 0; i < places->count && forgotten < (gone + 1) / 2; i++) {
		struct collector_place *place = &places->places[i], *beginning;

		if (!place->end || !place->module.program)
			continue;
		beginning = beginning_of(places, place);
		if (!beginning || address_ranges_add(&places->forgotten, pages_of(&place->module)))
			break;
		place->forgotten = beginning->forgotten = true;
		forgotten++;
	}
	return forgotten;
}

static void remove_forgotten(struct collector_places *places, size_t *told)
{
	size_t kept = 0, kept_told = 0;

	for (size_t i = 0; i < places->count; i++) {
		if (places->places[i].forgotten)
			continue;
		kept_told += i < *told;
		places->places[kept++] = places->places[i];
	}
	places->count = kept;
	*told = kept_told;
}

bool collector_places_have_room_for_programs(struct collector_places *places, size_t *told)
{
	const size_t room = COLLECTOR_PLACES_MAX - COLLECTOR_PLACES_OF_MODULES;

	while (places->count >= room && mark_forgotten(places))
		remove_forgotten(places, told);
	return places->count < room;
}

void collector_places_free(struct collector_places *places)
{
	free(places->places);
	address_ranges_free(&places->forgotten);
	*places = (struct collector_places){ 0 };
}
