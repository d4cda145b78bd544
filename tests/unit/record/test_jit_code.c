/* SPDX-License-Identifier: Apache-2.0 */
/* Which function was at an address at a time, by scans of maps. */
#include "vmm/record/jit_code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/shim/test.h"

#define MS  1000000ull
#define PID 42u

static void map(struct jit_code *code, uint16_t flags, uint64_t since, uint64_t time)
{
	struct sideband_jit_map record = {
		.head = sideband_head(SIDEBAND_JIT_MAP, sizeof(record), time, PID), .since = since
	};

	record.head.flags = flags;
	jit_code_apply(code, &record.head);
}

static void line(struct jit_code *code, uint64_t start, uint64_t length, const char *name,
		 uint64_t since, uint64_t time)
{
	uint64_t bytes[64] = { 0 };
	struct sideband_jit_code *record = (struct sideband_jit_code *)bytes;

	record->head =
		sideband_head(SIDEBAND_JIT_CODE, sideband_size(sizeof(*record), name), time, PID);
	record->start = start;
	record->length = length;
	record->since = since;
	strcpy(record->name, name);
	REQUIRE(sideband_check(span_of(bytes, sizeof(bytes))));
	jit_code_apply(code, &record->head);
}

static void round_at(struct jit_code *code, uint64_t time)
{
	const struct sideband record = sideband_head(SIDEBAND_ROUND, sizeof(record), time, 0);

	jit_code_apply(code, &record);
}

static void exec_at(struct jit_code *code, uint64_t time)
{
	struct sideband_comm record = {
		.head = sideband_head(SIDEBAND_COMM, sizeof(record), time, PID), .comm = "x"
	};

	record.head.flags = SIDEBAND_COMM_EXEC;
	jit_code_apply(code, &record.head);
}

static void fork_at(struct jit_code *code, uint32_t parent, uint64_t time)
{
	const struct sideband_fork record = { .head = sideband_head(SIDEBAND_FORK, sizeof(record),
								    time, PID),
					      .parent_pid = parent,
					      .parent_tid = parent };

	jit_code_apply(code, &record.head);
}

/* "": none is known. */
static const char *name_at(struct jit_code *code, uint64_t address, uint64_t time)
{
	static char name[64];
	struct jit_function function;

	if (!jit_code_find(code, PID, address, time, &function))
		return "";
	CHECK(address >= function.range.start && address < function.range.end);
	snprintf(name, sizeof(name), "%s", function.name);
	return name;
}

/* A map that was created at 10 ms, and scanned every 100 ms from 100 ms on. */
static struct jit_code *code_with(const char *name)
{
	struct jit_code *code = jit_code_new(NULL);

	map(code, SIDEBAND_JIT_BEGIN, 10 * MS, 100 * MS);
	line(code, 0x1000, 0x100, name, 10 * MS, 100 * MS);
	round_at(code, 100 * MS);
	return code;
}

TEST(jit_code, a_function_has_its_name_from_when_its_map_was_made)
{
	struct jit_code *code = code_with("one");

	CHECK_STRING(name_at(code, 0x1000, 50 * MS), "one");
	CHECK_STRING(name_at(code, 0x10ff, 50 * MS), "one");
	CHECK_STRING(name_at(code, 0xfff, 50 * MS), "");
	CHECK_STRING(name_at(code, 0x1100, 50 * MS), "");
	CHECK(jit_code_has(code, PID));
	CHECK(!jit_code_has(code, PID + 256));
	jit_code_free(code);
}

TEST(jit_code, a_function_is_not_older_than_a_read_of_the_map_without_it)
{
	struct jit_code *code = code_with("one");

	map(code, 0, 100 * MS, 200 * MS);
	line(code, 0x2000, 0x100, "two", 100 * MS, 200 * MS);
	round_at(code, 200 * MS);
	CHECK_STRING(name_at(code, 0x2000, 70 * MS), "");
	CHECK_STRING(name_at(code, 0x2000, 101 * MS), "two");
	jit_code_free(code);
}

TEST(jit_code, after_the_latest_read_nothing_is_known)
{
	struct jit_code *code = code_with("one");

	CHECK_STRING(name_at(code, 0x1000, 80 * MS), "one");
	CHECK_STRING(name_at(code, 0x1000, 81 * MS), "");
	round_at(code, 200 * MS);
	CHECK_STRING(name_at(code, 0x1000, 81 * MS), "one");
	jit_code_free(code);
}

TEST(jit_code, a_map_with_missing_lines_is_unknown_until_the_round)
{
	struct jit_code *code = code_with("one");

	map(code, SIDEBAND_JIT_INCOMPLETE, 100 * MS, 200 * MS);
	round_at(code, 200 * MS);
	CHECK_STRING(name_at(code, 0x1000, 90 * MS), "");
	map(code, 0, 100 * MS, 210 * MS);
	round_at(code, 210 * MS);
	CHECK_STRING(name_at(code, 0x1000, 90 * MS), "one");
	jit_code_free(code);
}

TEST(jit_code, an_address_that_is_used_again_has_either_name_or_none)
{
	struct jit_code *code = code_with("one");
	struct jit_function first, second;

	map(code, 0, 200 * MS, 300 * MS);
	line(code, 0x1080, 0x100, "two", 200 * MS, 300 * MS);
	round_at(code, 400 * MS);
	CHECK_STRING(name_at(code, 0x1080, 180 * MS), "one");
	CHECK_STRING(name_at(code, 0x1080, 181 * MS), "");
	CHECK_STRING(name_at(code, 0x1080, 300 * MS), "");
	CHECK_STRING(name_at(code, 0x1080, 301 * MS), "two");
	/* All of the first one is gone. */
	CHECK_STRING(name_at(code, 0x1000, 180 * MS), "one");
	CHECK_STRING(name_at(code, 0x1000, 301 * MS), "");
	REQUIRE(jit_code_find(code, PID, 0x1080, 150 * MS, &first));
	REQUIRE(jit_code_find(code, PID, 0x1080, 350 * MS, &second));
	CHECK(first.offset + 0x100 <= second.offset);
	jit_code_free(code);
}

TEST(jit_code, two_functions_at_one_address_in_the_first_scan_are_ambiguous_before_it)
{
	struct jit_code *code = code_with("one");

	line(code, 0x1000, 0x100, "two", 10 * MS, 100 * MS);
	round_at(code, 200 * MS);
	CHECK_STRING(name_at(code, 0x1000, 90 * MS), "");
	CHECK_STRING(name_at(code, 0x1000, 101 * MS), "two");
	jit_code_free(code);
}

/* One address is reused beyond the limit of kept functions: other addresses are not affected. */
TEST(jit_code, dropped_functions_affect_no_others)
{
	struct jit_code *code = code_with("one");
	char name[16];

	for (unsigned int i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "turn_%u", i);
		line(code, 0x2000, 0x100, name, (100 + i) * MS, (101 + i) * MS);
	}
	round_at(code, 2200 * MS);
	CHECK_STRING(name_at(code, 0x1000, 500 * MS), "one");
	CHECK_STRING(name_at(code, 0x2000, 500 * MS), "");
	CHECK_STRING(name_at(code, 0x2000, 2150 * MS), "turn_1999");
	jit_code_free(code);
}

TEST(jit_code, a_repeated_line_changes_nothing)
{
	struct jit_code *code = code_with("one");

	line(code, 0x1000, 0x100, "one", 100 * MS, 200 * MS);
	round_at(code, 300 * MS);
	CHECK_STRING(name_at(code, 0x1000, 150 * MS), "one");
	jit_code_free(code);
}

TEST(jit_code, another_program_has_none_of_them)
{
	struct jit_code *code = code_with("one");

	round_at(code, 200 * MS);
	exec_at(code, 200 * MS);
	CHECK_STRING(name_at(code, 0x1000, 180 * MS), "one");
	CHECK_STRING(name_at(code, 0x1000, 201 * MS), "");
	/* A map of before is another program's; */
	map(code, SIDEBAND_JIT_BEGIN, 150 * MS, 300 * MS);
	line(code, 0x1000, 0x100, "old", 150 * MS, 300 * MS);
	round_at(code, 400 * MS);
	CHECK_STRING(name_at(code, 0x1000, 350 * MS), "");
	/* one that was made since is its own, */
	map(code, SIDEBAND_JIT_BEGIN, 220 * MS, 400 * MS);
	line(code, 0x1000, 0x100, "new", 220 * MS, 400 * MS);
	round_at(code, 500 * MS);
	CHECK_STRING(name_at(code, 0x1000, 350 * MS), "new");
	CHECK_STRING(name_at(code, 0x1000, 180 * MS), "one");
	CHECK_STRING(name_at(code, 0x1000, 199 * MS), "");
	jit_code_free(code);
}

TEST(jit_code, a_map_of_unknown_age_is_of_the_program_that_runs)
{
	struct jit_code *code = code_with("one");

	round_at(code, 200 * MS);
	fork_at(code, 1, 250 * MS);
	map(code, SIDEBAND_JIT_BEGIN, 0, 300 * MS);
	line(code, 0x2000, 0x100, "two", 0, 300 * MS);
	round_at(code, 400 * MS);
	CHECK_STRING(name_at(code, 0x2000, 260 * MS), "two");
	CHECK_STRING(name_at(code, 0x2000, 200 * MS), "");
	CHECK_STRING(name_at(code, 0x1000, 150 * MS), "one");
	jit_code_free(code);
}

TEST(jit_code, a_new_thread_ends_nothing)
{
	struct jit_code *code = code_with("one");

	fork_at(code, PID, 150 * MS);
	round_at(code, 300 * MS);
	CHECK_STRING(name_at(code, 0x1000, 200 * MS), "one");
	jit_code_free(code);
}

TEST(jit_code, a_process_that_ended_has_no_line_to_come)
{
	struct jit_code *code = code_with("one");

	map(code, SIDEBAND_JIT_END, 100 * MS, 150 * MS);
	CHECK_STRING(name_at(code, 0x1000, 149 * MS), "one");
	jit_code_free(code);
}

TEST(jit_code, a_map_that_begins_again_replaces_its_lines)
{
	struct jit_code *code = code_with("one");

	round_at(code, 200 * MS);
	map(code, SIDEBAND_JIT_BEGIN, 10 * MS, 300 * MS);
	line(code, 0x2000, 0x100, "two", 10 * MS, 300 * MS);
	round_at(code, 400 * MS);
	CHECK_STRING(name_at(code, 0x1000, 170 * MS), "one");
	CHECK_STRING(name_at(code, 0x1000, 350 * MS), "");
	CHECK_STRING(name_at(code, 0x2000, 350 * MS), "two");
	jit_code_free(code);
}

static void lose(struct jit_code *code, uint64_t since, uint64_t until)
{
	const struct sideband_lost lost = { .head = sideband_head(SIDEBAND_LOST, sizeof(lost),
								  since, 0),
					    .count = 1,
					    .until = until };

	jit_code_apply(code, &lost.head);
}

/* The map is reported from its beginning at TIME; its program has run since PROGRAM. */
static void report_again(struct jit_code *code, uint64_t since, uint64_t program, uint64_t time,
			 const char *name)
{
	struct sideband_jit_map record = { .head = sideband_head(SIDEBAND_JIT_MAP, sizeof(record),
								 time, PID),
					   .since = since,
					   .program = program };

	record.head.flags = SIDEBAND_JIT_BEGIN;
	jit_code_apply(code, &record.head);
	line(code, 0x1000, 0x100, name, since, time);
	round_at(code, time);
	round_at(code, time + 100 * MS);
}

/* A program's end may be among them. */
TEST(jit_code, events_that_the_guest_lost_end_all_names)
{
	struct jit_code *code = code_with("one");
	struct jit_code_statistics statistics;

	round_at(code, 200 * MS);
	lose(code, 150 * MS, 190 * MS);
	round_at(code, 300 * MS);
	CHECK_STRING(name_at(code, 0x1000, 130 * MS), "one");
	CHECK_STRING(name_at(code, 0x1000, 149 * MS), "");
	CHECK_STRING(name_at(code, 0x1000, 170 * MS), "");
	CHECK_STRING(name_at(code, 0x1000, 200 * MS), "");
	jit_code_statistics(code, &statistics);
	CHECK_EQUAL(statistics.refused, 0);
	jit_code_free(code);
}

TEST(jit_code, names_end_with_the_earliest_loss_in_any_order_of_reports)
{
	struct jit_code *code = code_with("one");

	round_at(code, 300 * MS);
	lose(code, 250 * MS, 290 * MS);
	CHECK_STRING(name_at(code, 0x1000, 225 * MS), "one");
	lose(code, 230 * MS, 280 * MS);
	CHECK_STRING(name_at(code, 0x1000, 205 * MS), "one");
	CHECK_STRING(name_at(code, 0x1000, 225 * MS), "");
	jit_code_free(code);
}

/* The guest reports all processes again, as if they had just executed their programs. */
TEST(jit_code, the_same_program_has_names_again_after_a_loss)
{
	struct jit_code *code = code_with("one");

	round_at(code, 200 * MS);
	lose(code, 150 * MS, 190 * MS);
	exec_at(code, 250 * MS);
	report_again(code, 10 * MS, 90 * MS, 300 * MS, "one");
	CHECK_STRING(name_at(code, 0x1000, 130 * MS), "one");
	CHECK_STRING(name_at(code, 0x1000, 170 * MS), "");
	CHECK_STRING(name_at(code, 0x1000, 260 * MS), "one");
	CHECK_STRING(name_at(code, 0x1000, 350 * MS), "one");
	/* And again. */
	lose(code, 410 * MS, 420 * MS);
	report_again(code, 10 * MS, 90 * MS, 500 * MS, "one");
	CHECK_STRING(name_at(code, 0x1000, 415 * MS), "");
	CHECK_STRING(name_at(code, 0x1000, 550 * MS), "one");
	jit_code_free(code);
}

/*
 * The program's start is reported to the ms, and the error of clocks is larger. No other program
 * began until the loss.
 */
TEST(jit_code, the_same_program_is_known_by_any_time_before_the_loss)
{
	struct jit_code *code = code_with("one");

	lose(code, 150 * MS, 190 * MS);
	exec_at(code, 250 * MS);
	report_again(code, 10 * MS, 110 * MS, 300 * MS, "one");
	CHECK_STRING(name_at(code, 0x1000, 350 * MS), "one");
	/* Another processor had an earlier loss and reports it later. */
	lose(code, 450 * MS, 490 * MS);
	lose(code, 430 * MS, 480 * MS);
	report_again(code, 10 * MS, 440 * MS, 500 * MS, "old");
	CHECK_STRING(name_at(code, 0x1000, 550 * MS), "");
	jit_code_free(code);
}

TEST(jit_code, a_loss_that_is_reported_late_does_not_end_later_programs)
{
	struct jit_code *code = code_with("one");

	lose(code, 150 * MS, 190 * MS);
	exec_at(code, 250 * MS);
	report_again(code, 10 * MS, 90 * MS, 300 * MS, "one");
	lose(code, 180 * MS, 190 * MS);
	round_at(code, 500 * MS);
	CHECK_STRING(name_at(code, 0x1000, 350 * MS), "one");
	CHECK_STRING(name_at(code, 0x1000, 450 * MS), "one");
	jit_code_free(code);
}

/* It may belong to the earlier program, whose end was lost. */
TEST(jit_code, a_map_of_before_a_loss_is_not_the_program_s_that_came_since)
{
	struct jit_code *code = code_with("one");

	lose(code, 150 * MS, 190 * MS);
	report_again(code, 10 * MS, 160 * MS, 300 * MS, "old");
	CHECK_STRING(name_at(code, 0x1000, 350 * MS), "");
	report_again(code, 10 * MS, 0, 500 * MS, "old");
	CHECK_STRING(name_at(code, 0x1000, 550 * MS), "");
	/* One that was made since is its own, or that it has written all of, */
	report_again(code, 220 * MS, 0, 700 * MS, "new");
	CHECK_STRING(name_at(code, 0x1000, 750 * MS), "new");
	CHECK_STRING(name_at(code, 0x1000, 180 * MS), "");
	report_again(code, 0, 0, 900 * MS, "newer");
	CHECK_STRING(name_at(code, 0x1000, 950 * MS), "newer");
	/* and one made while it runs, with any reported duration of the loss. */
	lose(code, 1000 * MS, 1100 * MS);
	report_again(code, 1050 * MS, 1010 * MS, 1200 * MS, "newest");
	CHECK_STRING(name_at(code, 0x1000, 1250 * MS), "newest");
	jit_code_free(code);
}

/* Nor are old lines of a process that has ended where its end was lost, and those of others are as
 * they were.
 */
TEST(jit_code, a_process_that_is_new_after_a_loss_has_its_names)
{
	struct jit_code *code = jit_code_new(NULL);

	lose(code, 50 * MS, 60 * MS);
	map(code, SIDEBAND_JIT_BEGIN, 10 * MS, 100 * MS);
	line(code, 0x1000, 0x100, "one", 10 * MS, 100 * MS);
	round_at(code, 200 * MS);
	CHECK_STRING(name_at(code, 0x1000, 150 * MS), "one");
	jit_code_free(code);
}

/* A guest that fills memory has no names, and the next process has its own. */
TEST(jit_code, memory_is_bounded)
{
	struct jit_code *code = code_with("one");
	struct jit_code_statistics statistics;

	for (uint64_t i = 0; i < 400000; i++)
		line(code, 0x100000 + i * 16, 16, "a_name_of_some_length_that_takes_memory",
		     100 * MS, 200 * MS);
	jit_code_statistics(code, &statistics);
	CHECK_EQUAL(statistics.refused, 1);
	CHECK(statistics.functions < 400000);
	round_at(code, 300 * MS);
	CHECK_STRING(name_at(code, 0x1000, 50 * MS), "");
	jit_code_free(code);
}

/* --- by chance, against what really was there ------------------------------------- */

#define SLOTS   8u
#define CHANGES 600u

struct change {
	uint64_t time;
	unsigned int slot;
	unsigned int number; /* of the function; its name */
};

static struct change changes[CHANGES];

static unsigned int true_number(unsigned int slot, uint64_t time)
{
	unsigned int number = 0;

	for (unsigned int i = 0; i < CHANGES && changes[i].time <= time; i++)
		if (changes[i].slot == slot)
			number = changes[i].number;
	return number;
}

static uint64_t report_up_to(struct jit_code *code, unsigned int *reported, uint64_t since,
			     uint64_t time)
{
	char name[16];

	map(code, *reported || since > 1 ? 0 : SIDEBAND_JIT_BEGIN, since, time);
	for (; *reported < CHANGES && changes[*reported].time <= time; (*reported)++) {
		snprintf(name, sizeof(name), "f%u", changes[*reported].number);
		line(code, 0x1000 + 0x100 * changes[*reported].slot, 0x100, name, since, time);
	}
	round_at(code, time);
	return time;
}

/* A function's line is written a moment before it runs; slots are used again and again. */
TEST(jit_code, of_many_that_come_and_go_none_has_a_wrong_name)
{
	unsigned int named = 0, wrong = 0, asked = 0;

	srand(1);
	for (unsigned int world = 0; world < 20; world++) {
		struct jit_code *code = jit_code_new(NULL);
		uint64_t time = 2, since = 1;
		unsigned int reported = 0;

		for (unsigned int i = 0; i < CHANGES; i++) {
			time += (uint64_t)rand() % (world < 10 ? 400 * MS : 20 * MS);
			changes[i] = (struct change){ time, (unsigned int)rand() % SLOTS, i + 1 };
		}
		for (uint64_t look = 100 * MS; look < time;
		     look += 50 * MS + (uint64_t)rand() % (100 * MS)) {
			since = report_up_to(code, &reported, since, look);
			for (unsigned int i = 0; i < 30; i++) {
				uint64_t at = look - (uint64_t)rand() %
							     (look < 700 * MS ? look : 700 * MS);
				unsigned int slot = (unsigned int)rand() % SLOTS;
				char expected[16];
				const char *found = name_at(
					code, 0x1000 + 0x100 * slot + (uint64_t)rand() % 0x100, at);

				if (!true_number(slot, at))
					continue; /* nothing is there to be sampled */
				snprintf(expected, sizeof(expected), "f%u", true_number(slot, at));
				asked++;
				named += *found != '\0';
				wrong += *found && strcmp(found, expected) != 0;
			}
		}
		jit_code_free(code);
	}
	CHECK_EQUAL(wrong, 0);
	CHECK(named * 2 > asked);
}
