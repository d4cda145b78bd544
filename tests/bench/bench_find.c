/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU time to locate Debian's kernels in guest memory with everything that is derived from them:
 * symbols, layouts, ORC. Baseline: a copy of the kernel image's memory. The kernels are those of
 * tests/rig/fetch-kernels, loaded from their files.
 */
#include <elf.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/unit/flat_guest.c"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/kallsyms.h"
#include "vmm/guest/linux/kernel_image.h"

#define IMAGE_START 0xffffffff80000000ull /* maps to GPA 0: the kernel was not relocated */
#define GUEST_SIZE  (256ull << 20)
#define PAGE_SIZE   4096
#define LARGE_PAGE  (2ull << 20)
#define CR4_FRED    (1ull << 32) /* without an IDT, the banner alone confirms the kernel */
#define RUNS_MAX    5
#define RUNS        bench_size(RUNS_MAX, 1)

static const char *const versions[] = { "5.10", "6.1", "6.12", "7.2" };

static struct flat_guest guest;
static uint64_t image_size;

static void read_at(FILE *file, uint64_t offset, void *to, size_t size)
{
	if (fseek(file, (long)offset, SEEK_SET) || fread(to, 1, size, file) != size)
		exit(1);
}

/* Copies the segments of FILE to their load addresses and maps them. */
static void load(FILE *file)
{
	uint64_t end = 0;
	Elf64_Ehdr header;

	read_at(file, 0, &header, sizeof(header));
	for (int i = 0; i < header.e_phnum; i++) {
		Elf64_Phdr segment;

		read_at(file, header.e_phoff + (uint64_t)i * sizeof(segment), &segment,
			sizeof(segment));
		if (segment.p_type != PT_LOAD ||
		    segment.p_paddr + segment.p_memsz > guest.tables_end)
			continue;
		read_at(file, segment.p_offset, guest.memory + segment.p_paddr, segment.p_filesz);
		if (segment.p_paddr + segment.p_memsz > end)
			end = segment.p_paddr + segment.p_memsz;
	}
	for (uint64_t gpa = 16ull << 20; gpa < end; gpa += LARGE_PAGE)
		flat_guest_map(&guest, guest.registers.paging.cr3, IMAGE_START + gpa, gpa,
			       LARGE_PAGE, 0);
	image_size = end - (16ull << 20);
}

/*
 * The address of NAME in the symbol table in BYTES at GVA, whose token index is at TOKEN_INDEX; 0:
 * none.
 */
static uint64_t address_of(const char *name, struct span bytes, uint64_t gva, uint64_t token_index)
{
	char found[KALLSYMS_NAME_MAX], type;
	struct kallsyms kallsyms;
	uint64_t position = 0;

	if (kallsyms_locate(&kallsyms, bytes, gva, token_index - gva))
		return 0;
	for (unsigned int form = 0; kallsyms_try_addresses(&kallsyms, form); form++)
		;
	for (uint32_t i = 0;
	     i < kallsyms.count && !kallsyms_next_name(&kallsyms, &position, &type, found); i++)
		if (!strcmp(found, name))
			return kallsyms_address(&kallsyms, i);
	return 0;
}

/* A running kernel fills in its own tables; this does the same for those that the search reads. */
static void fill_kernel_tables(void)
{
	const struct guest_paging *paging = &guest.registers.paging;
	struct mapped_range range = { 0 };
	uint64_t token_index, tables;
	uint8_t *bytes;

	if (!kernel_image_next_range(&guest.view, paging, 0, &range) ||
	    kernel_image_find_token_index(&guest.view, paging, &range, range.start, &token_index) ||
	    guest_copy_virtual(&guest.view, paging, range.start, range.end - range.start, &bytes))
		exit(1);
	tables = address_of("init_top_pgt", span_of(bytes, range.end - range.start), range.start,
			    token_index);
	free(bytes);
	if (!tables)
		exit(1);
	memcpy(guest.memory + (tables - IMAGE_START), guest.memory + paging->cr3, PAGE_SIZE);
}

static double find(void)
{
	uint64_t begun = bench_time(CLOCK_PROCESS_CPUTIME_ID);
	struct guest_kernel *kernel;
	double time;

	if (guest_kernel_find(&kernel, &guest.view, &guest.registers))
		return 0;
	time = (double)(bench_time(CLOCK_PROCESS_CPUTIME_ID) - begun) / 1e6;
	if (!kernel->tasks.known || !kernel->orc || !kernel->build_id_size)
		exit(1);
	guest_kernel_free(kernel);
	return time;
}

static double copy(void)
{
	uint64_t begun = bench_time(CLOCK_PROCESS_CPUTIME_ID);
	uint8_t *bytes = malloc(image_size);

	if (!bytes || guest_read_physical(&guest.view, 16ull << 20, bytes, image_size))
		exit(1);
	__asm__ volatile("" : : "r"(bytes) : "memory");
	free(bytes);
	return (double)(bench_time(CLOCK_PROCESS_CPUTIME_ID) - begun) / 1e6;
}

static void measure(const char *version)
{
	double times[RUNS_MAX], copies[RUNS_MAX], ratios[RUNS_MAX];
	char what[64], command[256];
	FILE *file;

	snprintf(what, sizeof(what), "locate Linux %s in guest memory", version);
	snprintf(command, sizeof(command),
		 "mkdir -p build/bench && tests/rig/extract-vmlinux build/cache/kernels/%s/vmlinuz "
		 "> build/bench/vmlinux 2> /dev/null",
		 version);
	file = system(command) ? NULL : fopen("build/bench/vmlinux", "rb");
	if (!file) {
		bench_skip(what, "tests/rig/fetch-kernels has not fetched it");
		return;
	}
	flat_guest_create(&guest, GUEST_SIZE);
	load(file);
	fclose(file);
	fill_kernel_tables();
	guest.registers.paging.cr4 |= CR4_FRED;
	for (int i = 0; i < RUNS; i++) {
		times[i] = find();
		copies[i] = copy();
		ratios[i] = times[i] / copies[i];
		if (times[i] == 0)
			exit(1);
	}
	bench_print_ratio(what, bench_median(times, RUNS), "ms", "a copy of its memory",
			  bench_median(copies, RUNS), ratios, RUNS);
	flat_guest_destroy(&guest);
	unlink("build/bench/vmlinux");
}

int main(void)
{
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++)
		measure(versions[i]);
	return 0;
}
