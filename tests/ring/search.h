/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the ring's own code through every order in which its threads can take their steps.
 *
 * The sources in shared/ring*.c and the scenario are compiled with -fsanitize=thread, so that the
 * compiler inserts a call before each access to memory, plain and atomic. The called functions are
 * our own (runtime.c), not ThreadSanitizer's. Each thread of a scenario runs on its own stack and
 * stops before each access to the ring's shared memory. The search then continues with every thread
 * that could be next, delivers a signal to the writer wherever one may arrive, and with store
 * buffers applies the oldest store of a thread's buffer (the x86 model: SDM vol. 3A 9.2.2; loads
 * pass stores, nothing else).
 *
 * A state is the shared memory, the allocations of the ring and the scenario, and the threads'
 * stacks. It is restored for each possible next step. A state that was visited before (by a 64-bit
 * hash) is not searched again. So all interleavings are covered, without a bound on thread
 * switches; their number is counted. Bounded are the scenarios themselves, the number of signals,
 * and the stores that wait in a buffer.
 *
 * Reduction: an access that no other thread can observe (the writer's private words, which matter
 * to its handler) is no point for a thread switch, since it commutes with all steps of the others.
 *
 * x86-64 only: nothing is proven for weaker memory models.
 */
#ifndef KVMSCOPE_TESTS_RING_SEARCH_H
#define KVMSCOPE_TESTS_RING_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEARCH_THREADS 4

struct scenario {
	const char *name;
	/* Runs alone, before the threads start. */
	void (*setup)(void);
	/* The first is the writer; the list ends with NULL. */
	void (*threads[SEARCH_THREADS])(void);
	/* Runs on top of the writer, SIGNALS times, at any of its steps, also nested. */
	void (*handler)(void);
	int signals;
	/*
	 * Number of stores that may wait in each thread's buffer, at most 24; 0: each is visible at
	 * once.
	 */
	int store_buffers;
	/* Number of a thread that may be killed at any of its steps; 0: none. */
	int mortal;
	/*
	 * May be NULL. Runs alone, on the memory that the writer would leave if it were killed in
	 * this state.
	 */
	void (*killed)(void);
	/* Runs alone, after all threads. */
	void (*end)(void);
	/* The scenario's variables, which are restored with each state. */
	void *state;
	size_t state_size;
};

struct search_result {
	uint64_t states;
	double interleavings; /* exact up to 2^53 */
	bool failed;
};

/* Stops at the first failure and prints the steps that led there. Only one search at a time. */
void search(const struct scenario *scenario, struct search_result *result);

/*
 * Called by the scenario, from anywhere: this order of steps broke something. Does not return if a
 * thread runs.
 */
void search_fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition))                                                                  \
			search_fail(__FILE__, __LINE__, "not true: %s", #condition);               \
	} while (0)

#define EXPECT_EQUAL(actual, expected)                                                             \
	do {                                                                                       \
		unsigned long long expect_actual = (actual), expect_expected = (expected);         \
                                                                                                   \
		if (expect_actual != expect_expected)                                              \
			search_fail(__FILE__, __LINE__, "%s is %llu, expected %llu", #actual,      \
				    expect_actual, expect_expected);                               \
	} while (0)

/*
 * For runtime.c: the running thread is about to access SIZE bytes at ADDRESS. An update is one
 * instruction. The writer's updates are not locked (shared/local_atomic.h), so they go through the
 * store buffer. Locked accesses and fences wait until it is empty.
 */
enum search_access {
	SEARCH_LOAD,
	SEARCH_STORE,
	SEARCH_UPDATE,
	SEARCH_LOCKED,
	SEARCH_FENCE,
	SEARCH_WAIT
};
void search_point(const volatile void *address, size_t size, enum search_access access);

/* Suspends the running thread until READY returns true. */
void search_wait(bool (*ready)(void));

/* The number of the running thread; -1 if the scenario's functions run alone. */
int search_thread(void);

/*
 * In runtime.c: what the kernel does when a thread is killed; -1: the code that ran outside any
 * thread.
 */
void world_died(int thread);

/*
 * Memory that is restored with each state; the ring's shared memory as a ring maps it: header,
 * data, and data again.
 */
void *search_allocate(size_t size);
void *search_shared(void);

#endif
