// SPDX-License-Identifier: Apache-2.0
#include "vmm/agent/agent_held.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN (64ul << 10)

/* RECORD's size is a multiple of 8, so that each entry is aligned. */
struct entry {
	uint64_t guest_time;
	struct sideband record; /* and what is behind it */
};

static size_t entry_size(const struct sideband *record)
{
	return offsetof(struct entry, record) + record->size;
}

static bool make_room(struct agent_held *held, size_t size)
{
	size_t used = held->end - held->begin,
	       capacity = held->capacity ? held->capacity : CAPACITY_MIN;
	uint8_t *bytes;

	if (held->capacity - held->end >= size)
		return true;
	while (capacity < used + size)
		capacity *= 2;
	if (capacity > AGENT_HELD_MAX)
		return false;
	bytes = malloc(capacity);
	if (!bytes)
		return false;
	if (used)
		memcpy(bytes, held->bytes + held->begin, used);
	free(held->bytes);
	held->bytes = bytes;
	held->capacity = capacity;
	held->begin = 0;
	held->end = used;
	return true;
}

bool agent_held_add(struct agent_held *held, uint64_t guest_time, const struct sideband *record)
{
	size_t size = entry_size(record);
	struct entry *entry;

	assert(record->size % 8 == 0 && record->size >= sizeof(*record));
	if (!make_room(held, size))
		return false;
	entry = (struct entry *)(held->bytes + held->end);
	entry->guest_time = guest_time;
	memcpy(&entry->record, record, record->size);
	held->end += size;
	if (guest_time > held->latest)
		held->latest = guest_time;
	return true;
}

struct sideband *agent_held_first(const struct agent_held *held, uint64_t *guest_time)
{
	struct entry *entry;

	if (held->begin == held->end)
		return NULL;
	entry = (struct entry *)(held->bytes + held->begin);
	*guest_time = entry->guest_time;
	return &entry->record;
}

/* What was needed for a storm is not kept behind it. */
void agent_held_drop(struct agent_held *held)
{
	const struct entry *entry = (const struct entry *)(held->bytes + held->begin);

	assert(held->begin < held->end);
	held->begin += entry_size(&entry->record);
	if (held->begin < held->end)
		return;
	if (held->capacity > CAPACITY_MIN)
		agent_held_clear(held);
	held->begin = held->end = held->latest = 0;
}

void agent_held_clear(struct agent_held *held)
{
	free(held->bytes);
	*held = (struct agent_held){ 0 };
}
