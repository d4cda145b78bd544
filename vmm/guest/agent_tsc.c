// SPDX-License-Identifier: Apache-2.0
#include "vmm/guest/agent_tsc.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

/* A TSC that Linux found unstable is not among them (kernel/time/clocksource.c, available_clocksource_show).
 */
bool tsc_is_clock(void)
{
	FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/available_clocksource", "re");
	char name[64];
	bool found = false;

	while (file && !found && fscanf(file, "%63s", name) == 1)
		found = !strcmp(name, "tsc");
	if (file)
		fclose(file);
	return found;
}

static uint64_t read_tsc(void)
{
	uint64_t tsc;

	_mm_lfence();
	tsc = __rdtsc();
	_mm_lfence();
	return tsc;
}

struct tsc_mark tsc_mark_now(void)
{
	struct tsc_mark mark = { .tsc = read_tsc() };
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	mark.width = read_tsc() - mark.tsc;
	mark.time = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
	return mark;
}

/*
 * By the straight line through the marks: RAW time is one. A mark's time was
 * read anywhere in its width, so the line may be off by that.
 */
bool tsc_time(const struct tsc_mark *first, const struct tsc_mark *last, uint64_t value, uint64_t *low,
	      uint64_t *high)
{
	uint64_t cycles = last->tsc - first->tsc, ns = last->time - first->time, slack, time;

	if (last->tsc <= first->tsc || last->time <= first->time || value < first->tsc || value > last->tsc)
		return false;
	time = first->time + (uint64_t)((unsigned __int128)(value - first->tsc) * ns / cycles);
	slack = (uint64_t)((unsigned __int128)(first->width + last->width) * ns / cycles) + 1;
	*low = time > slack ? time - slack : 0;
	*high = time + slack;
	return true;
}
