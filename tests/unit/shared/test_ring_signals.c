/* SPDX-License-Identifier: Apache-2.0 */
/* The ring's writer interrupted by its own signal handler at every instruction. At random, beside
 * readers: test_ring_stress.c. */
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

enum interference {
	COMMIT,
	DISCARD,
	DISCARD_UNDER_COMMIT,
	PUBLISH,
	TOO_LARGE,
	READ,
	INTERFERENCES
};

static void interfere(void)
{
	void *below;

	switch (step.interference) {
	case COMMIT:
	case DISCARD:
		produce(step.ring, RECORD_HANDLER, step.produced++, 2,
			step.interference == DISCARD);
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
