// SPDX-License-Identifier: Apache-2.0
/* The ring's writer interrupted by its own signal handlers: at every instruction, and at random while a
 * reader reads. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>

#include "shared/local_atomic.h"
#include "shared/ring.h"
#include "tests/unit/ring_records.h"
#include "tests/unit/shim/test.h"

#ifdef __x86_64__

/* One run: the handler works at the STOPth instruction of the writer's. */
static struct {
	struct ring *ring;
	struct tally *tally;
	uint64_t instruction, stop;
	uint64_t produced;
	int interference;
} step;

enum interference { COMMIT, DISCARD, DISCARD_UNDER_COMMIT, PUBLISH, TOO_LARGE, READ, INTERFERENCES };

static void interfere(void)
{
	void *below;

	switch (step.interference) {
	case COMMIT:
	case DISCARD:
		produce(step.ring, RECORD_HANDLER, step.produced++, 2, step.interference == DISCARD);
		break;
	case DISCARD_UNDER_COMMIT:
		below = ring_reserve(step.ring, RECORD_HANDLER, 24);
		produce(step.ring, RECORD_HANDLER, step.produced, 1, false);
		ring_discard(step.ring, below);
		step.produced += 2;
		break;
	case PUBLISH:
		ring_publish(step.ring);
		break;
	case TOO_LARGE:
		ring_commit(step.ring, ring_reserve(step.ring, RECORD_HANDLER, SIZE_MAX));
		step.produced++;
		break;
	case READ:
		produce(step.ring, RECORD_HANDLER, step.produced++, 2, false);
		ring_publish(step.ring);
		read_all(step.ring, step.tally);
		break;
	}
}

static void on_step(int signal, siginfo_t *info, void *context)
{
	ucontext_t *interrupted = context;

	(void)signal;
	(void)info;
	if (step.instruction++ < step.stop)
		return;
	interrupted->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
	interfere();
}

enum operation {
	RESERVE_OUTER,
	RESERVE_TOO_LARGE,
	WRITE_BEHIND,
	DISCARD_OUTER,
	WRITE,
	DISCARD_NEWEST,
	PUBLISH_ALL,
	OPERATIONS
};

#define RESERVED_BY_OPERATIONS 5

static void operate(struct ring *ring, int operation, void **outer)
{
	switch (operation) {
	case RESERVE_OUTER:
		*outer = ring_reserve(ring, RECORD_THREAD, 24);
		break;
	case RESERVE_TOO_LARGE:
		ring_commit(ring, ring_reserve(ring, RECORD_THREAD, SIZE_MAX));
		break;
	case WRITE_BEHIND:
	case WRITE:
		produce(ring, RECORD_THREAD, operation, 0, false);
		break;
	case DISCARD_OUTER:
		ring_discard(ring, *outer);
		break;
	case DISCARD_NEWEST:
		ring_discard(ring, ring_reserve(ring, RECORD_THREAD, 24));
		break;
	case PUBLISH_ALL:
		ring_publish(ring);
		break;
	}
}

/* All operations, one of them interrupted. False once that ended before the STOPth instruction. */
static bool run_interrupted_at(uint64_t stop, int interrupted, int interference)
{
	struct ring_options options = { .size = RING_SIZE_MIN, .batch = 32 };
	struct tally tally = { 0 };
	void *outer = NULL;

	step.stop = stop;
	step.instruction = 0;
	step.produced = 0;
	step.interference = interference;
	step.tally = &tally;
	if (ring_create_with(&step.ring, &options))
		return false;
	for (int operation = 0; operation < OPERATIONS; operation++) {
		if (operation == interrupted)
			trap_on();
		operate(step.ring, operation, &outer);
		trap_off();
		read_all(step.ring, &tally);
	}
	ring_flush(step.ring);
	read_all(step.ring, &tally);
	check_sum(step.ring, RESERVED_BY_OPERATIONS + step.produced, &tally);
	ring_destroy(step.ring);
	return step.instruction > stop;
}

TEST(ring, handler_may_come_at_every_instruction)
{
	struct sigaction action = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO }, before;
	uint64_t stop;

#if !LOCAL_ATOMIC_ASSEMBLY
	SKIP("ThreadSanitizer delays signals, so none comes between two instructions");
#endif
	sigaction(SIGTRAP, &action, &before);
	for (int interference = 0; interference < INTERFERENCES; interference++) {
		for (int operation = 0; operation < OPERATIONS; operation++) {
			for (stop = 0; run_interrupted_at(stop, operation, interference);
			     stop += RING_STEP_STRIDE)
				;
			/* Each is some ten instructions; fewer means that nothing trapped. */
			CHECK(stop > 10);
		}
	}
	sigaction(SIGTRAP, &before, NULL);
}

#endif

/* Stress: a writer, timers that interrupt it, and a reader on its own thread. */
static struct {
	struct ring *ring;
	uint64_t seconds;
	uint64_t by_thread;
	volatile uint64_t by_handler; /* only by the handlers, which block each other */
	bool writer_done;
	struct tally tally;
} stress;

static void on_timer(int signal)
{
	uint64_t number = stress.by_handler;

	(void)signal;
	produce(stress.ring, RECORD_HANDLER, number, number % 61, number % 7 == 0);
	stress.by_handler = number + 1;
}

static void *stress_writer(void *unused)
{
	timer_t timer = start_timer(50 * 1000);
	double end = now() + stress.seconds;
	uint64_t number = 0;

	(void)unused;
	do {
		for (int i = 0; i < 1000; i++, number++) {
			uint64_t words = number % 512 == 0 ? 2000 : number % 37;

			produce(stress.ring, RECORD_THREAD, number, words, number % 5 == 0);
		}
		ring_flush(stress.ring);
	} while (now() < end);
	timer_delete(timer);
	stress.by_thread = number;
	__atomic_store_n(&stress.writer_done, true, __ATOMIC_RELEASE);
	return NULL;
}

static void *stress_reader(void *unused)
{
	bool done;

	(void)unused;
	do {
		done = __atomic_load_n(&stress.writer_done, __ATOMIC_ACQUIRE);
		read_all(stress.ring, &stress.tally);
	} while (!done);
	return NULL;
}

TEST(ring, stress_with_signals_and_a_reader)
{
	struct sigaction action = { .sa_handler = on_timer }, before;
	pthread_t writer, reader;

	memset(&stress, 0, sizeof(stress));
	stress.seconds = getenv("RING_STRESS_SECONDS") ? atoi(getenv("RING_STRESS_SECONDS")) : 2;
	REQUIRE_EQUAL(ring_create(&stress.ring, RING_SIZE_MIN), 0);
	sigaction(SIGUSR1, &action, &before);
	pthread_create(&reader, NULL, stress_reader, NULL);
	pthread_create(&writer, NULL, stress_writer, NULL);
	pthread_join(writer, NULL);
	pthread_join(reader, NULL);
	ring_flush(stress.ring);
	read_all(stress.ring, &stress.tally);
	check_sum(stress.ring, stress.by_thread + stress.by_handler, &stress.tally);
	CHECK(stress.by_handler > 100);
	ring_destroy(stress.ring);
	sigaction(SIGUSR1, &before, NULL);
}
