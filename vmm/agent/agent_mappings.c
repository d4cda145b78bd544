// SPDX-License-Identifier: Apache-2.0
#include "vmm/agent/agent_mappings.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct agent_mapping {
	struct agent_mapping *next;
	struct sideband_mmap *record; /* owned */
};

static bool is_wanted(const struct sideband *record)
{
	const struct sideband_mmap *mmap = (const void *)record;

	return record->type == SIDEBAND_MMAP && mmap->prot & PROT_EXEC && mmap->build_id_size;
}

/* With what the heap needs for both pieces. */
static size_t cost_of(const struct sideband *record)
{
	return sizeof(struct agent_mapping) + record->size + 32;
}

void agent_mappings_see(struct agent_mappings *mappings, const struct sideband *record)
{
	struct agent_mapping *mapping;

	if (!is_wanted(record) || mappings->bytes + record->size > AGENT_MAPPINGS_MAX ||
	    !guest_account_try_charge(mappings->account, cost_of(record)))
		return;
	mapping = calloc(1, sizeof(*mapping));
	if (mapping)
		mapping->record = malloc(record->size);
	if (!mapping || !mapping->record) {
		free(mapping);
		guest_account_release(mappings->account, cost_of(record));
		return;
	}
	memcpy(mapping->record, record, record->size);
	if (mappings->first)
		mappings->last->next = mapping;
	else
		mappings->first = mapping;
	mappings->last = mapping;
	mappings->bytes += record->size;
}

struct sideband_mmap *agent_mappings_take(struct agent_mappings *mappings)
{
	struct agent_mapping *mapping = mappings->first;
	struct sideband_mmap *record;

	if (!mapping)
		return NULL;
	record = mapping->record;
	mappings->first = mapping->next;
	mappings->bytes -= record->head.size;
	guest_account_release(mappings->account, cost_of(&record->head));
	free(mapping);
	return record;
}

void agent_mappings_free(struct agent_mappings *mappings)
{
	struct sideband_mmap *record;

	while ((record = agent_mappings_take(mappings)))
		free(record);
}
