/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/agent/agent_jit.h"

#include <string.h>
#include <sys/mman.h>

#include "shared/clock_ns.h"
#include "shared/sample_record.h"
#include "vmm/guest/linux/perf_map.h"

static uint32_t find(const struct agent_jit *jit, uint32_t pid)
{
	uint32_t i = 0;

	while (i < AGENT_JIT_PROCESSES_MAX && jit->processes[i].pid != pid)
		i++;
	return i;
}

static void request(struct agent_jit *jit, uint32_t pid, uint64_t time)
{
	uint32_t index = find(jit, pid);

	if (index < AGENT_JIT_PROCESSES_MAX) {
		if (jit->processes[index].mapped < time)
			jit->processes[index].mapped = time;
		return;
	}
	index = jit->next;
	jit->next = (index + 1) % AGENT_JIT_PROCESSES_MAX;
	if (!jit->processes[index].pid || jit->processes[index].requested)
		jit->waiting++;
	jit->processes[index].pid = pid;
	jit->processes[index].requested = false;
	jit->processes[index].mapped = time;
}

/* Process PID runs another program since TIME. Later mappings belong to it; the requested map does
 * not. */
static void restart(struct agent_jit *jit, uint32_t pid, uint64_t time)
{
	uint32_t index = find(jit, pid);

	if (index == AGENT_JIT_PROCESSES_MAX)
		return;
	jit->waiting -= !jit->processes[index].requested;
	jit->processes[index].requested = false;
	if (jit->processes[index].mapped > time)
		jit->waiting++;
	else
		jit->processes[index].pid = 0;
}

void agent_jit_observe(struct agent_jit *jit, const struct sideband *record, uint64_t time)
{
	const struct sideband_mmap *mmap = (const void *)record;
	const struct sideband_fork *fork = (const void *)record;

	if (!record->pid)
		return;
	if (record->type == SIDEBAND_MMAP && mmap->prot & PROT_EXEC &&
	    sideband_is_anonymous(mmap->name, mmap->build_id_size))
		request(jit, record->pid, time);
	else if ((record->type == SIDEBAND_COMM && record->flags & SIDEBAND_COMM_EXEC) ||
		 (record->type == SIDEBAND_FORK && fork->parent_pid != record->pid))
		restart(jit, record->pid, time);
}

uint32_t agent_jit_next(struct agent_jit *jit)
{
	for (uint32_t i = 0; jit->waiting && i < AGENT_JIT_PROCESSES_MAX; i++) {
		if (!jit->processes[i].pid || jit->processes[i].requested)
			continue;
		jit->processes[i].requested = true;
		jit->waiting--;
		return jit->processes[i].pid;
	}
	return 0;
}

bool agent_jit_active(const struct agent_jit *jit)
{
	for (uint32_t i = 0; i < AGENT_JIT_PROCESSES_MAX; i++)
		if (jit->processes[i].pid)
			return true;
	return false;
}

void agent_jit_reset(struct agent_jit *jit)
{
	*jit = (struct agent_jit){ 0 };
}

static uint16_t flags_of(uint32_t flags)
{
	return (flags & AGENT_JIT_MAP_BEGIN ? SIDEBAND_JIT_BEGIN : 0) |
	       (flags & AGENT_JIT_MAP_INCOMPLETE ? SIDEBAND_JIT_INCOMPLETE : 0) |
	       (flags & AGENT_JIT_MAP_END ? SIDEBAND_JIT_END : 0);
}

/* Guest time since which the program runs; 0: unknown. */
static uint64_t program_of(const struct agent_jit_map *map)
{
	uint64_t age = map->program * NS_PER_MS;

	return age && age < map->time ? map->time - age : 0;
}

static struct sideband head_of(const struct agent_jit_map *map, uint16_t type, uint32_t size)
{
	return (struct sideband){
		.size = size, .type = type, .time = map->time, .pid = map->pid, .tid = map->pid
	};
}

static bool is_valid(const struct agent_jit_map *map, size_t room)
{
	return map->size <= room && map->pid && map->pid < SAMPLE_TASK_LIMIT &&
	       map->since <= map->time;
}

bool agent_jit_decode(const struct agent_message *message,
		      void (*each)(void *context, struct sideband *record), void *context)
{
	const struct agent_jit_map *map = agent_payload(message, sizeof(*map));
	struct sideband_jit_map begin;
	struct perf_map_line line;
	struct span lines;
	union {
		struct sideband_jit_code code;
		uint8_t bytes[SIDEBAND_SIZE_MAX];
	} record;

	if (!map || !is_valid(map, agent_payload_size(message) - sizeof(*map)))
		return false;
	begin = (struct sideband_jit_map){ .head = head_of(map, SIDEBAND_JIT_MAP, sizeof(begin)),
					   .since = map->since,
					   .program = program_of(map) };
	begin.head.flags = flags_of(map->flags);
	each(context, &begin.head);
	lines = span_of(map->lines, map->size);
	while (perf_map_next(&lines, &line)) {
		uint32_t size = sideband_size(sizeof(record.code), line.name);

		memset(&record, 0, size);
		record.code.head = head_of(map, SIDEBAND_JIT_CODE, size);
		record.code.start = line.start;
		record.code.length = line.length;
		record.code.since = map->since;
		memcpy(record.code.name, line.name, strlen(line.name) + 1);
		each(context, &record.code.head);
	}
	return true;
}
