/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/perf_data/perf_data_blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/report/report_rows.h"

#define SECOND 1000000000ull

/* A panic 100 s after the start of the clock, then a reset, with rings that held 12 s. */
static const struct perf_data_flight panic = {
	.from = 70 * SECOND,
	.to = 105 * SECOND,
	.complete = 88 * SECOND,
	.missed = 2,
	.count = 2,
	.triggers = { { 100 * SECOND, "guest panic", "sysrq" },
		      { 100 * SECOND + SECOND / 4, "guest reset", "" } },
};

static void add(struct bytes *content)
{
	perf_data_flight_add(content, &panic);
	REQUIRE(!content->failed);
}

TEST(perf_data_flight, round_trips)
{
	struct bytes content = { 0 };
	struct perf_data_flight read;

	add(&content);
	REQUIRE(perf_data_flight_parse(&read, span_of(content.data, content.size)));
	CHECK(!memcmp(&read, &panic, sizeof(read)));
	free(content.data);
}

TEST(perf_data_flight, refuses_truncated_and_unknown_blocks)
{
	struct perf_data_flight read = { .missed = 7 };
	struct bytes content = { 0 };
	uint32_t *words;

	add(&content);
	words = (uint32_t *)content.data;
	for (size_t size = 0; size < content.size; size++)
		CHECK(!perf_data_flight_parse(&read, span_of(content.data, size)));
	words[0] = 2; /* version */
	CHECK(!perf_data_flight_parse(&read, span_of(content.data, content.size)));
	words[0] = 1;
	words[1] = PERF_DATA_FLIGHT_TRIGGERS + 1; /* count */
	CHECK(!perf_data_flight_parse(&read, span_of(content.data, content.size)));
	words[1] = 2;
	words[2] = 8; /* bytes of a trigger */
	CHECK(!perf_data_flight_parse(&read, span_of(content.data, content.size)));
	CHECK_EQUAL(read.missed, 7);
	free(content.data);
}

TEST(perf_data_flight, terminates_strings)
{
	struct perf_data_flight read;
	struct bytes content = { 0 };

	add(&content);
	memset(content.data + content.size - sizeof(panic.triggers[0]) + 8, 'x',
	       sizeof(panic.triggers[0]) - 8);
	REQUIRE(perf_data_flight_parse(&read, span_of(content.data, content.size)));
	CHECK_EQUAL(strlen(read.triggers[1].kind), sizeof(read.triggers[1].kind) - 1);
	CHECK_EQUAL(strlen(read.triggers[1].detail), sizeof(read.triggers[1].detail) - 1);
	free(content.data);
}

TEST(perf_data_flight, is_in_a_closed_file)
{
	struct perf_data_options options = { .frequency = 1000, .vcpus = 1, .vmm_pid = 1 };
	struct perf_data_writer *writer;
	struct perf_data_reader *reader;
	char path[64];

	snprintf(path, sizeof(path), "build/flight-%d.data", getpid());
	options.path = path;
	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	perf_data_writer_set_flight(writer, &panic);
	REQUIRE_EQUAL(perf_data_writer_close(writer), 0);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &(struct perf_data_events){ 0 }), 0);
	CHECK_EQUAL(perf_data_reader_summary(reader)->flight.count, 2);
	CHECK_STRING(perf_data_reader_summary(reader)->flight.triggers[0].detail, "sysrq");
	CHECK(perf_data_reader_summary(reader)->wall_time);
	perf_data_reader_close(reader);
	unlink(path);
}

static char *printed(const struct perf_data_summary *summary)
{
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	report_flight_text(summary, to);
	fclose(to);
	return text;
}

TEST(perf_data_flight, is_shown_by_the_report)
{
	struct perf_data_summary summary = { .flight = panic };
	char *text = printed(&summary);

	CHECK_STRING(text, "# Flight   30.0 s before guest panic \"sysrq\" and 5.0 s after\n"
			   "#          then, 0.250 s later, guest reset\n"
			   "#          complete from 12.0 s before it on: the rings held no more\n"
			   "#          2 more triggers of this run without a file\n");
	free(text);
	summary.flight.count = 0;
	text = printed(&summary);
	CHECK_STRING(text, "");
	free(text);
}

TEST(perf_data_flight, is_shown_in_wall_time)
{
	struct perf_data_summary summary = {
		.flight = { .to = SECOND,
			    .complete = 1,
			    .count = 1,
			    .triggers = { { SECOND, "SIGUSR2", "" } } },
		.wall_time = 1700000000 * SECOND,
		.clock_time = 2 * SECOND,
	};
	char *text, zone[64] = "", *before = getenv("TZ");
	json_t *object = report_flight_json(&summary), *trigger;

	snprintf(zone, sizeof(zone), "%s", before ? before : "");
	setenv("TZ", "UTC", 1);
	tzset();
	text = printed(&summary);
	CHECK_STRING(text, "# Flight   everything before SIGUSR2, 2023-11-14 22:13:19.000\n");
	if (before)
		setenv("TZ", zone, 1);
	else
		unsetenv("TZ");
	tzset();
	trigger = json_array_get(json_object_get(object, "triggers"), 0);
	CHECK_STRING(json_string_value(json_object_get(trigger, "kind")), "SIGUSR2");
	CHECK_EQUAL(json_integer_value(json_object_get(trigger, "wall_time")),
		    (long long)(1699999999 * SECOND));
	json_decref(object);
	free(text);
}
