/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/module_spans.h"

#include <errno.h>
#include <stdlib.h>

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

static int compare(const void *left, const void *right)
{
	const struct module_span *a = left, *b = right;

	if (a->module->start != b->module->start)
		return a->module->start < b->module->start ? -1 : 1;
	return a->module < b->module ? -1 : a->module > b->module;
}

void module_spans_finish(struct module_spans *spans)
{
	qsort(spans->spans, spans->count, sizeof(spans->spans[0]), compare);
	for (size_t i = 1; i < spans->count; i++)
		if (spans->spans[i].reach < spans->spans[i - 1].reach)
			spans->spans[i].reach = spans->spans[i - 1].reach;
}

/* How many begin before ADDRESS. */
static size_t count_before(const struct module_spans *spans, uint64_t address)
{
	size_t low = 0, high = spans->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (spans->spans[middle].module->start < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
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
