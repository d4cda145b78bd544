/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with a mapped perf event that counts its own cycles, which it may read by RDPMC if the
 * page allows that (perf_event_open(2), cap_user_rdpmc). Prints
 *
 *	rdpmc: mapped NUMBER, read GROWS, without SIGNAL
 *
 * NUMBER: cap_user_rdpmc. GROWS: 1 if read(2) counts. SIGNAL: the signal for executing the
 * instruction without permission; 0 if it succeeded.
 */
#include <linux/perf_event.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/rig/guest/guest_program.h"

#define COUNTER 0

static uint64_t read_event(int event)
{
	uint64_t count = 0;

	check(read(event, &count, sizeof(count)) == sizeof(count), "read of a perf event");
	return count;
}

static int open_cycles(void)
{
	struct perf_event_attr attributes = { .size = sizeof(attributes),
					      .type = PERF_TYPE_HARDWARE,
					      .config = PERF_COUNT_HW_CPU_CYCLES };
	int event = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0);

	check(event >= 0, "perf_event_open");
	return event;
}

static sigjmp_buf after_signal;

static void skip_instruction(int number)
{
	siglongjmp(after_signal, number);
}

/* 0: no signal. */
static int signal_of_rdpmc(void)
{
	const struct sigaction action = { .sa_handler = skip_instruction };
	uint32_t low, high;
	int number;

	check(!sigaction(SIGSEGV, &action, NULL), "sigaction");
	number = sigsetjmp(after_signal, 1);
	if (!number)
		__asm__ volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(COUNTER));
	return number;
}

int main(void)
{
	int event = open_cycles();
	const volatile struct perf_event_mmap_page *page =
		mmap(NULL, (size_t)getpagesize(), PROT_READ, MAP_SHARED, event, 0);
	uint64_t before;

	check(page != MAP_FAILED, "mmap of a perf event");
	before = read_event(event);
	printf("rdpmc: mapped %d, read %d, without %d\n", (int)page->cap_user_rdpmc,
	       read_event(event) > before, signal_of_rdpmc());
	return 0;
}
