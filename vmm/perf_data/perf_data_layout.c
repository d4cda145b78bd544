/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/perf_data/perf_data_records.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/error.h"

/* A position in a sample; GOOD is false after a read beyond its end. */
struct cursor {
	struct span span;
	uint64_t offset;
	bool good;
};

static uint64_t read_u64(struct cursor *cursor)
{
	uint64_t value = 0;

	if (!span_u64(cursor->span, cursor->offset, &value))
		cursor->good = false;
	cursor->offset += sizeof(value);
	return value;
}

static void read_u32_pair(struct cursor *cursor, uint32_t *first, uint32_t *second)
{
	uint64_t both = read_u64(cursor);

	*first = (uint32_t)both;
	*second = (uint32_t)(both >> 32);
}

static bool read_attribute(struct span span, struct perf_event_attr *attribute)
{
	uint32_t size;

	*attribute = (struct perf_event_attr){ 0 };
	if (!span_u32(span, offsetof(struct perf_event_attr, size), &size))
		return false;
	if (!size)
		size = PERF_ATTR_SIZE_VER0;
	if (size < PERF_ATTR_SIZE_VER0)
		return false;
	return span_copy(span, 0, attribute, size < sizeof(*attribute) ? size : sizeof(*attribute));
}

int perf_data_layout_add_event(struct perf_data_layout *layout, struct span span)
{
	struct perf_event_attr attribute;

	if (!read_attribute(span, &attribute))
		return error_set(-EINVAL, "the perf.data file has a broken event attribute");
	if (layout->event_count >= PERF_DATA_EVENTS_MAX)
		return error_set(-EINVAL, "the perf.data file has more than %d events",
				 PERF_DATA_EVENTS_MAX);
	if (array_reserve(&layout->events, &layout->event_capacity, layout->event_count + 1))
		return error_set(-ENOMEM, "no memory for the events of a perf.data file");
	layout->events[layout->event_count] = (struct perf_data_event){
		.sample_type = attribute.sample_type,
		.read_format = attribute.read_format,
		.branch_type = attribute.branch_sample_type,
		.registers_user = attribute.sample_regs_user,
		.registers_interrupt = attribute.sample_regs_intr,
		.frequency = attribute.freq ? attribute.sample_freq : 0,
		.period = attribute.freq ? 0 : attribute.sample_period,
		.type = attribute.type,
		.config = attribute.config,
		.sample_id_all = attribute.sample_id_all,
	};
	return (int)layout->event_count++;
}

static bool has_id(const void *item, const void *key)
{
	return ((const struct perf_data_id *)item)->id == *(const uint64_t *)key;
}

static struct perf_data_id *find_id(const struct perf_data_layout *layout, uint64_t id)
{
	return hash_table_find(&layout->ids, hash_mix(0, id), has_id, &id);
}

/* An id that the file has twice belongs to its first event. */
static int add_id(struct perf_data_layout *layout, uint64_t id, uint32_t event, uint32_t index)
{
	struct perf_data_id *entry;

	if (find_id(layout, id))
		return 0;
	if (layout->ids.count >= PERF_DATA_IDS_MAX)
		return error_set(-EINVAL, "the perf.data file has more than %u ids",
				 PERF_DATA_IDS_MAX);
	entry = pool_alloc(&layout->memory, sizeof(*entry));
	if (!entry || hash_table_add(&layout->ids, hash_mix(0, id), entry))
		return error_set(-ENOMEM, "no memory for the ids of a perf.data file");
	*entry = (struct perf_data_id){
		.id = id, .event = event, .index = index, .vcpu = UINT32_MAX
	};
	return 0;
}

int perf_data_layout_add_ids(struct perf_data_layout *layout, uint32_t event, struct span ids)
{
	uint64_t id;
	int error = 0;

	for (uint64_t offset = 0; !error && span_u64(ids, offset, &id); offset += sizeof(id))
		error = add_id(layout, id, event, (uint32_t)(offset / sizeof(id)));
	return error;
}

/* Content: number of events, size of an attribute; then per event: attribute, number of ids, name,
 * ids. */
void perf_data_layout_names(struct perf_data_layout *layout, struct span content)
{
	uint32_t events, attribute_size, ids, length;
	uint64_t next = 8;
	struct span name;

	if (!span_u32(content, 0, &events) || !span_u32(content, 4, &attribute_size))
		return;
	for (uint32_t i = 0; i < events && i < layout->event_count; i++) {
		struct perf_data_event *event = &layout->events[i];

		next += attribute_size;
		if (!span_u32(content, next, &ids) || !span_u32(content, next + 4, &length) ||
		    !span_part(content, next + 8, length, &name))
			return;
		if (!event->name && length)
			event->name = strndup((const char *)name.data, length);
		next += 8 + (uint64_t)length + ids * sizeof(uint64_t);
	}
}

void perf_data_layout_read(struct perf_data_layout *layout, struct span record)
{
	const uint64_t format =
		PERF_FORMAT_ID | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
	const uint64_t values =
		sizeof(struct perf_event_header) + 2 * sizeof(uint32_t); /* after pid and tid */
	struct perf_data_count count;
	struct perf_data_id *entry;
	uint64_t id;

	if (!layout->event_count || layout->events->read_format != format ||
	    !span_copy(record, values, &count, sizeof(count)) ||
	    !span_u64(record, values + sizeof(count), &id))
		return;
	entry = find_id(layout, id);
	if (entry)
		entry->count = count;
}

int perf_data_layout_event(struct perf_data_layout *layout, uint64_t id)
{
	const struct perf_data_id *known = find_id(layout, id);

	return known ? (int)known->event : -1;
}

bool perf_data_layout_id_index(struct perf_data_layout *layout, struct span record)
{
	const uint64_t entries = sizeof(struct perf_event_header) + sizeof(uint64_t);
	uint64_t count, guests;

	if (!span_u64(record, sizeof(struct perf_event_header), &count) ||
	    count > record.size / sizeof(struct perf_data_id_entry))
		return false;
	/* perf writes the second array only if there are guests. */
	if (!span_contains(record, entries,
			   count * (sizeof(struct perf_data_id_entry) +
				    sizeof(struct perf_data_id_guest))))
		return span_contains(record, entries, count * sizeof(struct perf_data_id_entry));
	guests = entries + count * sizeof(struct perf_data_id_entry);
	for (uint64_t i = 0; i < count; i++) {
		struct perf_data_id_entry entry;
		struct perf_data_id_guest guest;
		struct perf_data_id *id;

		if (!span_copy(record, entries + i * sizeof(entry), &entry, sizeof(entry)) ||
		    !span_copy(record, guests + i * sizeof(guest), &guest, sizeof(guest)))
			return false;
		id = find_id(layout, entry.id);
		if (id && guest.machine_pid) {
			id->machine_pid = (uint32_t)guest.machine_pid;
			id->vcpu = (uint32_t)guest.vcpu;
		}
	}
	return true;
}

/* The event of a sample: all events of a file have the id at the same offset, or there is one
 * event. */
static const struct perf_data_event *find_event(struct perf_data_layout *layout, struct span record,
						struct perf_data_sample *sample)
{
	const struct perf_data_event *first = layout->events;
	uint64_t offset = sizeof(struct perf_event_header);
	const struct perf_data_id *id;

	if (!layout->event_count)
		return NULL;
	if (!(first->sample_type & PERF_SAMPLE_IDENTIFIER)) {
		if (!(first->sample_type & PERF_SAMPLE_ID))
			return first;
		for (uint64_t fields = first->sample_type & (PERF_SAMPLE_IP | PERF_SAMPLE_TID |
							     PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR);
		     fields; fields &= fields - 1)
			offset += sizeof(uint64_t);
	}
	if (!span_u64(record, offset, &sample->id))
		return NULL;
	id = find_id(layout, sample->id);
	if (!id)
		return layout->event_count == 1 ? first : NULL;
	sample->machine_pid = id->machine_pid;
	sample->vcpu = id->vcpu;
	sample->event = (uint16_t)id->event;
	return &layout->events[id->event];
}

/* Skips counter values, which precede other fields. */
static void skip_read(struct cursor *cursor, uint64_t format)
{
	uint64_t per_value = 1 + !!(format & PERF_FORMAT_ID) + !!(format & PERF_FORMAT_LOST);
	uint64_t times = !!(format & PERF_FORMAT_TOTAL_TIME_ENABLED) +
			 !!(format & PERF_FORMAT_TOTAL_TIME_RUNNING);
	uint64_t values = 1;

	if (format & PERF_FORMAT_GROUP) {
		values = read_u64(cursor);
		if (values > cursor->span.size)
			cursor->good = false;
	}
	if (cursor->good)
		cursor->offset += (times + values * per_value) * sizeof(uint64_t);
}

static void read_callchain(struct cursor *cursor, struct perf_data_sample *sample)
{
	uint64_t count = read_u64(cursor);
	struct span chain;

	if (!cursor->good || count > cursor->span.size / sizeof(uint64_t) ||
	    !span_part(cursor->span, cursor->offset, count * sizeof(uint64_t), &chain)) {
		cursor->good = false;
		return;
	}
	sample->callchain = (const uint64_t *)(const void *)chain.data;
	sample->callchain_size = count;
	cursor->offset += count * sizeof(uint64_t);
}

/* Other events may have any text of a BPF program. */
static bool is_outside(const struct perf_data_event *event)
{
	return event->type == PERF_TYPE_SOFTWARE && event->config == PERF_COUNT_SW_BPF_OUTPUT &&
	       event->name &&
	       (!strcmp(event->name, "kvm:exit") || !strcmp(event->name, "kvm:off-cpu"));
}

/* Samples of the host have the reason, too. Of perf's own clocks, raw data is zero. */
static bool is_clock(const struct perf_data_event *event)
{
	return (event->type == PERF_TYPE_SOFTWARE && event->config == PERF_COUNT_SW_CPU_CLOCK) ||
	       (event->type == PERF_TYPE_HARDWARE && event->config == PERF_COUNT_HW_CPU_CYCLES);
}

static void read_reason(struct span raw, const struct perf_data_event *event,
			struct perf_data_sample *sample)
{
	sample->is_host = is_clock(event);
	if ((sample->is_host || is_outside(event)) && raw.size <= 128 && raw.size && *raw.data &&
	    memchr(raw.data, 0, raw.size))
		sample->reason = (const char *)raw.data;
}

/* Reads our data of a hit; the first versions had no hit count. */
static void read_raw(struct cursor *cursor, const struct perf_data_event *event,
		     struct perf_data_sample *sample)
{
	const size_t least = offsetof(struct perf_data_hit_values, hits);
	struct span raw;
	uint32_t size;

	if (!span_u32(cursor->span, cursor->offset, &size) ||
	    !span_part(cursor->span, cursor->offset + sizeof(size), size, &raw)) {
		cursor->good = false;
		return;
	}
	if (event->type == PERF_TYPE_BREAKPOINT && size >= least)
		sample->has_values =
			span_copy(cursor->span, cursor->offset + sizeof(size), &sample->values,
				  size < sizeof(sample->values) ? least : sizeof(sample->values));
	read_reason(raw, event, sample);
	cursor->offset += sizeof(size) + size;
}

static void skip(struct cursor *cursor, uint64_t size)
{
	if (size > cursor->span.size)
		cursor->good = false;
	else
		cursor->offset += size;
}

static void skip_branches(struct cursor *cursor, const struct perf_data_event *event)
{
	uint64_t count = read_u64(cursor);

	if (event->branch_type & PERF_SAMPLE_BRANCH_HW_INDEX)
		read_u64(cursor);
	skip(cursor,
	     count < cursor->span.size ? count * sizeof(struct perf_branch_entry) : UINT64_MAX);
}

static void skip_registers(struct cursor *cursor, uint64_t registers)
{
	if (read_u64(cursor) != PERF_SAMPLE_REGS_ABI_NONE)
		skip(cursor, (uint64_t)__builtin_popcountll(registers) * sizeof(uint64_t));
}

/* Skips a stack: its size, its bytes, and the number of valid bytes. */
static void skip_stack(struct cursor *cursor)
{
	uint64_t size = read_u64(cursor);

	skip(cursor, size);
	if (size)
		read_u64(cursor);
}

/* Reads the cgroup, which follows fields that are not used otherwise; 0 if there is none. */
static uint64_t read_cgroup(struct cursor cursor, const struct perf_data_event *event)
{
	const uint64_t words = PERF_SAMPLE_WEIGHT | PERF_SAMPLE_WEIGHT_STRUCT |
			       PERF_SAMPLE_DATA_SRC | PERF_SAMPLE_TRANSACTION;
	uint64_t cgroup;

	if (!(event->sample_type & PERF_SAMPLE_CGROUP))
		return 0;
	if (event->sample_type & PERF_SAMPLE_BRANCH_STACK)
		skip_branches(&cursor, event);
	if (event->sample_type & PERF_SAMPLE_REGS_USER)
		skip_registers(&cursor, event->registers_user);
	if (event->sample_type & PERF_SAMPLE_STACK_USER)
		skip_stack(&cursor);
	skip(&cursor,
	     (uint64_t)__builtin_popcountll(event->sample_type & words) * sizeof(uint64_t));
	if (event->sample_type & PERF_SAMPLE_REGS_INTR)
		skip_registers(&cursor, event->registers_interrupt);
	if (event->sample_type & PERF_SAMPLE_PHYS_ADDR)
		read_u64(&cursor);
	cgroup = read_u64(&cursor);
	return cursor.good ? cgroup : 0;
}

static bool read_fields(struct cursor *cursor, const struct perf_data_event *event,
			struct perf_data_sample *sample)
{
	uint64_t fields = event->sample_type;
	uint32_t unused;

	if (fields & PERF_SAMPLE_IDENTIFIER)
		sample->id = read_u64(cursor);
	if (fields & PERF_SAMPLE_IP)
		sample->ip = read_u64(cursor);
	if (fields & PERF_SAMPLE_TID)
		read_u32_pair(cursor, &sample->pid, &sample->tid);
	if (fields & PERF_SAMPLE_TIME)
		sample->time = read_u64(cursor);
	if (fields & PERF_SAMPLE_ADDR)
		sample->address = read_u64(cursor);
	if (fields & PERF_SAMPLE_ID)
		sample->id = read_u64(cursor);
	if (fields & PERF_SAMPLE_STREAM_ID)
		read_u64(cursor);
	if (fields & PERF_SAMPLE_CPU)
		read_u32_pair(cursor, &sample->cpu, &unused);
	sample->period = fields & PERF_SAMPLE_PERIOD ? read_u64(cursor) : event->period;
	if (fields & PERF_SAMPLE_READ)
		skip_read(cursor, event->read_format);
	if (fields & PERF_SAMPLE_CALLCHAIN)
		read_callchain(cursor, sample);
	if (fields & PERF_SAMPLE_RAW)
		read_raw(cursor, event, sample);
	if (cursor->good)
		sample->cgroup = read_cgroup(*cursor, event);
	return cursor->good;
}

bool perf_data_layout_sample(struct perf_data_layout *layout, struct span record,
			     struct perf_data_sample *sample)
{
	struct cursor cursor = { record, sizeof(struct perf_event_header), true };
	const struct perf_data_event *event;
	uint16_t misc = 0;

	*sample = (struct perf_data_sample){ .cpu = UINT32_MAX, .vcpu = UINT32_MAX };
	span_u16(record, offsetof(struct perf_event_header, misc), &misc);
	sample->misc = misc & PERF_RECORD_MISC_CPUMODE_MASK;
	event = find_event(layout, record, sample);
	return event && read_fields(&cursor, event, sample);
}

bool perf_data_layout_sample_id(const struct perf_data_layout *layout, struct span *record,
				uint64_t *time)
{
	static const uint64_t fields = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID |
				       PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_CPU |
				       PERF_SAMPLE_IDENTIFIER;
	uint64_t type, size;

	*time = 0;
	if (!layout->event_count || !layout->events->sample_id_all)
		return true;
	type = layout->events->sample_type;
	size = sizeof(uint64_t) * (uint64_t)__builtin_popcountll(type & fields);
	if (record->size < sizeof(struct perf_event_header) + size)
		return false;
	record->size -= size;
	if (type & PERF_SAMPLE_TIME)
		memcpy(time,
		       record->data + record->size +
			       (type & PERF_SAMPLE_TID ? sizeof(uint64_t) : 0),
		       sizeof(*time));
	return true;
}

void perf_data_layout_free(struct perf_data_layout *layout)
{
	for (size_t i = 0; i < layout->event_count; i++)
		free(layout->events[i].name);
	free(layout->events);
	hash_table_free(&layout->ids);
	pool_free(&layout->memory);
	*layout = (struct perf_data_layout){ 0 };
}
