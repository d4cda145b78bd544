/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the ring's own code through every order in which its threads can take
 * their steps.
 *
 * The sources in shared/ring*.c and the scenario are compiled with
 * -fsanitize=thread, so that the compiler calls us before each access to
 * memory, plain and atomic; but what it calls is our own (runtime.c), not
 * ThreadSanitizer. Each thread of a scenario runs on a stack of its own, and
 * stops before each access to the ring's shared memory. The search then goes on
 * with every thread that could be next, delivers a signal to the writer where
 * it may come, and with store buffers takes out the oldest store of a thread's
 * buffer (the model of x86: SDM vol. 3A 9.2.2; stores pass loads, nothing else).
 *
 * A state is the shared memory, what the ring and the scenario allocated, and
 * the threads' stacks. It is put back for each thing that can come next, and
 * one that was seen before (by a hash of 64 bits) is not searched again. So all
 * interleavings are covered, without a bound on the changes of threads; how
 * many there are is counted. Bounded are the scenarios themselves, the number
 * of signals, and the stores that wait in a buffer.
 *
 * Reduction: an access that no other thread can see (the writer's private
 * words, which matter to its handler) is no place to change threads, as it
 * changes places with all that the others do.
 *
 * x86-64 only. Of weaker machines it says nothing.
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
	/* Runs on top of the writer, SIGNALS times, at any of its steps, also on top of itself. */
	void (*handler)(void);
	int signals;
	/* So many stores may wait in each thread's buffer, 24 at most; 0: each is seen at once. */
	int store_buffers;
	/* This thread, unless 0, may be killed at any of its steps. */
	int mortal;
	/* Or NULL. Runs alone, on what the writer would leave if it were killed in this state. */
	void (*killed)(void);
	/* Runs alone, after all threads. */
	void (*end)(void);
	/* Variables of the scenario, which are put back like the ring's. */
	void *state;
	size_t state_size;
};

struct search_result {
	uint64_t states;
	double interleavings; /* exact up to 2^53 */
	bool failed;
};

/* Stops at the first failure, and prints the steps that led there. Not more than one at a time. */
void search(const struct scenario *scenario, struct search_result *result);

/* By the scenario, from anywhere: this order of steps broke something. Does not return from a
 * thread. */
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
 * For runtime.c: the running thread is about to access SIZE bytes at ADDRESS.
 * An update is one instruction; the writer's is not locked (shared/local_atomic.h),
 * so it goes through the store buffer. What is locked, and a fence, waits until that is empty.
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

/* The running thread goes on when READY says so. */
void search_wait(bool (*ready)(void));

/* The number of the running thread; -1 if the scenario's functions run alone. */
int search_thread(void);

/* By runtime.c: what the kernel does when a thread was killed; -1: whoever came while none ran. */
void world_died(int thread);

/* Memory that is put back; the ring's shared memory, as a ring maps it: header, data, data again.
 */
void *search_allocate(size_t size);
void *search_shared(void);

#endif
