// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/direct_map.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/attach/bpf/guest_sample.h"

#define PAGE_SIZE  4096ull
#define BASE_ALIGN (1ull << 30) /* kernel: PUD_SIZE */
/* Bytes of memory. Places that it is not at are tried, too, up to as much above it, where the
 * kernel keeps 10 TiB free (kernel: CONFIG_RANDOMIZE_MEMORY_PHYSICAL_PADDING) below what may be a
 * device's. */
#define LIMIT_MAX   (1ull << 43)
#define KERNEL_HALF (1ull << 63)
/* A page may be moved just when it is looked at. */
#define TRIES 2

/* The end of all memory zones, bytes; 0: not known. */
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

/* Page tables lie in memory that is mapped there, too: it begins below them, by no more than there
 * is. */
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
	return found ? 0 : error_set(-ENOENT, "where the kernel maps memory was not found");
}
