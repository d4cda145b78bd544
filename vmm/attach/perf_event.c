/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/perf_event.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/mediated_pmu.h"

void perf_event_set_frequency(struct perf_event_choice *choice, unsigned int frequency)
{
	if (choice->event == ATTACH_CYCLES) {
		choice->attribute.freq = 1;
		choice->attribute.sample_freq = frequency;
	} else {
		choice->attribute.sample_period = NS_PER_S / frequency;
	}
}

static void describe(struct perf_event_choice *choice, enum attach_event event,
		     unsigned int frequency)
{
	choice->event = event;
	choice->attribute = (struct perf_event_attr){
		.size = sizeof(choice->attribute),
		.type = event == ATTACH_CYCLES ? PERF_TYPE_HARDWARE : PERF_TYPE_SOFTWARE,
		.config =
			event == ATTACH_CYCLES ? PERF_COUNT_HW_CPU_CYCLES : PERF_COUNT_SW_CPU_CLOCK,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC_RAW, /* the sample clock */
	};
	perf_event_set_frequency(choice, frequency);
}

static int try_open(const struct perf_event_attr *attribute, pid_t tid)
{
	struct perf_event_attr copy = *attribute;
	int fd = (int)syscall(SYS_perf_event_open, &copy, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Hz; 0: unknown */
static unsigned int frequency_max(void)
{
	FILE *file = fopen("/proc/sys/kernel/perf_event_max_sample_rate", "re");
	unsigned int max = 0;

	if (file && fscanf(file, "%u", &max) != 1)
		max = 0;
	if (file)
		fclose(file);
	return max;
}

int perf_event_open_thread(const struct perf_event_attr *attribute, pid_t tid)
{
	struct perf_event_attr lower = *attribute;
	int fd = try_open(attribute, tid);

	if (fd != -EINVAL || !attribute->freq)
		return fd;
	lower.sample_freq = frequency_max();
	return lower.sample_freq && lower.sample_freq < attribute->sample_freq
		       ? try_open(&lower, tid)
		       : fd;
}

int perf_event_explain(int error, pid_t pid)
{
	if (error == -EACCES || error == -EPERM)
		return error_set(
			-EACCES,
			"perf may not sample process %d with the guest and the kernel: run as "
			"root, or with CAP_PERFMON (see /proc/sys/kernel/perf_event_paranoid)",
			pid);
	if (error == -ENOSYS)
		return error_set(-ENOTSUP, "this kernel has no perf events");
	return error_set(error, "perf cannot sample process %d: %s", pid, strerror(-error));
}

/* The kernel limits only events with a frequency, and lowers the limit by itself. */
static int explain_cycles(int error, unsigned int frequency)
{
	unsigned int max = frequency_max();

	if (error == -EINVAL && max && frequency > max)
		return error_set(-ENOTSUP,
				 "the kernel limits cycle samples to %u Hz, below %u (see "
				 "/proc/sys/kernel/perf_event_max_sample_rate): use a lower -F, or "
				 "--event cpu-clock",
				 max, frequency);
	return error_set(-ENOTSUP,
			 "this host has no counter for cycles (%s): use --event cpu-clock",
			 strerror(-error));
}

static int refuse_mediated(void)
{
	return error_set(
		-ENOTSUP,
		"KVM gives its guests this host's counters (enable_mediated_pmu): an event of "
		"cycles would make the start of VMs fail; use --event cpu-clock");
}

int perf_event_choose(struct perf_event_choice *choice, pid_t pid, unsigned int frequency,
		      enum attach_event event)
{
	int fd;

	if (event == ATTACH_CYCLES && mediated_pmu_is_enabled("/sys/module"))
		return refuse_mediated();
	describe(choice, event, frequency);
	fd = try_open(&choice->attribute, pid);
	if (fd < 0 && event == ATTACH_CYCLES && fd != -EACCES && fd != -EPERM)
		return explain_cycles(fd, frequency);
	if (fd < 0)
		return perf_event_explain(fd, pid);
	close(fd);
	return 0;
}

#define PAGE 4096ull
/* Size of the data: some seconds at 10 kHz. */
#define SIZE (64 * PAGE)

int perf_ring_open(struct perf_ring *ring, const struct perf_event_attr *attribute, pid_t tid)
{
	void *mapping;

	ring->fd = perf_event_open_thread(attribute, tid);
	if (ring->fd < 0)
		return ring->fd;
	mapping = mmap(NULL, PAGE + SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
	if (mapping == MAP_FAILED) {
		int error = -errno;

		close(ring->fd);
		return error;
	}
	ring->page = mapping;
	ring->size = SIZE;
	ring->tail = 0;
	return 0;
}

/* Copies bytes at POSITION, which does not wrap. */
static void copy_out(const struct perf_ring *ring, uint64_t position, void *to, size_t size)
{
	const uint8_t *data = (const uint8_t *)ring->page + PAGE;
	uint64_t offset = position & (ring->size - 1), first = ring->size - offset;

	if (first > size)
		first = size;
	memcpy(to, data + offset, first);
	memcpy((uint8_t *)to + first, data, size - first);
}

const struct perf_event_header *perf_ring_read(struct perf_ring *ring)
{
	uint64_t head = __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
	struct perf_event_header header;

	if (head - ring->tail < sizeof(header))
		return NULL;
	copy_out(ring, ring->tail, &header, sizeof(header));
	if (header.size < sizeof(header) || header.size > head - ring->tail) {
		ring->tail = head; /* the kernel writes no such record */
		return NULL;
	}
	copy_out(ring, ring->tail, ring->record, header.size);
	ring->tail += header.size;
	return (const struct perf_event_header *)ring->record;
}

void perf_ring_read_done(struct perf_ring *ring)
{
	__atomic_store_n(&ring->page->data_tail, ring->tail, __ATOMIC_RELEASE);
}

void perf_ring_close(struct perf_ring *ring)
{
	munmap(ring->page, PAGE + ring->size);
	close(ring->fd);
}
