/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the programs that run in guests. */
#ifndef KVMSCOPE_TESTS_RIG_GUEST_GUEST_PROGRAM_H
#define KVMSCOPE_TESTS_RIG_GUEST_GUEST_PROGRAM_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Ends the program with errno's message about WHAT unless OK. */
static inline void check(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

/* Seconds, CLOCK_MONOTONIC. */
static inline double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

#endif
