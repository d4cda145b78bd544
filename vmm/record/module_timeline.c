/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/module_timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/clock_ns.h"
#include "vmm/symbols/build_id_cache.h"

#define PAGE_SIZE 4096ull /* a page never holds two kinds of code */

static bool same_build_id(const struct guest_module *left, const struct guest_module *right)
{
	return left->build_id_size == right->build_id_size &&
	       !memcmp(left->build_id, right->build_id, left->build_id_size);
}

/* In two consecutive scans; a module has no build id while it is being set up. */
static bool is_unchanged(const struct guest_module *older, const struct guest_module *newer)
{
	return older->start == newer->start && older->size == newer->size &&
	       older->program == newer->program && !strcmp(older->name, newer->name) &&
	       (!older->build_id_size || !newer->build_id_size || same_build_id(older, newer));
}

/* Is the code the same, whatever lies between the two times? */
static bool is_same_build(const struct guest_module *older, const struct guest_module *newer)
{
	return newer->build_id_size && same_build_id(older, newer) && is_unchanged(older, newer);
}

static bool is_live(const struct module_bound *bound)
{
	return !bound->end && !bound->over;
}

/* The beginning of MODULE's present time; NULL: none. */
static struct module_bound *live_bound(const struct module_timeline *timeline,
				       const struct guest_module *module)
{
	for (size_t i = timeline->count; i-- > 0;)
		if (is_unchanged(&timeline->bounds[i].module, module) &&
		    is_live(&timeline->bounds[i]))
			return &timeline->bounds[i];
	return NULL;
}

static struct address_range pages_of(const struct guest_module *module)
{
	return (struct address_range){ .start = module->start & ~(PAGE_SIZE - 1),
				       .end = (module->start + module->size + PAGE_SIZE - 1) &
					      ~(PAGE_SIZE - 1) };
}

/* Each module will need a second bound, for its end. */
static int make_room(struct module_timeline *timeline, size_t more)
{
	return array_reserve(&timeline->bounds, &timeline->capacity, timeline->count + more);
}

/* LATEST found it, if only at the end of the scan: then no time is proven. */
static void end(struct module_timeline *timeline, struct module_bound *bound,
		const struct collector_scan *latest)
{
	uint64_t time = time_later(time_later(latest->begun, bound->time),
				   bound->seen ? bound->seen + 1 : 0);

	bound->over = true;
	timeline->bounds[timeline->count++] = (struct module_bound){
		.module = bound->module, .time = time, .end = true, .written = bound->written
	};
}

/* An update by one scan, with indexes to find the few modules that matter. */
struct update {
	struct module_timeline *timeline;
	const struct guest_module *modules; /* found by the scan; COUNT */
	size_t count;
	struct module_index listed;        /* the modules, by start */
	struct module_index live, names;   /* the bounds, by start and by name */
	struct module_spans used, scanned; /* ranges of the bounds, and of the modules */
};

static void close_update(struct update *update)
{
	module_index_close(&update->listed);
	module_index_close(&update->live);
	module_index_close(&update->names);
	module_spans_close(&update->used);
	module_spans_close(&update->scanned);
}

static int open_update(struct update *update)
{
	size_t room = update->timeline->capacity;
	int error = module_index_open(&update->listed, update->count);

	if (!error)
		error = module_index_open(&update->live, room);
	if (!error)
		error = module_index_open(&update->names, room);
	if (!error)
		error = module_spans_open(&update->used, update->timeline->count);
	return error ? error : module_spans_open(&update->scanned, update->count);
}

static void index_modules(struct update *update)
{
	for (size_t i = 0; i < update->count; i++) {
		module_index_add(&update->listed, update->modules[i].start, i);
		module_spans_add(&update->scanned, &update->modules[i]);
	}
	module_spans_finish(&update->scanned);
}

static void index_bound(struct update *update, size_t i)
{
	const struct module_bound *bound = &update->timeline->bounds[i];

	module_index_add(&update->names, module_index_name(bound->module.name), i);
	module_index_add(&update->live, bound->module.start, i);
}

static void index_bounds(struct update *update)
{
	for (size_t i = 0; i < update->timeline->count; i++) {
		index_bound(update, i);
		module_spans_add(&update->used, &update->timeline->bounds[i].module);
	}
	module_spans_finish(&update->used);
}

/* The module of the list that MODULE is; NULL: none. */
static const struct guest_module *find_listed(const struct update *update,
					      const struct guest_module *module)
{
	size_t i = module_index_first(&update->listed, module->start);

	while (i != MODULE_INDEX_END && !is_unchanged(module, &update->modules[i]))
		i = module_index_next(&update->listed, i);
	return i == MODULE_INDEX_END ? NULL : &update->modules[i];
}

static bool has_live_bound(const struct update *update, const struct guest_module *module)
{
	size_t i = module_index_first(&update->live, module->start);

	for (; i != MODULE_INDEX_END; i = module_index_next(&update->live, i))
		if (is_live(&update->timeline->bounds[i]) &&
		    is_unchanged(&update->timeline->bounds[i].module, module))
			return true;
	return false;
}

/* The first bound with the name of MODULE; NULL: none. */
static const struct guest_module *first_of_name(const struct update *update,
						const struct guest_module *module)
{
	size_t i = module_index_first(&update->names, module_index_name(module->name));
	const struct module_bound *first = NULL;

	for (; i != MODULE_INDEX_END; i = module_index_next(&update->names, i)) {
		const struct module_bound *bound = &update->timeline->bounds[i];

		if (!strcmp(bound->module.name, module->name) && (!first || bound < first))
			first = bound;
	}
	return first ? &first->module : NULL;
}

/* Readers identify modules by name, and BPF programs, which may share names, by address. */
static bool has_own_name(const struct update *update, const struct guest_module *module)
{
	const struct guest_module *first = module->program ? NULL : first_of_name(update, module);

	return first ? is_same_build(first, module) : build_id_cache_name_is_plain(module->name);
}

/* By an earlier one, or by one of this scan that precedes MODULE. */
static bool is_used(const struct update *update, const struct guest_module *module)
{
	const struct guest_module *one;
	size_t at = 0;

	if (module_spans_next(&update->used, module, &at))
		return true;
	at = 0;
	while ((one = module_spans_next(&update->scanned, module, &at)))
		if (one < module)
			return true;
	return address_ranges_overlap(&update->timeline->forgotten, pages_of(module));
}

/* A BPF program may have replaced one that no scan found, and whose samples are checked later. Only
 * those of the first list begin at time 0. */
static bool begins_at_zero(const struct update *update, const struct guest_module *module)
{
	return !(module->program && update->timeline->programs_listed) && !is_used(update, module);
}

static void begin(struct update *update, const struct guest_module *module,
		  const struct collector_scan *now)
{
	struct module_timeline *timeline = update->timeline;

	timeline->bounds[timeline->count] = (struct module_bound){
		.module = *module,
		.time = begins_at_zero(update, module) ? 0 : now->ended,
		.written = has_own_name(update, module),
	};
	index_bound(update, timeline->count++);
}

/* Ends modules that the scan did not find. */
static void end_others(struct update *update, const struct collector_scan *latest)
{
	struct module_timeline *timeline = update->timeline;

	for (size_t i = 0, before = timeline->count; i < before; i++) {
		struct module_bound *bound = &timeline->bounds[i];
		const struct guest_module *now;

		if (!is_live(bound))
			continue;
		now = find_listed(update, &bound->module);
		if (!now)
			end(timeline, bound, latest);
		else if (now->build_id_size)
			bound->module = *now;
	}
}

static void apply_scan(struct update *update, const struct collector_scan *latest,
		       const struct collector_scan *now)
{
	index_modules(update);
	index_bounds(update);
	end_others(update, latest);
	for (size_t i = 0; i < update->count; i++)
		if (!has_live_bound(update, &update->modules[i]))
			begin(update, &update->modules[i], now);
}

int module_timeline_update(struct module_timeline *timeline, const struct guest_module *modules,
			   size_t count, const struct collector_scan *latest,
			   const struct collector_scan *now)
{
	struct update update = { .timeline = timeline, .modules = modules, .count = count };
	int error;

	if (timeline->stopped || timeline->count + count > MODULE_TIMELINE_MAX)
		return module_timeline_stop(timeline, latest);
	error = make_room(timeline, timeline->count + count);
	if (!error)
		error = open_update(&update);
	if (!error)
		apply_scan(&update, latest, now);
	close_update(&update);
	return error;
}

void module_timeline_confirm(struct module_timeline *timeline, const struct guest_module *module,
			     uint64_t time)
{
	struct module_bound *bound = live_bound(timeline, module);

	if (bound)
		bound->seen = time_later(bound->seen, time);
}

int module_timeline_stop(struct module_timeline *timeline, const struct collector_scan *latest)
{
	if (make_room(timeline, timeline->count))
		return -ENOMEM;
	timeline->stopped = true;
	for (size_t i = 0, before = timeline->count; i < before; i++)
		if (is_live(&timeline->bounds[i]))
			end(timeline, &timeline->bounds[i], latest);
	return 0;
}

int module_timeline_spans(const struct module_timeline *timeline, struct module_spans *spans)
{
	if (module_spans_open(spans, timeline->count))
		return -ENOMEM;
	for (size_t i = 0; i < timeline->count; i++)
		if (!timeline->bounds[i].end)
			module_spans_add(spans, &timeline->bounds[i].module);
	module_spans_finish(spans);
	return 0;
}

bool module_timeline_is_shared(const struct module_timeline *timeline,
			       const struct module_spans *spans, const struct guest_module *module)
{
	size_t at = 0;
	const struct guest_module *one, *other = module_spans_next(spans, module, &at);

	one = other;
	while (other && (other = module_spans_next(spans, module, &at)))
		if (!is_same_build(one, other))
			return true;
	if (address_ranges_overlap(&timeline->forgotten, pages_of(module)))
		return true;
	return timeline->stopped && !one; /* nothing is remembered since the stop */
}

/* For a BPF program: the latest beginning with that address and name before its END. */
static struct module_bound *beginning_of(struct module_timeline *timeline,
					 const struct module_bound *end)
{
	for (size_t i = (size_t)(end - timeline->bounds); i-- > 0;)
		if (timeline->bounds[i].over &&
		    is_unchanged(&timeline->bounds[i].module, &end->module))
			return &timeline->bounds[i];
	return NULL;
}

/* Marks the older half of the ended programs, at least one; returns their number. */
static size_t mark_forgotten(struct module_timeline *timeline)
{
	size_t gone = 0, forgotten = 0;

	for (size_t i = 0; i < timeline->count; i++)
		gone += timeline->bounds[i].end && timeline->bounds[i].module.program;
	for (size_t i = 0; i < timeline->count && forgotten < (gone + 1) / 2; i++) {
		struct module_bound *bound = &timeline->bounds[i], *beginning;

		if (!bound->end || !bound->module.program)
			continue;
		beginning = beginning_of(timeline, bound);
		if (!beginning ||
		    address_ranges_add(&timeline->forgotten, pages_of(&bound->module)))
			break;
		bound->forgotten = beginning->forgotten = true;
		forgotten++;
	}
	return forgotten;
}

static void remove_forgotten(struct module_timeline *timeline, size_t *written)
{
	size_t kept = 0, kept_written = 0;

	for (size_t i = 0; i < timeline->count; i++) {
		if (timeline->bounds[i].forgotten)
			continue;
		kept_written += i < *written;
		timeline->bounds[kept++] = timeline->bounds[i];
	}
	timeline->count = kept;
	*written = kept_written;
}

bool module_timeline_has_room_for_programs(struct module_timeline *timeline, size_t *written)
{
	const size_t room = MODULE_TIMELINE_MAX - MODULE_TIMELINE_MODULES_MAX;

	while (timeline->count >= room && mark_forgotten(timeline))
		remove_forgotten(timeline, written);
	return timeline->count < room;
}

void module_timeline_free(struct module_timeline *timeline)
{
	free(timeline->bounds);
	address_ranges_free(&timeline->forgotten);
	*timeline = (struct module_timeline){ 0 };
}
