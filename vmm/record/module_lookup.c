/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/module_lookup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/hash.h"

/* --- by number -------------------------------------------------------------------- */

int module_index_open(struct module_index *index, size_t count)
{
	*index = (struct module_index){ .bits = 1 };
	while ((size_t)1 << index->bits < count)
		index->bits++;
	index->heads = calloc((size_t)1 << index->bits, sizeof(index->heads[0]));
	index->next = calloc(count + 1, sizeof(index->next[0]));
	if (index->heads && index->next)
		return 0;
	module_index_close(index);
	return -ENOMEM;
}

void module_index_close(struct module_index *index)
{
	free(index->heads);
	free(index->next);
	*index = (struct module_index){ 0 };
}

static size_t bucket_of(const struct module_index *index, uint64_t number)
{
	return hash_mix(0, number) >> (64 - index->bits);
}

void module_index_add(struct module_index *index, uint64_t number, size_t member)
{
	uint32_t *head = &index->heads[bucket_of(index, number)];

	index->next[member] = *head;
	*head = (uint32_t)member + 1;
}

size_t module_index_first(const struct module_index *index, uint64_t number)
{
	return (size_t)index->heads[bucket_of(index, number)] - 1;
}

size_t module_index_next(const struct module_index *index, size_t member)
{
	return (size_t)index->next[member] - 1;
}

uint64_t module_index_name(const char *name)
{
	return hash_mix_bytes(0, name, strlen(name));
}

/* --- by range --------------------------------------------------------------------- */

int module_spans_open(struct module_spans *spans, size_t count)
{
	*spans = (struct module_spans){ .spans = calloc(count + 1, sizeof(spans->spans[0])) };
	return spans->spans ? 0 : -ENOMEM;
}

void module_spans_close(struct module_spans *spans)
{
	free(spans->spans);
	*spans = (struct module_spans){ 0 };
}

static uint64_t end_of(const struct guest_module *module)
{
	return module->start + module->size;
}

void module_spans_add(struct module_spans *spans, const struct guest_module *module)
{
	spans->spans[spans->count++] =
		(struct module_span){ .module = module, .reach = end_of(module) };
}

static int compare_spans(const void *left, const void *right)
{
	const struct module_span *a = left, *b = right;

	if (a->module->start != b->module->start)
		return a->module->start < b->module->start ? -1 : 1;
	return a->module < b->module ? -1 : a->module > b->module;
}

void module_spans_finish(struct module_spans *spans)
{
	qsort(spans->spans, spans->count, sizeof(spans->spans[0]), compare_spans);
	for (size_t i = 1; i < spans->count; i++)
		if (spans->spans[i].reach < spans->spans[i - 1].reach)
			spans->spans[i].reach = spans->spans[i - 1].reach;
}

/* How many begin before ADDRESS. */
static size_t count_before(const struct module_spans *spans, uint64_t address)
{
	return array_partition(spans->count, i, spans->spans[i].module->start < address);
}

const struct guest_module *module_spans_next(const struct module_spans *spans,
					     const struct guest_module *module, size_t *at)
{
	size_t after = *at ? *at - 1 : count_before(spans, end_of(module));

	while (after && spans->spans[after - 1].reach > module->start) {
		const struct guest_module *one = spans->spans[--after].module;

		*at = after + 1;
		if (end_of(one) > module->start)
			return one;
	}
	*at = 1;
	return NULL;
}

/* --- sets of addresses ------------------------------------------------------------ */

/* The first range that ends at ADDRESS or after it. */
static size_t find_range(const struct address_ranges *set, uint64_t address)
{
	return array_partition(set->count, i, set->ranges[i].end < address);
}

static int insert(struct address_ranges *set, size_t index, struct address_range range)
{
	struct address_range *at;

	if (set->count == ADDRESS_RANGES_MAX)
		return -ENOSPC;
	if (array_reserve(&set->ranges, &set->capacity, set->count + 1))
		return -ENOMEM;
	at = set->ranges + index;
	memmove(at + 1, at, (set->count++ - index) * sizeof(*at));
	*at = range;
	return 0;
}

/* Replaces the ranges from FIRST up to END by RANGE. */
static void replace(struct address_ranges *set, size_t first, size_t end,
		    struct address_range range)
{
	set->ranges[first] = range;
	memmove(set->ranges + first + 1, set->ranges + end, (set->count - end) * sizeof(range));
	set->count -= end - first - 1;
}

int address_ranges_add(struct address_ranges *set, struct address_range range)
{
	size_t first = find_range(set, range.start), end = first;

	while (end < set->count && set->ranges[end].start <= range.end)
		end++;
	if (end == first)
		return insert(set, first, range);
	if (set->ranges[first].start < range.start)
		range.start = set->ranges[first].start;
	if (set->ranges[end - 1].end > range.end)
		range.end = set->ranges[end - 1].end;
	replace(set, first, end, range);
	return 0;
}

bool address_ranges_overlap(const struct address_ranges *set, struct address_range range)
{
	/* A range that ends where RANGE starts does not overlap it. */
	size_t index = find_range(set, range.start + 1);

	return index < set->count && set->ranges[index].start < range.end;
}

void address_ranges_free(struct address_ranges *set)
{
	free(set->ranges);
	*set = (struct address_ranges){ 0 };
}
