/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the programs of the user land: functions of similar steps, each called a fixed number
 * of times per round. A step is short compared to the time between two samples, so that samples are
 * independent, and the shares are unequal, so that few samples distinguish them. At its end a
 * process prints what it did,
 *
 *	userland: truth PROCESS NAME=SHARE NAME=SHARE
 *
 * by counting and not by timing, so that stalls of the machine do not matter.
 */
#ifndef KVMSCOPE_TESTS_RIG_GUEST_USERLAND_BUSY_H
#define KVMSCOPE_TESTS_RIG_GUEST_USERLAND_BUSY_H

#ifdef __cplusplus
extern "C" {
#endif

/* Not inlined, cloned or merged with an identical function. */
#define BUSY_FUNCTION __attribute__((noipa))
/* Code after each call prevents tail calls. */
#define BUSY_CALL(call)                                                                            \
	do {                                                                                       \
		call;                                                                              \
		__asm__ volatile("" ::: "memory");                                                 \
	} while (0)

/* In brief's function, in each of its processes; storm reports them. */
#define BUSY_BRIEF_CALLS 1200

struct busy {
	const char *name; /* of the function with the steps */
	void (*run)(void);
	unsigned int times; /* per round */
	unsigned int calls; /* calls of the function in RUN */
};

/*
 * Runs rounds until they contain the number of calls in the program's first argument and take the
 * CPU time in ms in the second one, including its children. On a fast machine the time is the
 * limit, on a stalling one the calls, so both have enough samples. TASKS end with one without a
 * name.
 */
void busy_run(const char *process, const struct busy *tasks, int argc, char **argv);

/* Some thousand dependent steps. */
#define BUSY_STEPS 5000
#define BUSY_SPIN(name)                                                                            \
	void name(void)                                                                            \
	{                                                                                          \
		static volatile unsigned long sum;                                                 \
		for (unsigned long i = 0; i < BUSY_STEPS; i++)                                     \
			sum += i;                                                                  \
	}

#ifdef __cplusplus
}
#endif

#endif
