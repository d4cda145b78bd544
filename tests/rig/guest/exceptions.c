/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exceptions SECONDS: on the second CPU a program hits the guest's own breakpoints, at one of its
 * functions and at a kernel function that its system calls reach. The kernel's perf records a call
 * chain at each hit, so much of the time is spent in the handler of debug exceptions. Meanwhile,
 * the first CPU repeatedly has the kernel print the backtrace of the other CPU (SysRq l), which
 * uses an NMI. The calls of the working program are
 *
 *	ask_kernel, own_breakpoint <- both <- large_frame <- work <- main
 *
 * and the breakpoints are at the first instructions of own_breakpoint and of the kernel's
 * __x64_sys_getppid.
 *
 * Static, linked to its own address range, so that its samples are recognized by address.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/rig/guest/guest_program.h"

#define ASKED_MIN 25 /* even if the machine stalls */

/* Not inlined, cloned or merged with an identical function. */
#define FUNCTION static __attribute__((noipa))
/* Code after each call prevents tail calls. */
#define BEHIND_CALL() __asm__ volatile("" ::: "memory")

static volatile unsigned long count;

static void run_on(int processor)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	check(!sched_setaffinity(0, sizeof(set), &set), "exceptions: sched_setaffinity");
}

static uint64_t kernel_address(const char *wanted)
{
	FILE *file = fopen("/proc/kallsyms", "r");
	char line[1024], name[512];
	uint64_t address, found = 0;

	check(file != NULL, "exceptions: /proc/kallsyms");
	while (!found && fgets(line, sizeof(line), file))
		if (sscanf(line, "%" SCNx64 " %*c %511s", &address, name) == 2 &&
		    !strcmp(name, wanted))
			found = address;
	fclose(file);
	check(found != 0, wanted);
	return found;
}

/* For this task; its records are never read. */
static void set_breakpoint(uint64_t address)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_BREAKPOINT,
					.size = sizeof(attr),
					.bp_type = HW_BREAKPOINT_X,
					.bp_addr = address,
					.bp_len = sizeof(long),
					.sample_period = 1,
					.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN };

	check(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0) >= 0,
	      "exceptions: perf_event_open");
}

FUNCTION void own_breakpoint(void)
{
	count++;
}

FUNCTION void ask_kernel(void)
{
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(SYS_getppid) : "rcx", "r11", "memory");
	count += (unsigned long)result;
}

FUNCTION void both(void)
{
	ask_kernel();
	BEHIND_CALL();
	own_breakpoint();
	BEHIND_CALL();
	count++;
}

FUNCTION void large_frame(int n)
{
	volatile char bytes[500];

	bytes[n] = 1;
	both();
	BEHIND_CALL();
	count += (unsigned long)bytes[n];
}

/* Writes to READY when it starts. */
FUNCTION void work(int ready)
{
	run_on(1);
	set_breakpoint((uint64_t)(uintptr_t)own_breakpoint);
	set_breakpoint(kernel_address("__x64_sys_getppid"));
	check(write(ready, "", 1) == 1, "exceptions: write");
	for (;;) {
		large_frame(100);
		BEHIND_CALL();
	}
}

/* Closed at the end of the process. */
static void start_work(void)
{
	int ready[2];
	pid_t child;
	char byte;

	check(!pipe(ready), "exceptions: pipe");
	child = fork();
	check(child >= 0, "exceptions: fork");
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		work(ready[1]);
		BEHIND_CALL();
	}
	check(read(ready[0], &byte, 1) == 1, "exceptions: the work does not begin");
}

int main(int argc, char **argv)
{
	int trigger = open("/proc/sysrq-trigger", O_WRONLY);
	unsigned int asked = 0;
	double end;

	check(argc == 2, "usage: exceptions SECONDS");
	check(trigger >= 0, "exceptions: /proc/sysrq-trigger");
	start_work();
	run_on(0);
	for (end = now() + strtod(argv[1], NULL); now() < end || asked < ASKED_MIN; asked++)
		check(write(trigger, "l", 1) == 1, "exceptions: SysRq");
	printf("exceptions: asked %u times\n", asked);
	return 0;
}
