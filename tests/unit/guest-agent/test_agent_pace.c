/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rate at which the agent sends tables, by a clock that the test sets: the size of a part, the
 * pause after it, and that other messages precede it. The requests are for this program's own
 * table.
 */
#include "tests/unit/agent_set_clock.h"

#include "guest-agent/table_sender.c"

#include <fcntl.h>

#include "tests/unit/shim/test.h"

#define RATE_SAID (2u << 20)                /* bytes a second: docs/man/kvmscope-agent.1 */
#define LOOKED_AT (10u * TABLE_INTERVAL_MS) /* ms */
#define CALLS     3                         /* in each of them */

static struct output output;

static void set_up(void)
{
	set_clock.ms = 1000000;
	set_clock.cpu = set_clock.cpu_add = 0;
	table_cancel();
	table.due = 0;
	output_open(&output, open("/dev/null", O_WRONLY | O_CLOEXEC));
}

static void tear_down(void)
{
	table_cancel();
	close(output.fd);
}

/* By the build id that it has, with the bits of CHANGED changed. */
static void ask_for_this_program(uint8_t changed)
{
	static struct {
		struct agent_message message;
		struct agent_request ask;
		char path[PATH_MAX - 8];
	} __attribute__((packed, aligned(8))) question;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	ssize_t length = readlink("/proc/self/exe", question.path, sizeof(question.path) - 1);

	CHECK(length > 0);
	question.path[length] = '\0';
	question.message =
		(struct agent_message){ .size = sizeof(question), .type = AGENT_REQUEST };
	question.ask =
		(struct agent_request){ .kind = AGENT_TABLE_SYMBOLS, .pid = (uint32_t)getpid() };
	question.ask.build_id_size = (uint32_t)build_id_read(fd, question.ask.build_id);
	CHECK(question.ask.build_id_size);
	question.ask.build_id[0] ^= changed;
	close(fd);
	table_request(&question.message, &output);
}

/* Of this answer, before it is compressed. */
static uint64_t taken(void)
{
	return table.stream.total_in + table.stream.avail_in;
}

/* Called as often as a busy session does. True: something was to be sent. */
static bool step_in_this_ms(void)
{
	bool any = false;

	for (int i = 0; i < CALLS; i++) {
		any |= table_step(&output);
		CHECK_EQUAL(output_flush(&output), 0);
	}
	return any;
}

TEST(agent_pace, tables_respect_the_rate_limit)
{
	uint64_t begun, latest = 0;

	CHECK(TABLE_RATE <= RATE_SAID);
	set_up();
	ask_for_this_program(0);
	for (begun = set_clock.ms; set_clock.ms < begun + LOOKED_AT; set_clock.ms++) {
		uint64_t before = taken();

		if (!step_in_this_ms())
			continue;
		CHECK(!latest || set_clock.ms >= latest + TABLE_INTERVAL_MS);
		CHECK(!latest || taken() <= before + TABLE_PART);
		latest = set_clock.ms;
		CHECK(taken() <= TABLE_PART + (set_clock.ms - begun) * RATE_SAID / 1000);
	}
	/* The table is longer than what there was time for. */
	CHECK(table.sending);
	CHECK(taken() > (uint64_t)LOOKED_AT * TABLE_RATE / 1000 / 2);
	tear_down();
}

/* One request after the other: a short answer makes none faster. */
TEST(agent_pace, errors_come_no_faster_than_tables)
{
	unsigned int answers = 0;

	set_up();
	for (uint64_t begun = set_clock.ms; set_clock.ms < begun + LOOKED_AT; set_clock.ms++) {
		if (table_due() == UINT64_MAX)
			ask_for_this_program(1);
		answers += step_in_this_ms();
		CHECK(!table.sending);
	}
	CHECK(answers > 5);
	CHECK(answers <= LOOKED_AT / TABLE_INTERVAL_MS + 1);
	tear_down();
}

TEST(agent_pace, the_pause_after_a_part_is_four_times_its_cpu_time)
{
	set_up();
	ask_for_this_program(0);
	set_clock.cpu_add = 10 * 1000000;
	CHECK(table_step(&output));
	CHECK_EQUAL(output_flush(&output), 0);
	CHECK_EQUAL(table_due(), set_clock.ms + 40);
	set_clock.ms += 39;
	CHECK(!table_step(&output));
	set_clock.ms++;
	CHECK(table_step(&output));
	tear_down();
}

TEST(agent_pace, tables_wait_for_all_other_messages)
{
	set_up();
	ask_for_this_program(0);
	CHECK(output_message(&output, AGENT_PONG, sizeof(struct agent_pong)) != NULL);
	set_clock.ms += 10 * TABLE_INTERVAL_MS;
	CHECK(!table_step(&output));
	CHECK_EQUAL(output_flush(&output), 0);
	CHECK(table_step(&output));
	tear_down();
}
