/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs of the user land have in common: functions of like steps, each called so many
 *times in a round. A step is short beside the time between two samples, so that these tell of
 *different ones, and the shares are unlike: fewer samples tell them. At its end a process says what
 *it did,
 *
 *	userland: truth PROCESS NAME=SHARE NAME=SHARE
 *
 * counted, not timed: a machine that stands still meanwhile changes nothing.
 */
#ifndef KVMSCOPE_TESTS_RIG_GUEST_USERLAND_BUSY_H
#define KVMSCOPE_TESTS_RIG_GUEST_USERLAND_BUSY_H

#ifdef __cplusplus
extern "C" {
#endif

/* Neither inlined, cloned nor merged with one like it. */
#define BUSY_FUNCTION __attribute__((noipa))
/* Behind each call stands something: it is no jump. */
#define BUSY_CALL(call)                                                                            \
	do {                                                                                       \
		call;                                                                              \
		__asm__ volatile("" ::: "memory");                                                 \
	} while (0)

/* Of brief's function, in each of its processes: storm tells of them. */
#define BUSY_BRIEF_CALLS 1200

struct busy {
	const char *name; /* of the function with the steps */
	void (*run)(void);
	unsigned int times; /* in a round */
	unsigned int calls; /* of the function in RUN */
};

/*
 * As many rounds as have the calls that the program's first argument says, and take the processor
 * time that the second does, in ms, with that of its children: a fast machine has the time, one
 * that stands still now and then the calls, and so either has samples enough. TASKS end with one
 * without a name.
 */
void busy_run(const char *process, const struct busy *tasks, int argc, char **argv);

/* Some thousand steps that depend on each other. */
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
