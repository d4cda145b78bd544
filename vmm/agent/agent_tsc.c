/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/agent/agent_tsc.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <x86intrin.h>

#include "shared/clock_ns.h"
#include "shared/read_file.h"

/* True if FILE contains the word NAME. */
static bool lists(const char *clocksources, const char *file, const char *name)
{
	char path[PATH_MAX], text[256], *rest = NULL;

	snprintf(path, sizeof(path), "%s/%s", clocksources, file);
	read_small_file(AT_FDCWD, path, text, sizeof(text));
	for (char *word = strtok_r(text, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest))
		if (!strcmp(word, name))
			return true;
	return false;
}

/* An unstable TSC is not listed (kernel/time/clocksource.c, available_clocksource_show). */
bool tsc_is_reliable(const char *clocksources)
{
	return lists(clocksources, "available_clocksource", "tsc");
}

/* The clocksources with which KVM uses a master clock (arch/x86/kvm/x86.c, gtod_is_based_on_tsc).
 */
bool tsc_is_clocksource(const char *clocksources)
{
	return lists(clocksources, "current_clocksource", "tsc") ||
	       lists(clocksources, "current_clocksource", "tsc-early") ||
	       lists(clocksources, "current_clocksource", "hyperv_clocksource_tsc_page");
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

	mark.time = clock_ns(CLOCK_MONOTONIC_RAW);
	mark.width = read_tsc() - mark.tsc;
	return mark;
}

/* Linear interpolation, as RAW time is linear in the TSC. A mark's time was read anywhere within
 * its width, which is the error.
 */
bool tsc_time(const struct tsc_mark *first, const struct tsc_mark *last, uint64_t value,
	      uint64_t *low, uint64_t *high)
{
	uint64_t cycles = last->tsc - first->tsc, ns = last->time - first->time, slack, time;

	if (last->tsc <= first->tsc || last->time <= first->time || value < first->tsc ||
	    value > last->tsc)
		return false;
	time = first->time + (uint64_t)((unsigned __int128)(value - first->tsc) * ns / cycles);
	slack = (uint64_t)((unsigned __int128)(first->width + last->width) * ns / cycles) + 1;
	*low = time > slack ? time - slack : 0;
	*high = time + slack;
	return true;
}
