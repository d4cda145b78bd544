/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/guest/unwind/cfi_table.h"

#define SLOTS        (2 * CFI_RULES_MAX)
#define PROBES_MAX   64 /* rules may be made to collide */
#define NO_RULE      0u /* index of the rule of code that nothing describes */
#define UNKNOWN_RULE 1u

/* A rule is compared by its bytes: there are none between its members. */
_Static_assert(sizeof(struct cfi_rule) == 20, "a rule has no holes");

struct cfi_builder {
	uint32_t *starts;
	uint16_t *rule_of;
	uint32_t count, capacity; /* of rows */
	struct cfi_rule *rules;
	uint32_t rule_count, rule_capacity;
	uint64_t end;          /* of the last range */
	uint16_t slots[SLOTS]; /* hash table of rules: index, 0 where there is none */
};

static int grow_rows(struct cfi_builder *builder, uint32_t capacity)
{
	uint32_t *starts = realloc(builder->starts, capacity * sizeof(*starts));
	uint16_t *rule_of;

	if (!starts)
		return -ENOMEM;
	builder->starts = starts;
	rule_of = realloc(builder->rule_of, capacity * sizeof(*rule_of));
	if (!rule_of)
		return -ENOMEM;
	builder->rule_of = rule_of;
	builder->capacity = capacity;
	return 0;
}

static int add_row(struct cfi_builder *builder, uint64_t start, uint16_t rule)
{
	int error = 0;

	/* What begins where the range before it ends replaces that end. */
	if (builder->count && builder->starts[builder->count - 1] == start)
		builder->count--;
	if (builder->count ? builder->rule_of[builder->count - 1] == rule : rule == NO_RULE)
		return 0;
	if (start > UINT32_MAX || builder->count >= CFI_ROWS_MAX)
		return -E2BIG;
	if (builder->count == builder->capacity)
		error = grow_rows(builder, builder->capacity ? 2 * builder->capacity : 1024);
	if (error)
		return error;
	builder->starts[builder->count] = (uint32_t)start;
	builder->rule_of[builder->count++] = rule;
	return 0;
}

/* FNV-1a. */
static uint32_t hash(const struct cfi_rule *rule)
{
	const uint8_t *bytes = (const uint8_t *)rule;
	uint32_t sum = 2166136261u;

	for (size_t i = 0; i < sizeof(*rule); i++)
		sum = (sum ^ bytes[i]) * 16777619u;
	return sum ^ sum >> 15;
}

static int append_rule(struct cfi_builder *builder, const struct cfi_rule *rule)
{
	if (builder->rule_count == builder->rule_capacity) {
		uint32_t capacity = builder->rule_capacity ? 2 * builder->rule_capacity : 64;
		struct cfi_rule *rules = realloc(builder->rules, capacity * sizeof(*rules));

		if (!rules)
			return -ENOMEM;
		builder->rules = rules;
		builder->rule_capacity = capacity;
	}
	builder->rules[builder->rule_count++] = *rule;
	return 0;
}

/* The index of RULE, which is added if it is new. Where there is no more room it is not known. */
static int index_of(struct cfi_builder *builder, const struct cfi_rule *rule, uint16_t *index)
{
	uint32_t slot = hash(rule) % SLOTS, probes = 0;

	*index = rule->cfa == CFI_CFA_NONE ? NO_RULE : UNKNOWN_RULE;
	if (rule->cfa == CFI_CFA_NONE || rule->cfa == CFI_CFA_UNKNOWN)
		return 0;
	while (builder->slots[slot] && probes < PROBES_MAX) {
		*index = builder->slots[slot];
		if (!memcmp(&builder->rules[*index], rule, sizeof(*rule)))
			return 0;
		slot = (slot + 1) % SLOTS;
		probes++;
	}
	*index = UNKNOWN_RULE;
	if (builder->rule_count == CFI_RULES_MAX || probes == PROBES_MAX)
		return 0;
	*index = (uint16_t)builder->rule_count;
	builder->slots[slot] = *index;
	return append_rule(builder, rule);
}

struct cfi_builder *cfi_builder_new(void)
{
	static const struct cfi_rule none = { .cfa = CFI_CFA_NONE },
				     unknown = { .cfa = CFI_CFA_UNKNOWN };
	struct cfi_builder *builder = calloc(1, sizeof(*builder));

	if (builder && !append_rule(builder, &none) && !append_rule(builder, &unknown))
		return builder;
	cfi_builder_free(builder);
	return NULL;
}

int cfi_builder_add(struct cfi_builder *builder, uint64_t start, uint64_t end,
		    const struct cfi_rule *rule)
{
	uint16_t index;
	int error;

	if (start < builder->end)
		start = builder->end;
	if (start >= end)
		return 0;
	if (end > UINT32_MAX)
		return -E2BIG;
	builder->end = end;
	error = index_of(builder, rule, &index);
	if (!error)
		error = add_row(builder, start, index);
	return error ? error : add_row(builder, end, NO_RULE);
}

/* BLOCK with room for COUNT members of SIZE; as it was where that is not possible. */
static void *shrunk(void *block, uint32_t count, size_t size)
{
	void *smaller = count ? realloc(block, count * size) : NULL;

	return smaller ? smaller : block;
}

int cfi_builder_finish(struct cfi_builder *builder, struct cfi_table **table)
{
	struct cfi_table *made = calloc(1, sizeof(*made));

	*table = made;
	if (made) {
		*made = (struct cfi_table){ .count = builder->count,
					    .rule_count = builder->rule_count,
					    .starts = shrunk(builder->starts, builder->count, 4),
					    .rule_of = shrunk(builder->rule_of, builder->count, 2),
					    .rules = shrunk(builder->rules, builder->rule_count,
							    sizeof(*made->rules)) };
		builder->starts = NULL;
		builder->rule_of = NULL;
		builder->rules = NULL;
	}
	cfi_builder_free(builder);
	return made ? 0 : -ENOMEM;
}

void cfi_builder_free(struct cfi_builder *builder)
{
	if (!builder)
		return;
	free(builder->starts);
	free(builder->rule_of);
	free(builder->rules);
	free(builder);
}
