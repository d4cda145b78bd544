/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/sample/trigger.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"

#define THREADS 4
#define FIRES   20000u

static bool readable(const struct trigger *trigger)
{
	struct pollfd wake = { .fd = trigger_fd(trigger), .events = POLLIN };

	return poll(&wake, 1, 0) == 1;
}

TEST(trigger, comes_in_order_with_kind_time_and_detail)
{
	struct trigger_event first, second;
	struct trigger *trigger;

	REQUIRE_EQUAL(trigger_create(&trigger), 0);
	CHECK(!readable(trigger));
	CHECK(!trigger_consume(trigger, &first));
	CHECK_EQUAL(trigger_fire(trigger, TRIGGER_CONSOLE_LINE, "Kernel panic"), 1);
	CHECK_EQUAL(trigger_fire(trigger, TRIGGER_RESET, ""), 2);
	CHECK(readable(trigger));
	REQUIRE(trigger_consume(trigger, &first) && trigger_consume(trigger, &second));
	CHECK(!trigger_consume(trigger, &second));
	CHECK_EQUAL(first.number, 1);
	CHECK_EQUAL(first.kind, TRIGGER_CONSOLE_LINE);
	CHECK_STRING(first.detail, "Kernel panic");
	CHECK_EQUAL(second.kind, TRIGGER_RESET);
	CHECK_STRING(second.detail, "");
	CHECK(first.time && second.time >= first.time);
	trigger_destroy(trigger);
}

TEST(trigger, counts_missed_events)
{
	struct trigger_event event;
	struct trigger *trigger;

	REQUIRE_EQUAL(trigger_create(&trigger), 0);
	for (uint64_t i = 1; i <= TRIGGERS_PENDING; i++)
		CHECK_EQUAL(trigger_fire(trigger, TRIGGER_SIGNAL, ""), i);
	CHECK_EQUAL(trigger_fire(trigger, TRIGGER_SIGNAL, ""), 0);
	CHECK_EQUAL(trigger_missed(trigger), 1);
	REQUIRE(trigger_consume(trigger, &event));
	CHECK_EQUAL(trigger_fire(trigger, TRIGGER_SIGNAL, ""), TRIGGERS_PENDING + 1);
	for (uint64_t i = 2; i <= TRIGGERS_PENDING + 1; i++) {
		REQUIRE(trigger_consume(trigger, &event));
		CHECK_EQUAL(event.number, i);
	}
	CHECK(!trigger_consume(trigger, &event));
	trigger_destroy(trigger);
}

TEST(trigger, cuts_long_details_and_leaves_errno_alone)
{
	char text[2 * TRIGGER_DETAIL_SIZE];
	struct trigger_event event;
	struct trigger *trigger;

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	REQUIRE_EQUAL(trigger_create(&trigger), 0);
	errno = EXDEV;
	trigger_fire(trigger, TRIGGER_STEAL, text);
	CHECK_EQUAL(errno, EXDEV);
	REQUIRE(trigger_consume(trigger, &event));
	CHECK_EQUAL(strlen(event.detail), TRIGGER_DETAIL_SIZE - 1);
	trigger_destroy(trigger);
	CHECK_EQUAL(trigger_fire(NULL, TRIGGER_STEAL, text), 0);
}

TEST(trigger, each_kind_has_a_name_of_its_own)
{
	for (int i = 0; i < TRIGGER_KINDS; i++) {
		REQUIRE(trigger_kind_name(i));
		for (int j = 0; j < i; j++)
			CHECK(strcmp(trigger_kind_name(i), trigger_kind_name(j)));
	}
}

struct firing {
	struct trigger *trigger;
	atomic_uint threads_left;
	_Atomic uint64_t asked, fired; /* calls, and those that returned a number */
};

static void fire(struct firing *firing, enum trigger_kind kind, const char *detail)
{
	atomic_fetch_add(&firing->asked, 1);
	if (trigger_fire(firing->trigger, kind, detail))
		atomic_fetch_add(&firing->fired, 1);
}

static void *fire_many(void *argument)
{
	struct firing *firing = argument;

	for (unsigned int i = 0; i < FIRES; i++)
		fire(firing, TRIGGER_EXIT_RATE, "of a thread");
	atomic_fetch_sub(&firing->threads_left, 1);
	return NULL;
}

static struct firing *interrupted;

static void fire_from_handler(int signal)
{
	fire(interrupted, TRIGGER_SIGNAL, "of a handler");
}

/* Checks that each event is complete, and the next one in order. */
static void check_event(const struct trigger_event *event, uint64_t number)
{
	CHECK_EQUAL(event->number, number);
	CHECK_STRING(event->detail, event->kind == TRIGGER_SIGNAL ? "of a handler" : "of a thread");
}

TEST(trigger, loses_none_of_many_threads_and_of_handlers_over_them)
{
	struct itimerval often = { { 0, 200 }, { 0, 200 } }, never = { 0 };
	struct sigaction action = { .sa_handler = fire_from_handler }, before;
	struct firing firing = { .threads_left = THREADS };
	pthread_t threads[THREADS];
	struct trigger_event event;
	uint64_t taken = 0;

	REQUIRE_EQUAL(trigger_create(&firing.trigger), 0);
	interrupted = &firing;
	sigaction(SIGALRM, &action, &before);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, fire_many, &firing);
	while (atomic_load(&firing.threads_left))
		while (trigger_consume(firing.trigger, &event))
			check_event(&event, ++taken);
	setitimer(ITIMER_REAL, &never, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	while (trigger_consume(firing.trigger, &event))
		check_event(&event, ++taken);
	sigaction(SIGALRM, &before, NULL);
	CHECK_EQUAL(taken, atomic_load(&firing.fired));
	CHECK_EQUAL(taken + trigger_missed(firing.trigger), atomic_load(&firing.asked));
	trigger_destroy(firing.trigger);
}
