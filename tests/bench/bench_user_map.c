/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of looking up mappings in a stop: a chain whose addresses are in one, four or 16 of 400
 * mappings of an address space, with each kind of tree.
 */
#include "tests/bench/bench.h"
#include "tests/unit/flat_guest.c"
#include "tests/unit/user_guest.c"
#include "vmm/guest/linux/vma.h"

#define MAPPINGS 400u
#define STOPS    bench_size(20000u, 1000)
#define RUNS_MAX 9u
#define RUNS     bench_size(RUNS_MAX, 1)

static struct user_guest guest;

static uint64_t start_of(unsigned int index)
{
	return 0x400000 + index * 0x5000ull;
}

static void make_guest(bool is_maple)
{
	user_guest_make(&guest, is_maple);
	for (unsigned int i = 0; i < MAPPINGS; i++) {
		char name[16];

		snprintf(name, sizeof(name), "file-%u", i);
		user_guest_map(&guest, start_of(i), start_of(i) + 0x3000, 0, VMA_READ | VMA_EXEC,
			       user_guest_file(&guest, guest.root_mount,
					       user_guest_dentry(&guest, guest.root, name), i));
	}
	user_guest_build(&guest);
}

/* ns of a stop that reads COUNT mappings. */
static double time_of_stop(unsigned int count)
{
	uint64_t begin = bench_time(CLOCK_THREAD_CPUTIME_ID);

	for (unsigned int i = 0; i < STOPS; i++) {
		user_map_begin(&guest.map, &guest.kernel, &guest.guest.view, guest.mm);
		guest.map.memory.deadline = UINT64_MAX;
		for (unsigned int mapping = 0; mapping < count; mapping++)
			if (!user_map_find(&guest.map, start_of((i + mapping * 37) % MAPPINGS) + 8))
				exit(1);
	}
	return (double)(bench_time(CLOCK_THREAD_CPUTIME_ID) - begin) / STOPS;
}

static double median_of_stop(unsigned int count)
{
	double times[RUNS_MAX];

	for (unsigned int i = 0; i < RUNS; i++)
		times[i] = time_of_stop(count);
	return bench_median(times, RUNS);
}

static void measure(const char *tree, bool is_maple)
{
	static const unsigned int counts[] = { 1, 4, 16 };
	char what[96];

	make_guest(is_maple);
	for (unsigned int i = 0; i < 3; i++) {
		snprintf(what, sizeof(what), "stop with addresses in %u mappings, %s tree",
			 counts[i], tree);
		bench_print(what, median_of_stop(counts[i]), "ns");
	}
	user_guest_free(&guest);
}

int main(void)
{
	measure("maple", true);
	measure("red-black", false);
	return 0;
}
