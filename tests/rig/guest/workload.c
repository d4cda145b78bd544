/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workload of guests in tests and the demo. Its shares are known, because the program measures
 * its own time slices.
 *
 *	workload shares SECONDS [PROCESSES]
 *		three system calls, each dominated by its own kernel functions: 60 % getrandom
 *		(ChaCha20), 30 % read of /dev/zero (clearing user memory), 10 % pread64 of a
 *		file in tmpfs (copying from the page cache)
 *	workload mixed SECONDS
 *		three processes: "web" mostly in user functions, "store" mostly in system
 *		calls, "logger" in both
 *	workload user SECONDS
 *		user functions only: 70 % hash_block, 30 % sort_block
 *	workload loops SECONDS
 *		one loop in three user functions: 60 % share_sixty, 30 % share_thirty, 10 %
 *		share_ten, by count and thus in any interval
 *
 *	workload breakpoints COUNT
 *		the guest's own data watchpoints at the same time: with 1, 2, 3 and 4 of them,
 *		writes COUNT times to the watched variables in turn, and the same number of
 *		times to panic_timeout, which is not written while all four are in use; prints
 *		the counts of the guest's kernel
 *	workload switches COUNT
 *		a process that has another one run and waits for it, COUNT times; prints the
 *		time of such a round trip
 *
 * Each process except that of loops prints at its end one line with the true shares of its time:
 *
 *	workload: truth process=NAME seconds=5.002 getrandom=0.6001 read=0.3000 pread64=0.0999
 *
 * where the names are those of the system calls (kernel symbol __x64_sys_NAME) and of the user
 * functions. Time outside of them is below 1 %.
 *
 * Static, and built with frame pointers, so that chains can be walked.
 */
#include <fcntl.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/*
 * A chain of multiplications takes the same time everywhere. Without it an emulator's loop depends
 * on where the emulator has put its code.
 */
#define IMUL      "imulq %%rax, %%rax\n\t"
#define SPIN_WORK IMUL IMUL IMUL IMUL IMUL IMUL IMUL IMUL IMUL IMUL IMUL IMUL

#include "tests/guests/spin_loop.h"
#include "tests/rig/guest/guest_program.h"

/*
 * Long enough that reading the clock costs little, short enough for many slices per second in an
 * emulator.
 */
enum {
	BLOCK_SIZE = 256 << 10,
	RANDOM_SIZE = 16 << 10,
	SORTED = 2000,
	LOOPS = 25000,
};

#define SLICE 0.008 /* s, minimum */

static unsigned char block[BLOCK_SIZE];
static uint32_t sorted[SORTED];
static int zero_file, cached_file;

/* The tasks. System calls are made directly, because the C library may use the vDSO. */
static void task_getrandom(void)
{
	check(syscall(SYS_getrandom, block, RANDOM_SIZE, 0) == RANDOM_SIZE, "getrandom");
}

static void task_read(void)
{
	check(syscall(SYS_read, zero_file, block, BLOCK_SIZE) == BLOCK_SIZE, "read /dev/zero");
}

static void task_pread64(void)
{
	check(syscall(SYS_pread64, cached_file, block, BLOCK_SIZE, 0L) == BLOCK_SIZE, "pread");
}

__attribute__((noinline)) uint32_t hash_block(const unsigned char *data, size_t size)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ data[i]) * 16777619u;
	return hash;
}

static int compare_numbers(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

__attribute__((noinline)) void sort_block(uint32_t *numbers, size_t count)
{
	static uint32_t seed = 1;

	for (size_t i = 0; i < count; i++)
		numbers[i] = seed = seed * 1664525u + 1013904223u;
	qsort(numbers, count, sizeof(*numbers), compare_numbers);
}

static void task_hash_block(void)
{
	/* Stored, so that the compiler cannot omit the call. */
	sorted[0] ^= hash_block(block, sizeof(block));
}

static void task_sort_block(void)
{
	sort_block(sorted, SORTED);
}

struct task {
	const char *name;
	void (*run)(void);
	unsigned int percent;
	double spent;
	unsigned int repeat; /* runs per slice */
};

static struct task shares_tasks[] = {
	{ "getrandom", task_getrandom, 60, 0, 1 },
	{ "read", task_read, 30, 0, 1 },
	{ "pread64", task_pread64, 10, 0, 1 },
	{ 0 },
};
static struct task user_tasks[] = {
	{ "hash_block", task_hash_block, 70, 0, 1 },
	{ "sort_block", task_sort_block, 30, 0, 1 },
	{ 0 },
};
static struct task web_tasks[] = {
	{ "hash_block", task_hash_block, 45, 0, 1 },
	{ "sort_block", task_sort_block, 35, 0, 1 },
	{ "read", task_read, 20, 0, 1 },
	{ 0 },
};
static struct task store_tasks[] = {
	{ "pread64", task_pread64, 60, 0, 1 },
	{ "getrandom", task_getrandom, 25, 0, 1 },
	{ "sort_block", task_sort_block, 15, 0, 1 },
	{ 0 },
};
static struct task logger_tasks[] = {
	{ "hash_block", task_hash_block, 50, 0, 1 },
	{ "read", task_read, 50, 0, 1 },
	{ 0 },
};

/* CPU time, so that the time of other processes is not counted. */
static double spent_cpu(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

/* The least time of three runs, because the host may stall in any of them. They count as work. */
static double time_slice(struct task *task)
{
	double least = 1e9;

	for (int i = 0; i < 3; i++) {
		double before = spent_cpu(), took;

		for (unsigned int k = 0; k < task->repeat; k++)
			task->run();
		took = spent_cpu() - before;
		task->spent += took;
		least = took < least ? took : least;
	}
	return least;
}

/* The overhead of a slice is charged to its task, so slices must be long, in emulators as well. */
static void make_slices_long(struct task *tasks)
{
	for (struct task *task = tasks; task->name; task++)
		while (time_slice(task) < SLICE)
			task->repeat *= 2;
}

/* The task that is furthest below its share. */
static struct task *next_task(struct task *tasks)
{
	struct task *next = tasks;

	for (struct task *task = tasks; task->name; task++)
		if (task->spent / task->percent < next->spent / next->percent)
			next = task;
	return next;
}

static void print_truth(const char *name, const struct task *tasks, double seconds)
{
	char line[512];
	double total = 0;
	int length = snprintf(line, sizeof(line), "workload: truth process=%s seconds=%.3f", name,
			      seconds);

	for (const struct task *task = tasks; task->name; task++)
		total += task->spent;
	for (const struct task *task = tasks; task->name; task++)
		length += snprintf(line + length, sizeof(line) - length, " %s=%.4f", task->name,
				   task->spent / total);
	/* A single write, because processes share the console. */
	line[length++] = '\n';
	check(write(STDOUT_FILENO, line, length) == length, "write");
}

static void run_tasks(const char *name, struct task *tasks, double seconds)
{
	double start = now(), before;

	prctl(PR_SET_NAME, name);
	make_slices_long(tasks);
	before = spent_cpu();
	while (now() - start < seconds) {
		struct task *task = next_task(tasks);
		double after;

		for (unsigned int i = 0; i < task->repeat; i++)
			task->run();
		after = spent_cpu();
		task->spent += after - before;
		before = after;
	}
	print_truth(name, tasks, now() - start);
}

SPIN_LOOP(share_sixty, section(".text"))
SPIN_LOOP(share_thirty, section(".text"))
SPIN_LOOP(share_ten, section(".text"))

__attribute__((noinline)) void user_works(double seconds);
void user_works(double seconds)
{
	for (double start = now(); now() - start < seconds;) {
		share_sixty(6 * LOOPS);
		share_thirty(3 * LOOPS);
		share_ten(LOOPS);
	}
}

static void start_process(const char *name, struct task *tasks, double seconds)
{
	pid_t child = fork();

	check(child >= 0, "fork");
	if (child)
		return;
	run_tasks(name, tasks, seconds);
	_exit(0);
}

static int wait_for_all(void)
{
	int status, failed = 0;

	while (wait(&status) > 0)
		failed |= status != 0;
	return failed;
}

static void write_panic_timeout(int count)
{
	int file = open("/proc/sys/kernel/panic", O_WRONLY);
	char number[16];

	check(file >= 0, "/proc/sys/kernel/panic");
	for (int i = 1; i <= count; i++) {
		int length = snprintf(number, sizeof(number), "%d", i);

		check(pwrite(file, number, (size_t)length, 0) == length, "/proc/sys/kernel/panic");
	}
	printf("workload: written %d times\n", count);
}

#define WATCHED_MAX 4

static volatile long watched[WATCHED_MAX];

/* perf's own breakpoints: perf_event_open(2), PERF_TYPE_BREAKPOINT. */
static int watch(volatile long *variable)
{
	struct perf_event_attr attribute = {
		.type = PERF_TYPE_BREAKPOINT,
		.size = sizeof(attribute),
		.bp_type = HW_BREAKPOINT_W,
		.bp_addr = (uintptr_t)variable,
		.bp_len = sizeof(*variable),
		.sample_period = 1,
		.pinned = 1,
	};
	int event = (int)syscall(SYS_perf_event_open, &attribute, 0, -1, -1, 0);

	check(event >= 0, "perf_event_open");
	return event;
}

static void count_breakpoints(int registers, int count)
{
	int events[WATCHED_MAX];
	uint64_t hits;

	for (int i = 0; i < registers; i++)
		events[i] = watch(&watched[i]);
	for (int i = 0; i < count; i++)
		watched[i % registers] = i;
	if (registers < WATCHED_MAX)
		write_panic_timeout(count);
	printf("workload: %d breakpoints counted", registers);
	for (int i = 0; i < registers; i++) {
		check(read(events[i], &hits, sizeof(hits)) == sizeof(hits), "read of a perf event");
		printf(" %llu", (unsigned long long)hits);
		close(events[i]);
	}
	printf(" of %d\n", count);
}

static void pass(int from, int to)
{
	char byte = 0;

	check(read(from, &byte, 1) == 1 && write(to, &byte, 1) == 1, "pipe");
}

static void answer(int from, int to, int count)
{
	for (int i = 0; i < count; i++)
		pass(from, to);
	_exit(0);
}

static void switch_to_and_fro(int count)
{
	int to[2], from[2];
	double start;
	pid_t child;

	check(!pipe(to) && !pipe(from), "pipe");
	child = fork();
	check(child >= 0, "fork");
	if (!child)
		answer(to[0], from[1], count);
	check(write(to[1], "", 1) == 1, "pipe");
	start = now();
	for (int i = 1; i < count; i++)
		pass(from[0], to[1]);
	printf("workload: a switch took %.1f us\n", (now() - start) * 1e6 / (count - 1));
}

static void open_files(void)
{
	char path[] = "/tmp/workload.XXXXXX";

	zero_file = open("/dev/zero", O_RDONLY);
	check(zero_file >= 0, "/dev/zero");
	cached_file = mkstemp(path);
	check(cached_file >= 0 && !unlink(path), path);
	check(write(cached_file, block, BLOCK_SIZE) == BLOCK_SIZE, path);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	double seconds = argc > 2 ? atof(argv[2]) : 0;
	int processes = argc > 3 ? atoi(argv[3]) : 1;

	if (seconds <= 0 || processes < 1) {
		fprintf(stderr,
			"usage: workload shares|mixed|user|loops SECONDS [PROCESSES], or breakpoints|switches COUNT\n");
		return 2;
	}
	if (!strcmp(mode, "breakpoints")) {
		for (int registers = 1; registers <= WATCHED_MAX; registers++)
			count_breakpoints(registers, (int)seconds);
		write_panic_timeout((int)seconds);
		return 0;
	}
	if (!strcmp(mode, "switches")) {
		switch_to_and_fro((int)seconds);
		return 0;
	}
	if (!strcmp(mode, "loops")) {
		user_works(seconds);
		return 0;
	}
	open_files();
	if (!strcmp(mode, "mixed")) {
		start_process("web", web_tasks, seconds);
		start_process("store", store_tasks, seconds);
		start_process("logger", logger_tasks, seconds);
		return wait_for_all();
	}
	for (int i = 0; i < processes; i++)
		start_process("workload", strcmp(mode, "user") ? shares_tasks : user_tasks,
			      seconds);
	return wait_for_all();
}
