/* SPDX-License-Identifier: Apache-2.0 */
/* Samples and sideband events as records of perf_event_open(2). */
#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/perf_data/perf_data_sideband.h"
#include "vmm/perf_data/perf_data_writer_state.h"

static uint16_t guest_misc(const struct perf_data_writer *writer, bool kernel)
{
	if (writer->perspective == PERSPECTIVE_HOST)
		return kernel ? PERF_RECORD_MISC_GUEST_KERNEL : PERF_RECORD_MISC_GUEST_USER;
	return kernel ? PERF_RECORD_MISC_KERNEL : PERF_RECORD_MISC_USER;
}

static void note_latest(struct perf_data_writer *writer, uint64_t time)
{
	if (time > writer->latest)
		writer->latest = time;
}

/* The trailing sample_id of all records but samples (sample_id_all), in the order of
 * perf_event_open(2). */
static void add_sample_id_of(struct perf_data_writer *writer, int32_t pid, int32_t tid,
			     uint64_t time, uint32_t vcpu, uint64_t id)
{
	note_latest(writer, time);
	bytes_add_u32(&writer->record, (uint32_t)pid);
	bytes_add_u32(&writer->record, (uint32_t)tid);
	bytes_add_u64(&writer->record, time);
	if (writer->facts.attribute.sample_type & PERF_SAMPLE_CPU)
		bytes_add_u64(&writer->record, vcpu);
	bytes_add_u64(&writer->record, id);
}

static void add_sample_id(struct perf_data_writer *writer, int32_t pid, int32_t tid, uint64_t time,
			  uint32_t vcpu)
{
	add_sample_id_of(writer, pid, tid, time, vcpu, vcpu + 1);
}

/* Other kernels than Linux may use the lower half, where every address is certain. */
static bool is_uncertain(const struct sample *sample, size_t index)
{
	uint64_t address = sample->callchain[index];

	return index < sample->kernel_depth && address >> 63 && !(address & SAMPLE_ADDRESS_CERTAIN);
}

/* The marker that switches the address space before this entry, 0: none. Readers get uncertain
 * kernel addresses as user addresses, so that they find no mapping for them. */
static uint64_t marker_before(const struct sample *sample, size_t index, uint64_t latest)
{
	bool kernel = index < sample->kernel_depth && !is_uncertain(sample, index);
	uint64_t marker = (uint64_t)(kernel ? PERF_CONTEXT_KERNEL : PERF_CONTEXT_USER);

	return marker == latest ? 0 : marker;
}

/* A call chain with its markers. */
struct chain {
	uint64_t entries[2 * SAMPLE_CALLCHAIN_MAX + SAMPLE_HOST_CHAIN_MAX + 2];
	uint64_t count, latest; /* LATEST: the latest marker */
};

/* MARKER 0: none is needed. */
static void add_entry(struct chain *chain, uint64_t marker, uint64_t address)
{
	if (marker && marker != chain->latest)
		chain->entries[chain->count++] = chain->latest = marker;
	chain->entries[chain->count++] = address;
}

/* In the guest's perspective, all of the host is the hypervisor: perf shows the addresses. */
static void add_host(const struct perf_data_writer *writer, struct chain *chain,
		     const struct sample *sample)
{
	const uint64_t *host = sample_host_chain(sample);

	for (size_t i = 0; i < sample_host_depth(sample) && i < SAMPLE_HOST_CHAIN_MAX; i++) {
		uint64_t marker = (uint64_t)(i < sample->host_kernel ? PERF_CONTEXT_KERNEL
								     : PERF_CONTEXT_USER);

		if (writer->perspective == PERSPECTIVE_GUEST)
			marker = (uint64_t)PERF_CONTEXT_HV;
		add_entry(chain, marker, host[i]);
	}
}

/* perf drops a call chain with PERF_CONTEXT_GUEST_KERNEL. Both perspectives use the plain markers:
 * perf looks the addresses up in the machine of the sample. */
static void add_guest(const struct perf_data_writer *writer, struct chain *chain,
		      const struct sample *sample)
{
	size_t depth = (size_t)sample->kernel_depth + sample->user_depth;

	for (size_t i = writer->kernel_hidden ? sample->kernel_depth : 0;
	     i < depth && i < SAMPLE_CALLCHAIN_MAX; i++)
		add_entry(chain, marker_before(sample, i, chain->latest),
			  sample->callchain[i] |
				  (is_uncertain(sample, i) ? SAMPLE_ADDRESS_CERTAIN : 0));
}

/* False if a call chain of the host cannot be followed by that of the guest: a chain is of one
 * machine, and an uncertain sample is only marked by its own mode. */
static bool has_guest_chain(const struct perf_data_writer *writer, const struct sample *sample)
{
	return !sample_host_depth(sample) ||
	       (writer->perspective == PERSPECTIVE_GUEST &&
		!(sample->flags & (SAMPLE_UNCERTAIN | SAMPLE_OTHER_KERNEL)));
}

static void add_callchain(const struct perf_data_writer *writer, struct bytes *record,
			  const struct sample *sample)
{
	struct chain chain;

	chain.count = chain.latest = 0;
	add_host(writer, &chain, sample);
	if (has_guest_chain(writer, sample))
		add_guest(writer, &chain, sample);
	bytes_add_u64(record, chain.count);
	bytes_add(record, chain.entries, chain.count * sizeof(chain.entries[0]));
}

static void note_time(struct perf_data_facts *facts, uint64_t time)
{
	if (!facts->last_time || time < facts->first_time)
		facts->first_time = time;
	if (time > facts->last_time)
		facts->last_time = time;
}

/* A host pid could equal that of a guest process, whose mappings readers would use. */
static struct perf_data_task unknown_task(uint32_t vcpu)
{
	return (struct perf_data_task){ SAMPLE_TASK_LIMIT, SAMPLE_TASK_LIMIT + 1 + vcpu, false };
}

struct perf_data_task perf_data_writer_task(const struct perf_data_writer *writer,
					    const struct sample *sample)
{
	if (writer->perspective == PERSPECTIVE_GUEST && sample->pid != SAMPLE_TASK_UNKNOWN)
		return (struct perf_data_task){ sample->pid, sample->tid, true };
	if (writer->perspective == PERSPECTIVE_GUEST)
		return unknown_task(sample->vcpu);
	return (struct perf_data_task){ (uint32_t)writer->vmm_pid, sample->host_tid, false };
}

int32_t perf_data_writer_unknown_pid(const struct perf_data_writer *writer)
{
	return writer->perspective == PERSPECTIVE_GUEST ? (int32_t)SAMPLE_TASK_LIMIT
							: writer->vmm_pid;
}

static uint64_t event_id(const struct perf_data_writer *writer, uint16_t event, uint32_t vcpu)
{
	return 1 + event * writer->facts.ids + vcpu;
}

static int check_sample(struct perf_data_writer *writer, uint32_t vcpu, uint16_t event)
{
	int error = event > writer->facts.more_count ? perf_data_writer_update_watches(writer) : 0;

	if (error)
		return error;
	if (vcpu >= writer->facts.ids)
		return error_set(-EINVAL,
				 "a sample of vCPU %u in a recording with room for %" PRIu64, vcpu,
				 writer->facts.ids);
	if (event > writer->facts.more_count)
		return error_set(-EINVAL, "a sample of event %u in a recording of %zu", event,
				 1 + writer->facts.more_count);
	return 0;
}

static void add_values(struct bytes *record, const struct sample_hit *hit)
{
	struct perf_data_hit_values values = { hit->before, hit->after, hit->flags, hit->hits };

	_Static_assert((sizeof(uint32_t) + sizeof(values)) % 8 == 0,
		       "perf requires raw data to fill 8 bytes");
	bytes_add_u32(record, sizeof(values));
	bytes_add(record, &values, sizeof(values));
}

/* NULL: unknown. */
static void add_reason(struct bytes *record, const struct sample_outside *outside)
{
	size_t length = outside ? strnlen(outside->reason, sizeof(outside->reason) - 1) : 0;
	/* With its size it fills 8 bytes. */
	size_t size = (sizeof(uint32_t) + length + 1 + 7) / 8 * 8 - sizeof(uint32_t);

	bytes_add_u32(record, (uint32_t)size);
	bytes_add(record, outside ? outside->reason : "", length);
	bytes_add_zeros(record, size - length);
}

/* From inside the guest, everything outside is the hypervisor. */
static uint16_t host_misc(const struct perf_data_writer *writer, bool kernel)
{
	if (writer->perspective == PERSPECTIVE_GUEST)
		return PERF_RECORD_MISC_HYPERVISOR;
	return kernel ? PERF_RECORD_MISC_KERNEL : PERF_RECORD_MISC_USER;
}

/* In an unknown mode readers search no mappings, so they show no wrong image. */
static uint16_t sample_misc(const struct perf_data_writer *writer, const struct sample *sample)
{
	if (sample_host_depth(sample))
		return host_misc(writer, sample->host_kernel);
	if (sample->flags & SAMPLE_HOST)
		return host_misc(writer, !sample->cpl);
	if (sample->flags & (SAMPLE_UNCERTAIN | SAMPLE_OTHER_KERNEL) ||
	    (writer->kernel_hidden && !sample->cpl))
		return PERF_RECORD_MISC_CPUMODE_UNKNOWN;
	return guest_misc(writer, !sample->cpl);
}

/* In the order of enum perf_event_x86_regs (asm/perf_regs.h). */
static void add_registers(struct bytes *record, const struct sample *sample,
			  const struct sample_hit *hit)
{
	bytes_add_u64(record, PERF_SAMPLE_REGS_ABI_64);
	bytes_add(record, &hit->registers[SAMPLE_RAX], (SAMPLE_R8 - SAMPLE_RAX) * sizeof(uint64_t));
	bytes_add_u64(record, sample->rbp);
	bytes_add_u64(record, sample->rsp);
	bytes_add_u64(record, sample->rip);
	bytes_add_u64(record, sample->rflags);
	bytes_add(record, &hit->registers[SAMPLE_R8],
		  (SAMPLE_REGISTERS - SAMPLE_R8) * sizeof(uint64_t));
}

int perf_data_writer_sample_of(struct perf_data_writer *writer, const struct sample *sample,
			       const struct perf_data_task *task, uint64_t cgroup)
{
	const struct sample_hit *hit = sample_hit(sample);
	const struct sample_outside *outside = sample_outside(sample);
	int error = check_sample(writer, sample->vcpu, sample->event);
	struct bytes *record = &writer->record;

	if (error)
		return error;
	note_time(&writer->facts, sample->time);
	note_latest(writer, sample->time);
	perf_data_writer_begin(writer, PERF_RECORD_SAMPLE, sample_misc(writer, sample));
	bytes_add_u64(record, event_id(writer, sample->event, sample->vcpu));
	bytes_add_u64(record, sample_host_depth(sample) ? *sample_host_chain(sample) : sample->rip);
	bytes_add_u32(record, task->pid);
	bytes_add_u32(record, task->tid);
	bytes_add_u64(record, sample->time);
	if (hit)
		bytes_add_u64(record, hit->address);
	if (writer->facts.attribute.sample_type & PERF_SAMPLE_CPU)
		bytes_add_u64(record, sample->vcpu);
	bytes_add_u64(record, sample->period);
	if (writer->callchains)
		add_callchain(writer, record, sample);
	if (hit) {
		add_values(record, hit);
		add_registers(record, sample, hit);
	}
	if (outside || (!sample->event && writer->facts.attribute.sample_type & PERF_SAMPLE_RAW))
		add_reason(record, outside);
	if (writer->facts.attribute.sample_type & PERF_SAMPLE_CGROUP)
		bytes_add_u64(record, cgroup);
	return perf_data_writer_end(writer);
}

int perf_data_writer_sample(struct perf_data_writer *writer, const struct sample *sample)
{
	struct perf_data_task task = perf_data_writer_task(writer, sample);

	return perf_data_writer_sample_of(writer, sample, &task, sample->cgroup);
}

/* For records about a vCPU, not about the task that it runs. */
static void add_vcpu_id(struct perf_data_writer *writer, uint64_t time, uint32_t vcpu)
{
	int32_t pid = perf_data_writer_unknown_pid(writer);

	add_sample_id(writer, pid, pid, time, vcpu);
}

int perf_data_writer_event(struct perf_data_writer *writer, const struct sample_event *event)
{
	int error = check_sample(writer, event->vcpu, event->event);
	uint64_t id = event_id(writer, event->event, event->vcpu);

	if (error)
		return error;
	perf_data_writer_begin(writer,
			       event->stopped ? PERF_RECORD_THROTTLE : PERF_RECORD_UNTHROTTLE,
			       guest_misc(writer, true));
	bytes_add_u64(&writer->record, event->time);
	bytes_add_u64(&writer->record, id);
	bytes_add_u64(&writer->record, id);
	add_vcpu_id(writer, event->time, event->vcpu);
	return perf_data_writer_end(writer);
}

int perf_data_writer_count(struct perf_data_writer *writer, uint64_t time, uint32_t vcpu,
			   uint16_t event, const struct perf_data_count *count)
{
	int error = check_sample(writer, vcpu, event);
	int32_t pid = perf_data_writer_unknown_pid(writer);
	struct bytes *record = &writer->record;

	if (error)
		return error;
	perf_data_writer_begin(writer, PERF_RECORD_READ, guest_misc(writer, true));
	bytes_add_u32(record, (uint32_t)pid);
	bytes_add_u32(record, (uint32_t)pid);
	bytes_add_u64(record, count->value);
	bytes_add_u64(record, count->enabled);
	bytes_add_u64(record, count->running);
	bytes_add_u64(record, event_id(writer, event, vcpu));
	add_sample_id_of(writer, pid, pid, time, vcpu, event_id(writer, event, vcpu));
	return perf_data_writer_end(writer);
}

static void add_mapping_build_id(struct bytes *record, const struct perf_data_mapping *mapping)
{
	bytes_add_u32(record, (uint32_t)mapping->build_id_size);
	bytes_add(record, mapping->build_id, mapping->build_id_size);
	bytes_add_zeros(record, 20 - mapping->build_id_size);
}

/* Adds to the table of build ids. The kernel is listed by its image's name, without the symbol. The
 * table has no machine_pid, so in the host's perspective only mappings carry build ids. */
static void note_build_id(struct perf_data_writer *writer, const struct perf_data_mapping *mapping)
{
	const char *name = mapping->kernel && *mapping->name == '[' && strstr(mapping->name, "]_")
				   ? "[kernel.kallsyms]"
				   : mapping->name;

	if (!mapping->build_id_size || mapping->host || writer->perspective == PERSPECTIVE_HOST)
		return;
	perf_data_add_build_id(&writer->facts, guest_misc(writer, mapping->kernel), mapping->pid,
			       name, mapping->build_id, mapping->build_id_size);
}

static int write_symbol(struct perf_data_writer *writer, const struct perf_data_mapping *mapping,
			uint16_t flags)
{
	struct bytes *record = &writer->record;
	const struct {
		uint64_t start;
		uint32_t length;
		uint16_t type, flags;
	} symbol = { mapping->start,
		     mapping->size < UINT32_MAX ? (uint32_t)mapping->size : UINT32_MAX,
		     mapping->is_code ? PERF_RECORD_KSYMBOL_TYPE_BPF
				      : PERF_RECORD_KSYMBOL_TYPE_UNKNOWN,
		     flags };

	/* perf without --guest would treat it as host kernel code. */
	if (mapping->is_code && writer->perspective == PERSPECTIVE_HOST)
		return 0;
	perf_data_writer_begin(writer, PERF_RECORD_KSYMBOL, guest_misc(writer, true));
	bytes_add(record, &symbol, sizeof(symbol));
	bytes_add(record, mapping->name, strlen(mapping->name) + 1);
	bytes_pad(record, 8);
	add_sample_id(writer, mapping->pid, 0, mapping->time, 0);
	return perf_data_writer_end(writer);
}

int perf_data_writer_mapping(struct perf_data_writer *writer,
			     const struct perf_data_mapping *mapping)
{
	uint16_t misc = mapping->host ? host_misc(writer, mapping->kernel)
				      : guest_misc(writer, mapping->kernel);
	struct bytes *record = &writer->record;

	if (mapping->is_code)
		return write_symbol(writer, mapping, 0);
	if (mapping->build_id_size > 20)
		return error_set(-EINVAL, "the build id of %s has %zu bytes; perf.data holds 20",
				 mapping->name, mapping->build_id_size);
	note_build_id(writer, mapping);
	perf_data_writer_begin(
		writer, PERF_RECORD_MMAP2,
		misc | (mapping->build_id_size ? PERF_RECORD_MISC_MMAP_BUILD_ID : 0));
	bytes_add_u32(record, (uint32_t)mapping->pid);
	bytes_add_u32(record, (uint32_t)(mapping->kernel ? 0 : mapping->tid));
	bytes_add_u64(record, mapping->start);
	bytes_add_u64(record, mapping->size);
	bytes_add_u64(record, mapping->offset);
	if (mapping->build_id_size)
		add_mapping_build_id(record, mapping);
	else
		bytes_add_zeros(record, 24);
	bytes_add_u32(record, 5); /* PROT_READ | PROT_EXEC */
	bytes_add_u32(record, 2); /* MAP_PRIVATE */
	bytes_add(record, mapping->name, strlen(mapping->name) + 1);
	bytes_pad(record, 8);
	add_sample_id(writer, mapping->pid, mapping->kernel ? 0 : mapping->tid, mapping->time, 0);
	return perf_data_writer_end(writer);
}

int perf_data_writer_mapping_end(struct perf_data_writer *writer,
				 const struct perf_data_mapping *mapping)
{
	return write_symbol(writer, mapping, PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER);
}

static int write_comm(struct perf_data_writer *writer, uint16_t misc, uint64_t time, int32_t pid,
		      int32_t tid, const char *comm)
{
	perf_data_writer_begin(writer, PERF_RECORD_COMM, misc);
	bytes_add_u32(&writer->record, (uint32_t)pid);
	bytes_add_u32(&writer->record, (uint32_t)tid);
	bytes_add(&writer->record, comm, strlen(comm) + 1);
	bytes_pad(&writer->record, 8);
	add_sample_id(writer, pid, tid, time, 0);
	return perf_data_writer_end(writer);
}

/* In the host's perspective, samples of the host are of the same thread of another machine. */
int perf_data_writer_comm(struct perf_data_writer *writer, uint64_t time, int32_t pid, int32_t tid,
			  const char *comm)
{
	int error = write_comm(writer, guest_misc(writer, false), time, pid, tid, comm);
	bool host = writer->perspective == PERSPECTIVE_HOST &&
		    writer->facts.attribute.sample_type & PERF_SAMPLE_RAW;

	return error || !host ? error
			      : write_comm(writer, PERF_RECORD_MISC_USER, time, pid, tid, comm);
}

int perf_data_writer_cgroup(struct perf_data_writer *writer, uint64_t time, uint64_t id,
			    const char *path)
{
	if (writer->perspective == PERSPECTIVE_HOST)
		return 0;
	perf_data_writer_begin(writer, PERF_RECORD_CGROUP, guest_misc(writer, false));
	bytes_add_u64(&writer->record, id);
	perf_data_add_name(&writer->record, path);
	add_sample_id(writer, 0, 0, time, 0);
	return perf_data_writer_end(writer);
}

/* An execve removes all mappings; without this, readers keep those that nothing new covers. */
static int clear_process(struct perf_data_writer *writer, const struct sideband *head)
{
	const struct sideband_munmap everything = {
		.head = { .size = sizeof(everything),
			  .type = SIDEBAND_MUNMAP,
			  .time = head->time,
			  .pid = head->pid,
			  .tid = head->tid },
		.start = 0,
		.length = PERF_DATA_USER_SPACE_END,
	};

	return perf_data_writer_sideband(writer, &everything.head);
}

int perf_data_writer_sideband(struct perf_data_writer *writer, const struct sideband *record)
{
	int error;

	writer->record.size = 0;
	if (writer->perspective == PERSPECTIVE_HOST ||
	    !perf_data_sideband_add(&writer->record, record, guest_misc(writer, false)))
		return 0;
	add_sample_id(writer, (int32_t)record->pid, (int32_t)record->tid, record->time, 0);
	error = perf_data_writer_end(writer);
	if (!error && record->type == SIDEBAND_COMM && record->flags & SIDEBAND_COMM_EXEC)
		error = clear_process(writer, record);
	return error;
}

int perf_data_writer_lost(struct perf_data_writer *writer, uint64_t time, uint32_t vcpu,
			  uint64_t count)
{
	perf_data_writer_begin(writer, PERF_RECORD_LOST, guest_misc(writer, true));
	bytes_add_u64(&writer->record, vcpu + 1);
	bytes_add_u64(&writer->record, count);
	add_vcpu_id(writer, time, vcpu);
	return perf_data_writer_end(writer);
}
