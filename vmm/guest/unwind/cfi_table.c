/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/unwind/cfi_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/hash.h"

#define SLOTS        (2 * CFI_RULES_MAX)
#define PROBES_MAX   64 /* hostile rules may collide */
#define NO_RULE      0u /* index of the rule for code without an FDE */
#define UNKNOWN_RULE 1u

/* Rules are compared by their bytes. */
_Static_assert(sizeof(struct cfi_rule) == 20, "a rule has no holes");

struct cfi_builder {
	uint32_t *starts;
	uint16_t *rule_of;
	size_t count, starts_capacity, rule_of_capacity; /* of rows */
	struct cfi_rule *rules;
	size_t rule_count, rule_capacity;
	uint64_t end;          /* of the last range */
	uint16_t slots[SLOTS]; /* hash table of rules: index, 0 where there is none */
};

static int add_row(struct cfi_builder *builder, uint64_t start, uint16_t rule)
{
	/* A row that begins where the previous range ends replaces that end. */
	if (builder->count && builder->starts[builder->count - 1] == start)
		builder->count--;
	if (builder->count ? builder->rule_of[builder->count - 1] == rule : rule == NO_RULE)
		return 0;
	if (start > UINT32_MAX || builder->count >= CFI_ROWS_MAX)
		return -E2BIG;
	if (array_reserve(&builder->starts, &builder->starts_capacity, builder->count + 1) ||
	    array_reserve(&builder->rule_of, &builder->rule_of_capacity, builder->count + 1))
		return -ENOMEM;
	builder->starts[builder->count] = (uint32_t)start;
	builder->rule_of[builder->count++] = rule;
	return 0;
}

static uint32_t hash(const struct cfi_rule *rule)
{
	uint64_t sum = hash_add_bytes(HASH_START, rule, sizeof(*rule));

	return (uint32_t)(sum ^ sum >> 32);
}

static int append_rule(struct cfi_builder *builder, const struct cfi_rule *rule)
{
	if (array_reserve(&builder->rules, &builder->rule_capacity, builder->rule_count + 1))
		return -ENOMEM;
	builder->rules[builder->rule_count++] = *rule;
	return 0;
}

/* The index of RULE, which is added if it is new; UNKNOWN_RULE if there is no room. */
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

/* Shrinks BLOCK to COUNT items of SIZE bytes, if possible. */
static void *shrunk(void *block, size_t count, size_t size)
{
	void *smaller = count ? realloc(block, count * size) : NULL;

	return smaller ? smaller : block;
}

int cfi_builder_finish(struct cfi_builder *builder, struct cfi_table **table)
{
	struct cfi_table *made = calloc(1, sizeof(*made));

	*table = made;
	if (made) {
		*made = (struct cfi_table){ .count = (uint32_t)builder->count,
					    .rule_count = (uint32_t)builder->rule_count,
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

static const struct cfi_rule no_rule;

/* Without branches in the loop, as they would be unpredictable. */
const struct cfi_rule *cfi_table_find(const struct cfi_table *table, uint64_t offset)
{
	const uint32_t *base = table->starts;
	uint32_t left = table->count, target = (uint32_t)offset;

	if (!left || offset > UINT32_MAX || target < base[0])
		return &no_rule;
	while (left > 1) {
		uint32_t half = left / 2;

		base += base[half] <= target ? half : 0;
		left -= half;
	}
	return &table->rules[table->rule_of[base - table->starts]];
}

static bool is_valid_rule(const struct cfi_rule *rule)
{
	return rule->cfa <= CFI_CFA_PLT && rule->cfa_register < DWARF_RIP &&
	       rule->bp <= CFI_REGISTER && rule->bx <= CFI_REGISTER && rule->ip <= CFI_REGISTER &&
	       rule->signal <= 1 && !rule->reserved[0] && !rule->reserved[1];
}

bool cfi_table_is_valid(const struct cfi_table *table)
{
	bool valid = table->count <= CFI_ROWS_MAX && table->rule_count <= CFI_RULES_MAX;

	for (uint32_t i = 0; i < table->count && valid; i++)
		valid = table->rule_of[i] < table->rule_count &&
			(!i || table->starts[i - 1] < table->starts[i]);
	for (uint32_t i = 0; i < table->rule_count && valid; i++)
		valid = is_valid_rule(&table->rules[i]);
	return valid;
}

size_t cfi_table_size(const struct cfi_table *table)
{
	return sizeof(*table) + table->count * (sizeof(*table->starts) + sizeof(*table->rule_of)) +
	       table->rule_count * sizeof(*table->rules);
}

void cfi_table_free(struct cfi_table *table)
{
	if (!table)
		return;
	free(table->starts);
	free(table->rule_of);
	free(table->rules);
	free(table);
}
