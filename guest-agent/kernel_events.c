/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-agent/kernel_events.h"

#include <assert.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "guest-agent/build_ids.h"
#include "guest-agent/process_cgroup.h"
#include "guest-agent/timing.h"

/* Bytes of all rings together, and the limits of each. A program's start causes about ten records
 * of 100 to 200 bytes, and the agent may have to wait tenths of a second for a CPU.
 */
#define DATA_ALL  (512u << 10)
#define DATA_MIN  (32u << 10)
#define DATA_MAX  (128u << 10)
#define PAGE_SIZE 4096u

/* Bounds of a record: a mapping with a path of PATH_MAX, and a header with its end. */
#define RECORD_MAX 8192u
#define RECORD_MIN (sizeof(struct perf_event_header) + sizeof(struct agent_record_end))

static int open_event(struct perf_event_attr *attribute, unsigned int cpu)
{
	return (int)syscall(SYS_perf_event_open, attribute, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

/* Supported by every kernel since 4.14. */
static struct perf_event_attr plain_attribute(void)
{
	return (struct perf_event_attr){
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.size = sizeof(struct perf_event_attr),
		.sample_type = AGENT_SAMPLE_TYPE,
		.sample_id_all = 1,
		.mmap = 1,
		.mmap2 = 1,
		.comm = 1,
		.comm_exec = 1,
		.task = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC_RAW,
		.wakeup_events = 1,
	};
}

/* Retries without the features that a kernel rejects. Build ids are not requested, although
 * Linux 5.12 has them: the kernel then sets PERF_RECORD_MISC_MMAP_BUILD_ID in the record that all
 * listeners share, and a later listener without build ids takes an inode for one
 * (perf_event_mmap_output() in kernel/events/core.c). perf record fails with an assertion then.
 */
static int open_best(struct events *events, unsigned int cpu)
{
	unsigned int tries[] = { AGENT_FEATURE_KSYMBOLS, 0 };
	int fd = -1;

	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]) && fd < 0; i++) {
		struct perf_event_attr attribute = plain_attribute();

		if (events->features & ~tries[i] & ~(unsigned int)AGENT_FEATURE_EVENTS)
			continue; /* all CPUs have the features of the first one */
		attribute.ksymbol = attribute.bpf_event = !!(tries[i] & AGENT_FEATURE_KSYMBOLS);
		fd = open_event(&attribute, cpu);
		if (fd >= 0)
			events->features |= AGENT_FEATURE_EVENTS | tries[i];
		else if (errno != EINVAL && errno != E2BIG)
			break;
	}
	return fd >= 0 ? fd : -errno;
}

static int open_cpu(struct events *events, unsigned int cpu)
{
	int fd = open_best(events, cpu);
	void *pages;

	events->fds[cpu] = (struct pollfd){ .fd = -1, .events = POLLIN };
	if (fd < 0)
		return fd;
	pages = mmap(NULL, PAGE_SIZE + events->data_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		     0);
	if (pages == MAP_FAILED) {
		int error = -errno;

		close(fd);
		return error;
	}
	events->fds[cpu].fd = fd;
	events->pages[cpu] = pages;
	return 0;
}

static size_t data_size(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	size_t size = DATA_MAX;

	while (size > DATA_MIN && size * (size_t)(cpus > 0 ? cpus : 1) > DATA_ALL)
		size /= 2;
	return size;
}

static int open_rings(struct events *events)
{
	*events = (struct events){ .data_size = data_size() };
	for (unsigned int cpu = 0; cpu < EVENTS_CPUS_MAX; cpu++) {
		int error = open_cpu(events, cpu);

		if (error == -EINVAL && cpu)
			break; /* after the last possible CPU */
		if (error && error != -ENODEV)
			return error;
		events->cpus = cpu + 1;
	}
	return 0;
}

int events_open(struct events *events)
{
	int error = open_rings(events);

	if (!error)
		return 0;
	events_close(events);
	if (!connector_open(&events->connector)) {
		events->fds[0] = (struct pollfd){ .fd = events->connector.fd, .events = POLLIN };
		events->cpus = 1;
		events->features = AGENT_FEATURE_CONNECTOR;
	}
	return error;
}

static void close_rings(struct events *events)
{
	for (unsigned int cpu = 0; cpu < events->cpus; cpu++) {
		if (events->fds[cpu].fd < 0)
			continue;
		munmap(events->pages[cpu], PAGE_SIZE + events->data_size);
		close(events->fds[cpu].fd);
	}
}

void events_close(struct events *events)
{
	if (events_by_connector(events))
		connector_close(&events->connector);
	else
		close_rings(events);
	events->cpus = 0;
}

void events_open_new_cpus(struct events *events)
{
	for (unsigned int cpu = 0; cpu < events->cpus; cpu++)
		if (events->fds[cpu].fd < 0 && !open_cpu(events, cpu)) {
			events->lost++;
			events->gap = true;
		}
}

struct ring {
	const uint8_t *data;
	uint64_t size;
	uint64_t head, tail;
};

/* A record may wrap around the end of the data. */
static void ring_copy(const struct ring *ring, uint64_t position, void *to, size_t size)
{
	size_t offset = position % ring->size, until_end = ring->size - offset;
	size_t first = until_end < size ? until_end : size;

	memcpy(to, ring->data + offset, first);
	memcpy((uint8_t *)to + first, ring->data, size - first);
}

/* Records of a process start with its pid; LOST has an id and the count. A loss reported right
 * after an emptied ring happened before that, so its gap is already known.
 */
static void observe_record(struct events *events, unsigned int cpu, const uint8_t *record)
{
	struct perf_event_header header;
	uint32_t pid;
	uint64_t lost;

	memcpy(&header, record, sizeof(header));
	memcpy(&pid, record + sizeof(header), sizeof(pid));
	memcpy(&lost, record + sizeof(header) + sizeof(uint64_t), sizeof(lost));
	if (header.type == PERF_RECORD_LOST) {
		events->lost += lost;
		events->touched = true;
		events->gap |= !events->emptied[cpu];
	} else if ((pid_t)pid == events->watched)
		events->touched = true;
	events->emptied[cpu] = false;
}

/* Sends one message with as many whole records as fit; false if none fits. */
static bool move_records(struct events *events, struct output *output, unsigned int cpu,
			 struct ring *ring)
{
	size_t room = output_room(output), size = ring->head - ring->tail, used = 0;
	struct agent_events *message;
	struct perf_event_header header;

	if (room < sizeof(*message) + RECORD_MAX)
		return false;
	if (size > room - sizeof(*message))
		size = room - sizeof(*message);
	message = output_message(output, AGENT_EVENTS, sizeof(*message) + size);
	message->cpu = cpu;
	for (; used < size; used += header.size) {
		ring_copy(ring, ring->tail + used, &header, sizeof(header));
		if (header.size < RECORD_MIN || header.size > size - used)
			break;
		ring_copy(ring, ring->tail + used, message->records + used, header.size);
		observe_record(events, cpu, message->records + used);
		build_ids_add(message->records + used);
		cgroup_observe(message->records + used);
	}
	output_shorten(output, message, sizeof(*message) + used);
	assert(used); /* else the kernel wrote an invalid record */
	ring->tail += used;
	return true;
}

/* Reports an emptied ring, after data_tail was updated: a scan of /proc from here on includes the
 * effect of all dropped records. False without room.
 */
static bool report_full_ring(struct events *events, struct output *output, unsigned int cpu)
{
	struct {
		struct perf_event_header header;
		uint64_t id, lost;
		struct agent_record_end end;
	} record = { .header = { .type = PERF_RECORD_LOST, .size = sizeof(record) },
		     .end.time = clock_raw() };
	struct agent_events *message =
		output_message(output, AGENT_EVENTS, sizeof(*message) + sizeof(record));

	if (!message)
		return false;
	message->cpu = cpu;
	memcpy(message->records, &record, sizeof(record));
	events->full[cpu] = false;
	events->emptied[cpu] = events->gap = true;
	return true;
}

static bool drain_cpu(struct events *events, struct output *output, unsigned int cpu)
{
	struct perf_event_mmap_page *page = events->pages[cpu];
	struct ring ring = {
		.data = (const uint8_t *)page + PAGE_SIZE,
		.size = events->data_size,
		.head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE),
		.tail = page->data_tail,
	};
	bool moved = true;

	if (ring.head - ring.tail > ring.size - RECORD_MAX)
		events->full[cpu] = events->touched = true;
	while (ring.tail != ring.head && moved)
		moved = move_records(events, output, cpu, &ring);
	__atomic_store_n(&page->data_tail, ring.tail, __ATOMIC_RELEASE);
	return moved && (!events->full[cpu] || report_full_ring(events, output, cpu));
}

/* Writes the connector's next event to TO. */
static enum connector_result next_event(struct events *events, uint8_t *to, size_t *size)
{
	pid_t pid = 0;
	enum connector_result result = connector_next(&events->connector, to, size, &pid);

	if (result == CONNECTOR_LOST) {
		events->lost++;
		events->full[0] = events->touched = true;
	}
	if (result == CONNECTOR_RECORD && pid == events->watched)
		events->touched = true;
	events->gap |= events->connector.overflowed;
	events->connector.overflowed = false;
	return result;
}

/* False without room: the events stay in the socket. */
static bool drain_connector(struct events *events, struct output *output)
{
	enum connector_result result = CONNECTOR_OTHER;
	uint8_t records[4096];
	struct agent_events *message;

	while (result != CONNECTOR_NOTHING) {
		size_t used = 0, size;

		if (output_room(output) < sizeof(*message) + sizeof(records))
			return false;
		while (result != CONNECTOR_NOTHING &&
		       used + CONNECTOR_RECORD_MAX <= sizeof(records)) {
			result = next_event(events, records + used, &size);
			used += result == CONNECTOR_RECORD ? size : 0;
		}
		if (!used)
			break;
		message = output_message(output, AGENT_EVENTS, sizeof(*message) + used);
		memcpy(message->records, records, used);
	}
	return !events->full[0] || report_full_ring(events, output, 0);
}

bool events_drain(struct events *events, struct output *output)
{
	bool all = true;

	if (events_by_connector(events))
		return drain_connector(events, output);

	for (unsigned int cpu = 0; cpu < events->cpus; cpu++)
		if (events->fds[cpu].fd >= 0 && !drain_cpu(events, output, cpu))
			all = false;
	return all;
}
