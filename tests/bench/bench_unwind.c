/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns that one frame of a guest's stack costs the vCPU thread: with an ORC table of the size of
 * Debian's kernel, each frame in its own code, compared with frame pointers on a stack of the same
 * depth, and compared with a search by the C library for the same addresses. Also the cost of
 * reading the current task, and the time to decode the symbols of such a kernel from guest memory.
 */
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/unit/flat_guest.c"
#include "tests/unit/kallsyms_image.c"
#include "tests/unit/task_guest.c"
#include "vmm/guest/linux/kallsyms.h"
#include "vmm/guest/linux/orc_table.h"
#include "vmm/guest/symbol_table.h"
#include "vmm/guest/unwind/unwind.h"

#define GUEST_SIZE (1u << 20)
#define TEXT       0xffffffff81000000ull
#define IPS        0xffffffff82800000ull
#define STACK      0xffffc90000010000ull
#define STACK_GPA  0x10000ull
#define CODE_GPA   0x20000ull
#define DEPTH      12
#define FRAME      64 /* bytes */
#define ENTRIES    360000u
#define STEP       40u /* bytes of code per entry */
#define ROUNDS     bench_size(20000, 500)
#define RUNS_MAX   9
#define RUNS       bench_size(RUNS_MAX, 1)
#define SYMBOLS    100000
#define IMAGE_SIZE (4u << 20)

/* 5 million frames per second. */
static const struct bench_bound frame_bound = { BENCH_MOST, 200 }; /* ns */
/* The bound on a machine where a search takes 20 ns; it scales with the machine's load. */
static const struct bench_bound search_bound = { BENCH_MOST, 10 };

static struct flat_guest guest;
static struct orc_table table;
static struct kernel_orc unwinder;

static void make_table(void)
{
	uint8_t *ips = malloc(ENTRIES * 4ul), *entries = malloc(ENTRIES * (size_t)ORC_ENTRY_SIZE);
	static const int16_t words[3] = { FRAME, -16, 0x215 };

	if (!ips || !entries)
		exit(1);
	for (uint32_t i = 0; i < ENTRIES; i++) {
		int32_t relative = (int32_t)(TEXT + (uint64_t)i * STEP - (IPS + i * 4ull));

		memcpy(ips + i * 4ul, &relative, 4);
		memcpy(entries + i * (size_t)ORC_ENTRY_SIZE, words, sizeof(words));
	}
	entries[4] = 0; /* the outermost code: the end of the stack */
	entries[5] = 1;
	table = (struct orc_table){ .start = TEXT,
				    .end = TEXT + (uint64_t)ENTRIES * STEP,
				    .ips_gva = IPS,
				    .ips = ips,
				    .entries = entries,
				    .count = ENTRIES };
}

/*
 * Both chains are on one stack: return addresses at the end of each frame, frame pointers before
 * them.
 */
static void make_stack(void)
{
	flat_guest_create(&guest, GUEST_SIZE);
	flat_guest_map(&guest, guest.registers.paging.cr3, STACK, STACK_GPA, 4096, 0);
	for (uint64_t i = 1; i < DEPTH; i++) {
		uint64_t code = i + 1 < DEPTH
					? TEXT + (i * 7919 % ENTRIES) * STEP * 3 % (ENTRIES * STEP)
					: TEXT;

		flat_guest_write_u64(&guest, STACK_GPA + i * FRAME - 8, code + 8);
		flat_guest_write_u64(&guest, STACK_GPA + i * FRAME - 16,
				     i + 1 < DEPTH ? STACK + (i + 1) * FRAME - 16 : 0);
	}
	guest.registers.rip = TEXT + (uint64_t)ENTRIES / 2 * STEP;
	flat_guest_map(&guest, guest.registers.paging.cr3, guest.registers.rip & ~4095ull, CODE_GPA,
		       4096, 0);
	guest.registers.rsp = STACK;
	guest.registers.rbp = STACK + FRAME - 16;
	unwinder = (struct kernel_orc){ .paging = guest.registers.paging,
					.format = ORC_FORMAT_SIGNAL,
					.tables = &table,
					.table_count = 1 };
}

static double time_frames(const struct kernel_orc *by)
{
	uint64_t addresses[32], frames = 0, begin = bench_time(CLOCK_THREAD_CPUTIME_ID);
	struct guest_callchain chain = { .addresses = addresses, .capacity = 32 };

	for (int round = 0; round < ROUNDS; round++) {
		guest_unwind(by, &guest.view, &guest.registers, NULL, &chain);
		frames += chain.kernel_depth;
	}
	if (frames != (uint64_t)ROUNDS * DEPTH || chain.flags) {
		fprintf(stderr, "bench_unwind: a chain of %u frames, flags %u\n",
			chain.kernel_depth, chain.flags);
		exit(1);
	}
	return (double)(bench_time(CLOCK_THREAD_CPUTIME_ID) - begin) / (double)frames;
}

static int compare_starts(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	return (a > b) - (a < b);
}

/* Finds the entries of the chain's addresses in STARTS, which are offsets from TEXT. */
static double time_searches(const uint32_t *starts)
{
	uint64_t addresses[32], begin;
	struct guest_callchain chain = { .addresses = addresses, .capacity = 32 };
	size_t found = 0;

	guest_unwind(&unwinder, &guest.view, &guest.registers, NULL, &chain);
	begin = bench_time(CLOCK_THREAD_CPUTIME_ID);
	for (int round = 0; round < ROUNDS; round++)
		for (unsigned int i = 0; i < DEPTH; i++) {
			uint32_t start = (uint32_t)(addresses[i] - TEXT) / STEP * STEP;

			found += bsearch(&start, starts, ENTRIES, sizeof(start), compare_starts) !=
				 NULL;
		}
	if (found != (size_t)ROUNDS * DEPTH) {
		fprintf(stderr, "bench_unwind: %zu of the addresses are found\n", found);
		exit(1);
	}
	return (double)(bench_time(CLOCK_THREAD_CPUTIME_ID) - begin) / (double)found;
}

static void measure_frames(void)
{
	double orc[RUNS_MAX], frame_pointers[RUNS_MAX], searches[RUNS_MAX], ratios[RUNS_MAX];
	uint32_t *starts = malloc(ENTRIES * sizeof(*starts));

	if (!starts)
		exit(1);
	for (uint32_t i = 0; i < ENTRIES; i++)
		starts[i] = i * STEP;
	for (int run = 0; run < RUNS; run++) {
		orc[run] = time_frames(&unwinder);
		frame_pointers[run] = time_frames(NULL);
		searches[run] = time_searches(starts);
		ratios[run] = orc[run] / searches[run];
	}
	free(starts);
	bench_print_relative_bound("unwind: a frame by ORC, 360 000 entries",
				   bench_median(orc, RUNS), "ns", "frame pointers",
				   bench_median(frame_pointers, RUNS), frame_bound);
	bench_print_ratio_bound("unwind: a frame by ORC", bench_median(orc, RUNS), "ns",
				"bsearch on the same number of entries",
				bench_median(searches, RUNS), ratios, RUNS, search_bound);
}

static double time_task(struct task_guest *tasks)
{
	uint64_t begin = bench_time(CLOCK_THREAD_CPUTIME_ID);

	for (int round = 0; round < ROUNDS; round++)
		if (!task_guest_lookup(tasks)) {
			fprintf(stderr, "bench_unwind: the task is not found\n");
			exit(1);
		}
	return (double)(bench_time(CLOCK_THREAD_CPUTIME_ID) - begin) / ROUNDS;
}

/* In the kernel the stack is checked as well; in user code the page tables have to match. */
static void measure_tasks(void)
{
	double user[RUNS_MAX], kernel[RUNS_MAX];
	struct task_guest tasks;

	task_guest_make(&tasks);
	for (int run = 0; run < RUNS; run++) {
		tasks.registers->cpl = 3;
		user[run] = time_task(&tasks);
		tasks.registers->cpl = 0;
		tasks.registers->rsp = DIRECT + TASK_STACK(1) + 0x3f00;
		kernel[run] = time_task(&tasks);
	}
	bench_print_relative("task of a sample in user code", bench_median(user, RUNS), "ns",
			     "in the kernel", bench_median(kernel, RUNS));
	task_guest_free(&tasks);
}

static size_t make_image(uint8_t *image)
{
	struct kallsyms_symbol *symbols = calloc(SYMBOLS, sizeof(*symbols));
	size_t size;

	if (!symbols)
		exit(1);
	for (unsigned int i = 0; i < SYMBOLS; i++) {
		symbols[i].address = TEXT + i * 128ull;
		symbols[i].type = 't';
		snprintf(symbols[i].name, sizeof(symbols[i].name), "function_of_some_length_%u", i);
	}
	size = kallsyms_image_write(KALLSYMS_6_12, symbols, SYMBOLS, TEXT, IPS, image, IMAGE_SIZE);
	free(symbols);
	return size;
}

/* The same steps as guest_kernel_find(), in the same order. */
static int decode(struct span image)
{
	char name[KALLSYMS_NAME_MAX], type;
	struct kallsyms kallsyms;
	struct symbols *symbols = symbols_new();
	uint64_t token_index, position = 0;

	if (!symbols || !kallsyms_find_token_index(image, 0, &token_index) ||
	    kallsyms_locate(&kallsyms, image, IPS, token_index) ||
	    kallsyms_try_addresses(&kallsyms, 0))
		return -1;
	for (uint32_t i = 0; i < kallsyms.count; i++)
		if (kallsyms_next_name(&kallsyms, &position, &type, name) ||
		    symbols_add(symbols, kallsyms_address(&kallsyms, i), 0, type, name, NULL))
			return -1;
	symbols_finish(symbols);
	symbols_free(symbols);
	return 0;
}

static int measure_kallsyms(void)
{
	uint8_t *image = malloc(IMAGE_SIZE);
	double times[RUNS_MAX];
	size_t size;

	if (!image)
		return 1;
	size = make_image(image);
	for (int run = 0; run < RUNS; run++) {
		uint64_t begin = bench_time(CLOCK_THREAD_CPUTIME_ID);

		if (decode(span_of(image, size)))
			return 1;
		times[run] = (double)(bench_time(CLOCK_THREAD_CPUTIME_ID) - begin) / 1e6;
	}
	bench_print("kallsyms: decode 100 000 symbols", bench_median(times, RUNS), "ms");
	free(image);
	return 0;
}

int main(void)
{
	make_table();
	make_stack();
	measure_frames();
	measure_tasks();
	flat_guest_destroy(&guest);
	return measure_kallsyms() ? 1 : bench_status();
}
