/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the frequency of this machine's TSC in kHz. The emulator's TSC has the same one, and a
 * kernel that calibrates it on a busy machine may be wrong by a third or more.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define TRIES    20
#define INTERVAL 50000 /* us */

struct mark {
	uint64_t tsc, time; /* ns */
};

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Reads both clocks as closely together as possible in some tries. */
static struct mark read_clocks(void)
{
	struct mark mark = { 0 };
	uint64_t width = UINT64_MAX;

	for (int i = 0; i < TRIES; i++) {
		uint64_t before = __rdtsc(), time = now(), after = __rdtsc();

		if (after - before >= width)
			continue;
		width = after - before;
		mark = (struct mark){ before + width / 2, time };
	}
	return mark;
}

int main(void)
{
	struct mark first = read_clocks(), last;

	usleep(INTERVAL);
	last = read_clocks();
	printf("%.0f\n", (double)(last.tsc - first.tsc) * 1e6 / (double)(last.time - first.time));
	return 0;
}
