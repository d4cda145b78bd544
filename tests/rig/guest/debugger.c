/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses debug registers like gdb's hardware watchpoints, but without gdb: a process whose debug
 * registers another one sets by ptrace (PTRACE_POKEUSER of u_debugreg), and which stops at each
 * access.
 *
 *	debugger write VARIABLES COUNT
 *		the traced process described below, for another debugger (gdb-watch)
 *	debugger COUNT STOPS
 *		with 1, 2, 3 and 4 watched variables: the process writes COUNT times to them in
 *		turn, and after each write once to /proc/sys/kernel/panic, which is the
 *		kernel's variable panic_timeout. Then COUNT times to that one alone, without
 *		watchpoints. For the first STOPS writes the debugger is attached and checks
 *		DR6; then it leaves its watchpoints to the process (PTRACE_DETACH keeps them),
 *		which gets its SIGTRAP itself: that saves two context switches, each of which
 *		writes all debug registers.
 *
 * Prints for each number of variables:
 *
 *	debugger: 3 watchpoints hit 3334 3333 3333 of 10000, 0 others
 *
 * A hit counts for the variable that was written last, once, and only if DR6 names it alone; others
 * are all unexpected hits.
 *
 * Static.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/rig/guest/guest_program.h"

#define WATCHPOINTS 4

/* SDM vol. 3B 18.2.4: L of SLOT, and R/W = 1 (write), LEN = 2 (8 bytes) for it. */
#define DR7_WATCH(slot) (1ul << 2 * (slot) | 9ul << (16 + 4 * (slot)))
#define DR6_SLOTS       0xful

/* Shared by both processes; only one of them runs at a time. */
static struct counts {
	unsigned long hits[WATCHPOINTS], others;
	unsigned int current; /* the variable that is being written */
	bool due;             /* its hit has not arrived yet */
} * counts;

static volatile uint64_t watched[WATCHPOINTS];

static int open_panic_timeout(void)
{
	int file = open("/proc/sys/kernel/panic", O_WRONLY);

	check(file >= 0, "/proc/sys/kernel/panic");
	return file;
}

static void write_panic_timeout(int file, unsigned int value)
{
	char number[16];
	int length = snprintf(number, sizeof(number), "%u", value);

	check(pwrite(file, number, (size_t)length, 0) == length, "/proc/sys/kernel/panic");
}

static void count_hit(bool right)
{
	if (!right || !counts->due) {
		counts->others++;
		return;
	}
	counts->due = false;
	counts->hits[counts->current]++;
}

static void on_trap(int signal, siginfo_t *information, void *context)
{
	(void)signal;
	(void)context;
	count_hit(information->si_code == TRAP_HWBKPT);
}

/*
 * Each value differs from the one before: gdb continues silently after a write of the same value.
 */
static void write_in_turn(unsigned int variables, unsigned int count)
{
	int file = open_panic_timeout();

	for (unsigned int i = 0; i < count; i++) {
		counts->current = i % variables;
		__atomic_store_n(&counts->due, true, __ATOMIC_SEQ_CST);
		watched[i % variables] = i + 1;
		write_panic_timeout(file, i + 1);
	}
}

static void be_debugged(unsigned int watchpoints, unsigned int count)
{
	struct sigaction trap = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };

	sigaction(SIGTRAP, &trap, NULL);
	check(!ptrace(PTRACE_TRACEME), "PTRACE_TRACEME");
	raise(SIGSTOP);
	write_in_turn(watchpoints, count);
	_exit(0);
}

static void set_debug_register(pid_t child, unsigned int number, unsigned long value)
{
	check(!ptrace(PTRACE_POKEUSER, child, offsetof(struct user, u_debugreg[number]), value),
	      "PTRACE_POKEUSER of a debug register");
}

/* As gdb does it: reads DR6 and clears it for the next stop. */
static unsigned long read_dr6(pid_t child)
{
	long value = ptrace(PTRACE_PEEKUSER, child, offsetof(struct user, u_debugreg[6]), 0);

	set_debug_register(child, 6, 0);
	return (unsigned long)value & DR6_SLOTS;
}

static pid_t start(unsigned int watchpoints, unsigned int count)
{
	unsigned long dr7 = 0;
	pid_t child = fork();
	int status;

	check(child >= 0, "fork");
	if (!child)
		be_debugged(watchpoints, count);
	check(waitpid(child, &status, 0) == child && WIFSTOPPED(status), "a child to debug");
	for (unsigned int i = 0; i < watchpoints; i++) {
		set_debug_register(child, i, (unsigned long)&watched[i]);
		dr7 |= DR7_WATCH(i);
	}
	set_debug_register(child, 7, dr7);
	return child;
}

static void stop_at_each(pid_t child, unsigned int stops)
{
	int status;

	for (unsigned int i = 0; i < stops; i++) {
		check(!ptrace(PTRACE_CONT, child, 0, 0), "PTRACE_CONT");
		check(waitpid(child, &status, 0) == child && WIFSTOPPED(status),
		      "a child that stops");
		count_hit(WSTOPSIG(status) == SIGTRAP && read_dr6(child) == 1ul << counts->current);
	}
	check(!ptrace(PTRACE_DETACH, child, 0, 0), "PTRACE_DETACH");
}

static void debug(unsigned int watchpoints, unsigned int count, unsigned int stops)
{
	pid_t child;
	int status;

	*counts = (struct counts){ 0 };
	child = start(watchpoints, count);
	stop_at_each(child, stops);
	check(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status),
	      "the end of the child");
	printf("debugger: %u watchpoints hit", watchpoints);
	for (unsigned int i = 0; i < watchpoints; i++)
		printf(" %lu", counts->hits[i]);
	printf(" of %u, %lu others\n", count, counts->others);
}

static int write_for_debugger(unsigned int variables, unsigned int count)
{
	check(variables >= 1 && variables <= WATCHPOINTS, "a number of variables from 1 to 4");
	write_in_turn(variables, count);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned int count = argc > 2 ? (unsigned int)atoi(argv[1]) : 0;
	unsigned int stops = argc > 2 ? (unsigned int)atoi(argv[2]) : 0;
	int file = open_panic_timeout();

	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	check(counts != MAP_FAILED, "shared memory");
	if (argc > 3 && !strcmp(argv[1], "write"))
		return write_for_debugger((unsigned int)atoi(argv[2]), (unsigned int)atoi(argv[3]));
	if (!count || stops > count) {
		fprintf(stderr, "usage: debugger COUNT STOPS, or debugger write VARIABLES COUNT\n");
		return 2;
	}
	for (unsigned int watchpoints = 1; watchpoints <= WATCHPOINTS; watchpoints++)
		debug(watchpoints, count, stops);
	for (unsigned int i = 0; i < count; i++)
		write_panic_timeout(file, i + 1);
	return 0;
}
