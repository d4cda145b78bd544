/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames SECONDS: user code with known callers, built without frame pointers. It runs for SECONDS
 * and until the work of SECONDS is done, so that a stalling machine has the same number of samples.
 * A third of the time each in
 *
 *	spin_below_frames <- large_frame <- variable_frame <- aligned_frame <- recursive (4) <-
 *	main
 *	spin_in_comparison <- compare <- the C library's sorting <- sort <- main
 *	spin_in_handler <- handle <- the C library's trampoline <- its raise() <- interrupt <-
 *	main
 *
 * Static, linked to its own address range, so that its samples are recognized by address.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/rig/guest/guest_program.h"

#define ROUND 0.02 /* s */

/* Not inlined, cloned or merged with an identical function. */
#define FUNCTION static __attribute__((noipa))

static volatile unsigned long count;

/* Separate functions, so that none has two callers. */
#define SPIN(name)                                                                                 \
	FUNCTION void name(unsigned long loops)                                                    \
	{                                                                                          \
		for (unsigned long i = 0; i < loops; i++)                                          \
			count += i;                                                                \
	}

SPIN(spin_below_frames)
SPIN(spin_in_comparison)
SPIN(spin_in_handler)
SPIN(spin_to_calibrate)

static unsigned long loops; /* about a third of a round each */

/* Code after each call prevents tail calls. */
#define BEHIND_CALL() __asm__ volatile("" ::: "memory")

FUNCTION void large_frame(int n)
{
	volatile char bytes[5000];

	bytes[n] = 1;
	spin_below_frames(loops);
	BEHIND_CALL();
	count += (unsigned long)bytes[n];
}

FUNCTION void variable_frame(int n)
{
	volatile char *bytes = __builtin_alloca((size_t)n * 16);

	bytes[n] = 1;
	large_frame(n);
	BEHIND_CALL();
	count += (unsigned long)bytes[n];
}

FUNCTION void aligned_frame(int n)
{
	_Alignas(64) volatile char bytes[128];

	bytes[n] = 1;
	variable_frame(n);
	BEHIND_CALL();
	count += (unsigned long)bytes[n];
}

FUNCTION void recursive(int n)
{
	if (n)
		recursive(n - 1);
	else
		aligned_frame(20);
	BEHIND_CALL();
	count++;
}

FUNCTION int compare(const void *left, const void *right)
{
	spin_in_comparison(loops / 3);
	BEHIND_CALL();
	return *(const int *)left - *(const int *)right;
}

/*
 * Sorting three numbers in descending order takes three comparisons, with the library's current and
 * former algorithms.
 */
FUNCTION void sort(void)
{
	int numbers[] = { 3, 2, 1 };

	qsort(numbers, 3, sizeof(int), compare);
	BEHIND_CALL();
	count += (unsigned long)numbers[0];
}

FUNCTION void handle(int number)
{
	(void)number;
	spin_in_handler(loops);
	BEHIND_CALL();
	count++;
}

FUNCTION void interrupt(void)
{
	raise(SIGUSR1);
	BEHIND_CALL();
	count++;
}

/* The fastest of several runs, because the machine may stall in one. */
static void calibrate(void)
{
	unsigned long tried = 100000;
	double fastest = 1e9;

	for (int i = 0; i < 5; i++) {
		double begin = now(), took;

		spin_to_calibrate(tried);
		took = now() - begin;
		fastest = took < fastest ? took : fastest;
	}
	loops = (unsigned long)((double)tried * ROUND / 3 / fastest);
}

int main(int argc, char **argv)
{
	double seconds, end;

	if (argc != 2) {
		fprintf(stderr, "usage: frames SECONDS\n");
		return 2;
	}
	signal(SIGUSR1, handle);
	calibrate();
	seconds = strtod(argv[1], NULL);
	end = now() + seconds;
	for (int round = 0; round < seconds / ROUND || now() < end; round++) {
		recursive(3);
		BEHIND_CALL();
		sort();
		BEHIND_CALL();
		interrupt();
		BEHIND_CALL();
	}
	return 0;
}
