/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog's rules for stuck vCPUs, exit rate and steal, on invented readings. */
#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/cli/run_triggers.h"
#include "vmm/sample/watchdog.h"

#define MS 1000000ull

struct dog {
	struct watchdog_state state;
	struct watchdog_limits limits;
	struct vcpu_reading now;
	struct watchdog_alarm alarms[WATCHDOG_ALARMS_MAX];
};

/* A tenth of a second passes. */
static unsigned int step(struct dog *dog, uint64_t ran_ms, uint64_t waited_ms, uint64_t exits)
{
	dog->now.time += 100 * MS;
	dog->now.ran += ran_ms * MS;
	dog->now.waited += waited_ms * MS;
	dog->now.exits += exits;
	return watchdog_judge(&dog->state, &dog->limits, 3, &dog->now, dog->alarms);
}

static unsigned int steps(struct dog *dog, int count, uint64_t ran_ms, uint64_t waited_ms,
			  uint64_t exits)
{
	unsigned int alarms = 0;

	for (int i = 0; i < count; i++)
		alarms += step(dog, ran_ms, waited_ms, exits);
	return alarms;
}

TEST(watchdog, a_vcpu_that_runs_without_an_exit_is_stuck)
{
	struct dog dog = { .limits.stuck = 450 };

	CHECK_EQUAL(step(&dog, 70, 0, 10), 0);
	CHECK_EQUAL(steps(&dog, 4, 100, 0, 0), 0);
	REQUIRE_EQUAL(step(&dog, 100, 0, 0), 1);
	CHECK_EQUAL(dog.alarms[0].kind, TRIGGER_STUCK_VCPU);
	CHECK_STRING(dog.alarms[0].detail,
		     "vCPU 3 ran for 500 ms without an exit; the limit is 450");
	/* Reported once, until it has moved. */
	CHECK_EQUAL(steps(&dog, 50, 100, 0, 0), 0);
	CHECK_EQUAL(step(&dog, 100, 0, 1), 0);
	CHECK_EQUAL(steps(&dog, 4, 100, 0, 0), 0);
	CHECK_EQUAL(step(&dog, 100, 0, 0), 1);
}

TEST(watchdog, an_idle_vcpu_is_not_stuck)
{
	struct dog dog = { .limits.stuck = 200 };

	CHECK_EQUAL(steps(&dog, 100, 0, 0, 0), 0);   /* halted */
	CHECK_EQUAL(steps(&dog, 100, 0, 100, 0), 0); /* waits for a CPU */
	CHECK_EQUAL(steps(&dog, 100, 100, 0, 1), 0); /* runs, and exits */
	CHECK_EQUAL(steps(&dog, 19, 10, 90, 0), 0);
	CHECK_EQUAL(step(&dog, 10, 90, 0), 1); /* runs rarely, 200 ms in total */
}

/* An exit for an interrupt counts as the guest's own while the host has the CPU, and not
 * afterwards. */
TEST(watchdog, miscounted_exits_are_undone)
{
	struct dog dog = { .limits = { .stuck = 450, .exits = 1000 } };

	CHECK_EQUAL(step(&dog, 70, 0, 10), 0);
	CHECK_EQUAL(step(&dog, 100, 0, 1), 0);
	CHECK_EQUAL(step(&dog, 100, 0, -1ull), 0);
	CHECK_EQUAL(step(&dog, 100, 0, 1), 0);
	CHECK_EQUAL(step(&dog, 100, 0, 0), 0);
	REQUIRE_EQUAL(step(&dog, 100, 0, -1ull), 1);
	CHECK_EQUAL(dog.alarms[0].kind, TRIGGER_STUCK_VCPU);
	CHECK_STRING(dog.alarms[0].detail,
		     "vCPU 3 ran for 500 ms without an exit; the limit is 450");
	/* It is still stuck; and a lower count at the end of a second than at its start is not a
	 * rate. */
	CHECK_EQUAL(steps(&dog, 4, 100, 0, 0) + step(&dog, 100, 0, 1), 0);
	CHECK_EQUAL(step(&dog, 100, 0, -1ull) + steps(&dog, 9, 100, 0, 0), 0);
}

TEST(watchdog, exits_are_counted_over_a_second)
{
	struct dog dog = { .limits.exits = 1000 };

	CHECK_EQUAL(step(&dog, 0, 0, 123456), 0); /* those before the first reading */
	CHECK_EQUAL(steps(&dog, 50, 100, 0, 100), 0);
	CHECK_EQUAL(steps(&dog, 10, 100, 0, 101), 1);
	CHECK_EQUAL(dog.alarms[0].kind, TRIGGER_EXIT_RATE);
	CHECK_STRING(dog.alarms[0].detail, "vCPU 3 made 1010 exits/s; the limit is 1000");
	CHECK_EQUAL(steps(&dog, 50, 100, 0, 101), 0); /* still */
	CHECK_EQUAL(steps(&dog, 10, 100, 0, 0), 0);
	CHECK_EQUAL(steps(&dog, 10, 100, 0, 5000), 1); /* again */
	/* A burst within a second of few. */
	CHECK_EQUAL(steps(&dog, 10, 100, 0, 0), 0);
	CHECK_EQUAL(step(&dog, 100, 0, 900), 0);
	CHECK_EQUAL(steps(&dog, 29, 100, 0, 0), 0);
}

TEST(watchdog, steal_is_the_share_of_a_second_in_which_it_waited)
{
	struct dog dog = { .limits.steal = 30 };

	step(&dog, 100, 5000, 0);
	CHECK_EQUAL(steps(&dog, 50, 70, 30, 0), 0);
	CHECK_EQUAL(steps(&dog, 10, 60, 40, 0), 1);
	CHECK_EQUAL(dog.alarms[0].kind, TRIGGER_STEAL);
	CHECK_STRING(dog.alarms[0].detail,
		     "vCPU 3 waited 40 % of a second for a CPU of the host; the limit is 30 %");
	CHECK_EQUAL(steps(&dog, 50, 60, 40, 0), 0);
}

TEST(watchdog, several_alarms_at_once)
{
	struct dog dog = { .limits = { .stuck = 1000, .exits = 1, .steal = 1 } };

	step(&dog, 0, 0, 0);
	CHECK_EQUAL(steps(&dog, 10, 50, 50, 3), 2);
	CHECK_EQUAL(steps(&dog, 19, 50, 50, 0), 0);
	CHECK_EQUAL(steps(&dog, 1, 50, 50, 0), 1); /* stuck, and still waiting */
}

static void check_refused(const char *text, const char *reason)
{
	struct trigger_options options = { 0 };

	CHECK_EQUAL(trigger_options_add(&options, text), -22);
	if (!strstr(error_message(), reason))
		FAIL_TEST("--trigger %s is refused with '%s', not '%s'", text, error_message(),
			  reason);
	CHECK_EQUAL(options.line_count, 0);
	CHECK(!trigger_options_have_limits(&options));
}

TEST(watchdog, triggers_are_read_from_the_command_line)
{
	struct trigger_options options = { 0 };

	CHECK(!trigger_options_have_limits(&options));
	CHECK_EQUAL(trigger_options_add(&options, "stuck=500"), 0);
	CHECK_EQUAL(options.limits.stuck, 500);
	CHECK_EQUAL(trigger_options_add(&options, "stuck=2000ms"), 0);
	CHECK_EQUAL(options.limits.stuck, 2000);
	CHECK_EQUAL(trigger_options_add(&options, "exits=200000/s"), 0);
	CHECK_EQUAL(options.limits.exits, 200000);
	CHECK_EQUAL(trigger_options_add(&options, "steal=50%"), 0);
	CHECK_EQUAL(options.limits.steal, 50);
	CHECK_EQUAL(trigger_options_add(&options, "console=^(BUG|Oops): \\[a=b"), 0);
	CHECK_EQUAL(options.line_count, 1);
	CHECK(!regexec(&options.lines[0], "Oops: [a=b] here", 0, NULL, 0));
	CHECK(regexec(&options.lines[0], "no Oops: [a=b", 0, NULL, 0));
	trigger_options_free(&options);

	check_refused("stuck", "a number from 20 to 3600000");
	check_refused("stuck=", "a number from 20 to 3600000");
	check_refused("stuck=5", "a number from 20 to 3600000");
	check_refused("stuck=500s", "with or without 'ms'");
	check_refused("exits=-1", "a number from 1");
	check_refused("steal=100%", "a number from 1 to 99");
	check_refused("steal=50%%", "a number from 1 to 99");
	check_refused("console", "the expression is missing");
	check_refused("console=(", "console=(: ");
	check_refused("console=(a)\\1", "back references");
	check_refused("stuc=5", "there are stuck=MS");
	check_refused("", "there are stuck=MS");
}
