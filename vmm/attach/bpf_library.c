/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/bpf_library.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/bpf/guest_sample.h"

static __attribute__((format(printf, 2, 0))) int print(enum libbpf_print_level level,
						       const char *format, va_list arguments)
{
	char text[512];

	if (level != LIBBPF_WARN)
		return 0;
	vsnprintf(text, sizeof(text), format, arguments);
	text[strcspn(text, "\n")] = '\0';
	log_debug("%s", text);
	return 0;
}

struct btf *bpf_library_types(void)
{
	libbpf_set_print(print);
	return btf__load_vmlinux_btf();
}

void bpf_library_free_types(struct btf *kernel)
{
	btf__free(kernel);
	malloc_trim(0);
}

long bpf_library_member(const struct btf *types, const char *structure, const char *name)
{
	int id = types ? btf__find_by_name_kind(types, structure, BTF_KIND_STRUCT) : -1;
	const struct btf_type *type = id < 0 ? NULL : btf__type_by_id(types, (__u32)id);

	for (__u32 i = 0; type && i < btf_vlen(type); i++) {
		const char *member = btf__name_by_offset(types, btf_members(type)[i].name_off);

		if (member && !strcmp(member, name))
			return btf_member_bit_offset(type, i) / 8;
	}
	return -1;
}

int bpf_library_check_iterators(const struct btf *kernel)
{
	bool of_one =
		kernel && btf__find_by_name_kind(kernel, "bpf_iter_task_type", BTF_KIND_ENUM) > 0;

	return of_one ? 0
		      : error_set(
				-ENOTSUP,
				"this kernel's BPF cannot iterate over one process: it needs Linux 6.1 "
				"and BTF");
}

struct rip_events {
	size_t count;
	int fds[]; /* -1: the CPU is offline */
};

size_t rip_events_count(void)
{
	int count = libbpf_num_possible_cpus();

	return count > 0 ? (size_t)count : 1;
}

static int open_event(size_t cpu)
{
	const struct perf_event_attr attribute = {
		.size = sizeof(attribute),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_BPF_OUTPUT,
		.sample_type = PERF_SAMPLE_IP,
		.sample_period = 1,
	};

	return (int)syscall(SYS_perf_event_open, &attribute, -1, (int)cpu, -1,
			    PERF_FLAG_FD_CLOEXEC);
}

static int put_event(struct rip_events *events, int map_fd, size_t cpu)
{
	const __u32 key = (__u32)cpu;

	events->fds[cpu] = open_event(cpu);
	if (events->fds[cpu] < 0)
		return errno == ENODEV ? 0 : -errno;
	return bpf_map_update_elem(map_fd, &key, &events->fds[cpu], BPF_ANY);
}

int rip_events_open(struct rip_events **result, int map_fd)
{
	size_t count = rip_events_count();
	struct rip_events *events = malloc(sizeof(*events) + count * sizeof(events->fds[0]));
	int error = 0;

	if (!events)
		return error_set(-ENOMEM, "no memory for perf events");
	events->count = 0;
	while (events->count < count && !error)
		error = put_event(events, map_fd, events->count++);
	if (error) {
		rip_events_close(events);
		return error_set(
			error == -EPERM ? -EACCES : error,
			"cannot open a perf event on each CPU, which makes KVM read RIP: %s",
			strerror(-error));
	}
	*result = events;
	return 0;
}

void rip_events_close(struct rip_events *events)
{
	if (!events)
		return;
	for (size_t cpu = 0; cpu < events->count; cpu++)
		if (events->fds[cpu] >= 0)
			close(events->fds[cpu]);
	free(events);
}

#define PAGE_SIZE  4096ull
#define BASE_ALIGN (1ull << 30) /* kernel: PUD_SIZE */
/*
 * Maximum memory in bytes. Wrong bases are tried, too, up to this distance above the right one,
 * where the kernel leaves 10 TiB unused (kernel: CONFIG_RANDOMIZE_MEMORY_PHYSICAL_PADDING), so that
 * no device is read.
 */
#define LIMIT_MAX   (1ull << 43)
#define KERNEL_HALF (1ull << 63)
/* A page may be migrated during a try. */
#define TRIES 2

/* The end of all memory zones in bytes; 0: unknown. */
static uint64_t end_of_memory(void)
{
	unsigned long long number, spanned = 0, end = 0;
	FILE *file = fopen("/proc/zoneinfo", "re");
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, " spanned %llu", &number) == 1)
			spanned = number;
		if (sscanf(line, " start_pfn: %llu", &number) == 1 && number + spanned > end)
			end = number + spanned;
	}
	if (file)
		fclose(file);
	return end <= LIMIT_MAX / PAGE_SIZE ? end * PAGE_SIZE : 0;
}

static bool try(int program_fd, struct direct_map_trial *trial)
{
	LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = trial, .ctx_size_in = sizeof(*trial));

	return !bpf_prog_test_run_opts(program_fd, &options) && trial->found;
}

/* Page tables are in the direct map themselves: it begins below them, by at most the size of
 * memory. */
static bool try_all(int program_fd, struct direct_map_trial *trial, uint64_t limit)
{
	uint64_t first;

	trial->map.limit = 0;
	try(program_fd, trial);
	first = trial->pgd & ~(BASE_ALIGN - 1);
	trial->map.levels = trial->pgd >> 47 == UINT64_MAX >> 47 ? 4 : 5;
	for (uint64_t below = 0; below < limit && first - below >= KERNEL_HALF;
	     below += BASE_ALIGN) {
		trial->map.base = first - below;
		trial->map.limit = limit;
		if (try(program_fd, trial))
			return true;
	}
	trial->map.limit = 0;
	try(program_fd, trial);
	return false;
}

static bool find_by(int program_fd, uint64_t *page)
{
	uint64_t limit = end_of_memory();
	struct direct_map_trial trial = { .hva = (uintptr_t)page };
	bool found = false;

	if (getrandom(trial.words, sizeof(trial.words), 0) != sizeof(trial.words))
		return false;
	memcpy(page, trial.words, sizeof(trial.words));
	for (int i = 0; i < TRIES && limit && !found; i++)
		found = try_all(program_fd, &trial, limit);
	return found;
}

int direct_map_find(int program_fd)
{
	void *page =
		mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool found = page != MAP_FAILED && find_by(program_fd, page);

	if (page != MAP_FAILED)
		munmap(page, PAGE_SIZE);
	return found ? 0 : error_set(-ENOENT, "the kernel's direct map was not found");
}
