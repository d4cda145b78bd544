/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns that one frame of a user program without frame pointers costs the vCPU thread, with tables
 * compiled from .eh_frame, compared with libdw on the same stack with the same images. The stack is
 * this program's own: 20 functions, each with its own code, with the C library's sorting in
 * between. Also the time to compile the tables.
 */
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/unit/flat_guest.c"
#include "vmm/guest/unwind/cfi_image.h"
#include "vmm/guest/unwind/unwind.h"

#define GUEST_SIZE (1u << 20)
#define STACK_SIZE (64u << 10)
#define PAGE       4096ull
#define ROUNDS     bench_size(20000, 500)
#define DW_ROUNDS  bench_size(200, 10)
#define RUNS_MAX   9
#define RUNS       bench_size(RUNS_MAX, 1)
#define DEPTH      20 /* at least */

/* 5 million frames per second. */
static const struct bench_bound frame_bound = { BENCH_MOST, 200 }; /* ns */
/* The bound on a machine where libdw takes 400 ns; it scales with the machine's load. */
static const struct bench_bound libdw_bound = { BENCH_MOST, 0.5 };

static struct flat_guest guest;
static ucontext_t context;
static struct user_images *images;
static struct user_map map;
static uint64_t compiled; /* bytes of tables */

static void fail(const char *what)
{
	fprintf(stderr, "bench_unwind_user: %s\n", what);
	exit(1);
}

/* --- the stack ---------------------------------------------------------------- */

static void measure(void);

static volatile int sink;

static __attribute__((noinline)) int compare(const void *left, const void *right)
{
	if (!sink) {
		sink = 1;
		measure();
	}
	return *(const int *)left - *(const int *)right;
}

static __attribute__((noinline)) int f0(int n)
{
	int numbers[3] = { n, 2, 1 };

	qsort(numbers, 3, sizeof(int), compare);
	return numbers[0];
}

/*
 * Functions with frames of different sizes; the result is used after the call, so it is not a tail
 * call.
 */
#define LEVEL(number, below)                                                                       \
	static __attribute__((noinline)) int f##number(int n)                                      \
	{                                                                                          \
		volatile char bytes[(number)*24 + 8];                                              \
                                                                                                   \
		bytes[n] = (char)n;                                                                \
		return f##below(n) + bytes[n];                                                     \
	}

LEVEL(1, 0)
LEVEL(2, 1)
LEVEL(3, 2)
LEVEL(4, 3)
LEVEL(5, 4)
LEVEL(6, 5)
LEVEL(7, 6)
LEVEL(8, 7)
LEVEL(9, 8)
LEVEL(10, 9)
LEVEL(11, 10)
LEVEL(12, 11)
LEVEL(13, 12)
LEVEL(14, 13)
LEVEL(15, 14)

/* --- the stack as guest memory --------------------------------------------------- */

static int read_file(void *file, uint64_t offset, void *to, size_t size)
{
	return pread(*(int *)file, to, size, (off_t)offset) == (ssize_t)size ? 0 : -EFAULT;
}

static void add_image(const char *path, uint64_t start, uint64_t end, uint64_t offset)
{
	struct user_image_key key = { .kind = USER_IMAGE_FILE, .inode = start };
	int file = open(path, O_RDONLY | O_CLOEXEC);
	struct elf_source source = { .read = read_file, .context = &file };
	struct cfi_table *table;
	struct user_mapping *mapping = &map.mappings[map.count];

	if (file < 0 || map.count == USER_MAP_MAX || cfi_image_compile(&table, &source))
		fail("no unwind table");
	close(file);
	compiled += cfi_table_size(table);
	*mapping = (struct user_mapping){ .start = start,
					  .end = end,
					  .offset = offset,
					  .flags = USER_MAPPING_READ | USER_MAPPING_EXEC,
					  .image = user_images_find(images, &key) };
	user_image_set_cfi(mapping->image, table);
	map.count++;
}

static void read_mappings(void)
{
	unsigned long long start, end, offset;
	char path[300], line[600], kind[5];
	FILE *maps = fopen("/proc/self/maps", "r");

	if (!maps || user_images_create(&images))
		fail("no mappings");
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%llx-%llx %4s %llx %*s %*s %299s", &start, &end, kind, &offset,
			   path) == 5 &&
		    kind[2] == 'x' &&
		    (strstr(path, "/libc.so") || strstr(path, "bench_unwind_user")))
			add_image(path, start, end, offset);
	fclose(maps);
}

static void use_stack(void)
{
	const greg_t *from = context.uc_mcontext.gregs;
	uint64_t base = (uint64_t)from[REG_RSP] & ~(PAGE - 1);
	struct guest_registers *to = &guest.registers;

	flat_guest_create(&guest, GUEST_SIZE);
	for (uint64_t at = 0; at < STACK_SIZE; at += PAGE)
		flat_guest_map(&guest, to->paging.cr3, base + at, at, PAGE, 4);
	/* The arguments and the environment are above the stack, so the bytes exist. */
	memcpy(guest.memory, (const void *)(uintptr_t)base,
	       (uint64_t)(uintptr_t)*environ - base < STACK_SIZE
		       ? (uint64_t)(uintptr_t)*environ - base
		       : STACK_SIZE);
	to->rip = (uint64_t)from[REG_RIP];
	to->rsp = (uint64_t)from[REG_RSP];
	to->rbp = (uint64_t)from[REG_RBP];
	to->rbx = (uint64_t)from[REG_RBX];
	to->cpl = 3;
}

static double time_tables(unsigned int *depth)
{
	uint64_t addresses[127], frames = 0, begin = bench_time(CLOCK_THREAD_CPUTIME_ID);
	struct guest_callchain chain = { .addresses = addresses, .capacity = 127 };

	for (int round = 0; round < ROUNDS; round++) {
		guest_unwind(NULL, &guest.view, &guest.registers, &map, &chain);
		frames += chain.user_depth;
	}
	if (chain.flags || chain.user_depth < DEPTH)
		fail("the chain is incomplete");
	*depth = chain.user_depth;
	return (double)(bench_time(CLOCK_THREAD_CPUTIME_ID) - begin) / (double)frames;
}

/* --- the stack for libdw ----------------------------------------------------------- */

static pid_t next_thread(Dwfl *dwfl, void *argument, void **thread)
{
	if (*thread)
		return 0;
	*thread = &guest;
	return getpid();
}

static bool read_memory(Dwfl *dwfl, Dwarf_Addr address, Dwarf_Word *word, void *argument)
{
	if (address < guest.registers.rsp - 256 || address > (uint64_t)(uintptr_t)*environ)
		return false;
	memcpy(word, (const void *)(uintptr_t)address, sizeof(*word));
	return true;
}

static bool set_registers(Dwfl_Thread *thread, void *argument)
{
	static const int in_order[17] = { REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
					  REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
					  REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP };
	Dwarf_Word registers[17];

	for (int i = 0; i < 17; i++)
		registers[i] = (Dwarf_Word)context.uc_mcontext.gregs[in_order[i]];
	return dwfl_thread_state_registers(thread, 0, 17, registers);
}

static int count_frame(Dwfl_Frame *frame, void *count)
{
	Dwarf_Addr address;
	bool activation;

	if (dwfl_frame_pc(frame, &address, &activation))
		++*(uint64_t *)count;
	return DWARF_CB_OK;
}

static const Dwfl_Thread_Callbacks thread_callbacks = { .next_thread = next_thread,
							.memory_read = read_memory,
							.set_initial_registers = set_registers };

static Dwfl *open_dwfl(void)
{
	static const Dwfl_Callbacks callbacks = { .find_elf = dwfl_linux_proc_find_elf,
						  .find_debuginfo = dwfl_standard_find_debuginfo };
	Dwfl *dwfl = dwfl_begin(&callbacks);

	if (!dwfl || dwfl_linux_proc_report(dwfl, getpid()) || dwfl_report_end(dwfl, NULL, NULL) ||
	    !dwfl_attach_state(dwfl, NULL, getpid(), &thread_callbacks, &guest))
		fail("libdw cannot attach to this process");
	return dwfl;
}

static double time_libdw(Dwfl *dwfl, unsigned int depth)
{
	uint64_t frames = 0, begin;

	dwfl_getthread_frames(dwfl, getpid(), count_frame, &frames);
	if (frames != depth)
		fail("libdw finds a different number of frames");
	frames = 0;
	begin = bench_time(CLOCK_THREAD_CPUTIME_ID);
	for (int round = 0; round < DW_ROUNDS; round++)
		dwfl_getthread_frames(dwfl, getpid(), count_frame, &frames);
	return (double)(bench_time(CLOCK_THREAD_CPUTIME_ID) - begin) / (double)frames;
}

static void measure_frames(void)
{
	double tables[RUNS_MAX], libdw[RUNS_MAX], ratios[RUNS_MAX];
	Dwfl *dwfl = open_dwfl();
	unsigned int depth;

	for (int run = 0; run < RUNS; run++) {
		tables[run] = time_tables(&depth);
		libdw[run] = time_libdw(dwfl, depth);
		ratios[run] = tables[run] / libdw[run];
	}
	dwfl_end(dwfl);
	bench_print_bound("unwind: a frame of a user program by .eh_frame",
			  bench_median(tables, RUNS), "ns", frame_bound);
	bench_print_ratio_bound("unwind: a frame of a user program by .eh_frame",
				bench_median(tables, RUNS), "ns", "libdw",
				bench_median(libdw, RUNS), ratios, RUNS, libdw_bound);
}

static void measure(void)
{
	uint64_t begin;

	getcontext(&context);
	use_stack();
	begin = bench_time(CLOCK_THREAD_CPUTIME_ID);
	read_mappings();
	bench_print("unwind: time to compile the tables of this program and libc",
		    (double)(bench_time(CLOCK_THREAD_CPUTIME_ID) - begin) / 1e6, "ms");
	bench_print("unwind: size of these tables", (double)compiled / 1024, "KiB");
	measure_frames();
}

int main(void)
{
	sink = 0;
	return f15(7) == 12345 ? 1 : bench_status();
}
