/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/agent/agent_records.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>

#include "shared/agent_protocol.h"

/* The payload of PERF_RECORD_FORK and EXIT. */
struct perf_task {
	uint32_t pid, parent_pid, tid, parent_tid;
	uint64_t time;
};

struct perf_comm {
	uint32_t pid, tid;
};

struct perf_ksymbol {
	uint64_t start;
	uint32_t size;
	uint16_t type, flags;
};

struct perf_lost {
	uint64_t id, count;
};

/* One perf record: the payload between its header and its end. */
struct source {
	struct perf_event_header header;
	struct span payload;
	struct agent_record_end end;
};

static struct sideband *begin(struct agent_record *record, enum sideband_type type, uint16_t flags,
			      uint32_t pid, uint32_t tid, size_t size)
{
	struct sideband *head = &record->sideband.head;

	memset(record->sideband.bytes, 0, size);
	*head = (struct sideband){
		.size = (uint32_t)size, .type = type, .flags = flags, .pid = pid, .tid = tid
	};
	return head;
}

/* The name at OFFSET of the payload, or NULL if it needs more than LIMIT bytes. */
static const char *name_at(const struct source *source, size_t offset, size_t limit)
{
	const char *name = span_string(source->payload, offset);

	return name && strlen(name) < limit ? name : NULL;
}

static void decode_mmap(const struct source *source, struct agent_record *record)
{
	const char *name = name_at(source, sizeof(struct agent_mmap2), SIDEBAND_NAME_MAX);
	struct sideband_mmap *mapping;
	struct agent_mmap2 from;

	if (!name || !span_copy(source->payload, 0, &from, sizeof(from)) || !from.pid)
		return;
	mapping = (void *)begin(record, SIDEBAND_MMAP, 0, from.pid, from.tid,
				sideband_size(sizeof(*mapping), name));
	mapping->start = from.start;
	mapping->length = from.size;
	mapping->offset = from.offset;
	mapping->prot = from.prot;
	mapping->map_flags = from.flags;
	if (source->header.misc & PERF_RECORD_MISC_MMAP_BUILD_ID) {
		mapping->build_id_size = from.build_id_size;
		memcpy(mapping->build_id, from.build_id, sizeof(mapping->build_id));
	} else {
		mapping->major = from.major;
		mapping->minor = from.minor;
		mapping->inode = from.inode;
		mapping->generation = from.generation;
	}
	memcpy(mapping->name, name, strlen(name) + 1);
}

static void decode_task(const struct source *source, struct agent_record *record)
{
	struct sideband_fork *fork;
	struct perf_task from;

	if (!span_copy(source->payload, 0, &from, sizeof(from)) || !from.pid)
		return;
	if (source->header.type == PERF_RECORD_EXIT) {
		begin(record, SIDEBAND_EXIT, 0, from.pid, from.tid, sizeof(struct sideband));
		return;
	}
	fork = (void *)begin(record, SIDEBAND_FORK, 0, from.pid, from.tid, sizeof(*fork));
	fork->parent_pid = from.parent_pid;
	fork->parent_tid = from.parent_tid;
}

static void decode_comm(const struct source *source, struct agent_record *record)
{
	const char *name = name_at(source, sizeof(struct perf_comm), SIDEBAND_COMM_SIZE);
	bool exec = source->header.misc & PERF_RECORD_MISC_COMM_EXEC;
	struct sideband_comm *comm;
	struct perf_comm from;

	if (!name || !span_copy(source->payload, 0, &from, sizeof(from)) || !from.pid)
		return;
	comm = (void *)begin(record, SIDEBAND_COMM, exec ? SIDEBAND_COMM_EXEC : 0, from.pid,
			     from.tid, sizeof(*comm));
	memcpy(comm->comm, name, strlen(name) + 1);
}

static void decode_ksymbol(const struct source *source, struct agent_record *record)
{
	const char *name = name_at(source, sizeof(struct perf_ksymbol), SIDEBAND_NAME_MAX);
	struct sideband_munmap *gone;
	struct sideband_module *code;
	struct perf_ksymbol from;

	if (!name || !span_copy(source->payload, 0, &from, sizeof(from)))
		return;
	if (from.flags & PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER) {
		gone = (void *)begin(record, SIDEBAND_MODULE_UNLOAD, 0, 0, 0, sizeof(*gone));
		gone->start = from.start;
		gone->length = from.size;
		return;
	}
	code = (void *)begin(record, SIDEBAND_MODULE_LOAD, SIDEBAND_MODULE_GENERATED, 0, 0,
			     sideband_size(sizeof(*code), name));
	code->start = from.start;
	code->length = from.size;
	memcpy(code->name, name, strlen(name) + 1);
}

static void decode_lost(const struct source *source, struct agent_record *record)
{
	struct sideband_lost *lost;
	struct perf_lost from;

	if (!span_copy(source->payload, 0, &from, sizeof(from)))
		return;
	lost = (void *)begin(record, SIDEBAND_LOST, 0, 0, 0, sizeof(*lost));
	lost->count = from.count;
}

/* The record's end has the process. */
static void decode_cgroup(const struct source *source, struct agent_record *record)
{
	const char *path = name_at(source, sizeof(uint64_t), SIDEBAND_NAME_MAX);
	struct sideband_cgroup *cgroup;
	uint64_t id;

	if (!path || !span_u64(source->payload, 0, &id) || !source->end.pid)
		return;
	cgroup = (void *)begin(record, SIDEBAND_CGROUP, 0, source->end.pid, source->end.tid,
			       sideband_size(sizeof(*cgroup), path));
	cgroup->id = id;
	memcpy(cgroup->path, path, strlen(path) + 1);
}

static void decode(const struct source *source, struct agent_record *record)
{
	switch (source->header.type) {
	case PERF_RECORD_MMAP2:
		decode_mmap(source, record);
		break;
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		decode_task(source, record);
		break;
	case PERF_RECORD_COMM:
		decode_comm(source, record);
		break;
	case PERF_RECORD_KSYMBOL:
		decode_ksymbol(source, record);
		break;
	case PERF_RECORD_CGROUP:
		decode_cgroup(source, record);
		break;
	case PERF_RECORD_LOST:
		decode_lost(source, record);
		break;
	}
}

int agent_record_decode(struct span records, struct agent_record *record)
{
	struct source source;

	if (!span_copy(records, 0, &source.header, sizeof(source.header)) ||
	    source.header.size % 8 ||
	    source.header.size < sizeof(source.header) + sizeof(source.end) ||
	    !span_part(records, sizeof(source.header),
		       source.header.size - sizeof(source.header) - sizeof(source.end),
		       &source.payload) ||
	    !span_copy(records, source.header.size - sizeof(source.end), &source.end,
		       sizeof(source.end)))
		return -EPROTO;
	record->guest_time = source.end.time;
	record->sideband.head.size = 0;
	decode(&source, record);
	if (record->sideband.head.size &&
	    !sideband_check(span_of(record->sideband.bytes, SIDEBAND_SIZE_MAX)))
		record->sideband.head.size = 0;
	return source.header.size;
}
