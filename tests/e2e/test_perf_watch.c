/* SPDX-License-Identifier: Apache-2.0 */
/* Watches in a perf.data file, as read by Debian's perf and our reader. */
#include <linux/hw_breakpoint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/e2e/perf_home.h"
#include "tests/e2e/perf_recording.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"

#define ADDRESS 0xffffffff82a05980ull

static const struct perf_data_watches watches = {
	.list = { { .name = "mem:0xffffffff82a05980:w",
		    .type = HW_BREAKPOINT_W,
		    .address = ADDRESS,
		    .length = 8,
		    .period = 1 },
		  { .name = "mem:schedule:x",
		    .type = HW_BREAKPOINT_X,
		    .length = 8,
		    .period = 10 } },
	.count = 2,
};

static struct sample_hit hit_of(unsigned int i)
{
	struct sample_hit hit = { ADDRESS, i,    i + 1, 8, SAMPLE_HIT_BEFORE | SAMPLE_HIT_AFTER,
				  100 + i, { 0 } };

	for (unsigned int k = 0; k < SAMPLE_REGISTERS; k++)
		hit.registers[k] = 0x1000 + k;
	return hit;
}

/*
 * Of 90 samples every third is a hit of the first watch, and every third one of the second watch.
 */
static void write_file(const char *path, enum perspective perspective)
{
	struct perf_data_options options = { .path = path,
					     .perspective = perspective,
					     .frequency = 1000,
					     .callchains = true,
					     .vcpus = 4,
					     .vmm_pid = VMM_PID,
					     .watches = &watches };
	struct sample *sample =
		calloc(1, sample_size(SAMPLE_CALLCHAIN_MAX) + sizeof(struct sample_hit));
	struct perf_data_writer *writer;

	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	recording_name_vcpus(writer);
	recording_rewind();
	for (unsigned int i = 0; i < 90; i++) {
		recording_sample(sample, i, 0xffffffff81000000);
		sample->event = i / 4 % 3;
		if (sample->event) {
			sample->period = sample->event == 1 ? 1 : 10;
			*sample_write_hit(sample) = hit_of(i);
		}
		CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
	}
	CHECK_EQUAL(perf_data_writer_event(writer, &(struct sample_event){ sample->time, 1, 1, 1 }),
		    0);
	CHECK_EQUAL(perf_data_writer_event(writer, &(struct sample_event){ sample->time, 1, 1, 0 }),
		    0);
	/* Written twice: the later count is valid. */
	for (unsigned int i = 0; i < 8; i++)
		CHECK_EQUAL(
			perf_data_writer_count(writer, sample->time, i % 4, 1,
					       &(struct perf_data_count){ 20 + 5 * (i / 4),
									  2000000000, 500000000 }),
			0);
	sample->event = 3;
	CHECK_EQUAL(perf_data_writer_sample(writer, sample), -22);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
	free(sample);
}

struct seen {
	unsigned int events[3];
	uint64_t periods[3];
	uint64_t hits;
};

static int count_sample(void *context, const struct perf_data_sample *sample)
{
	struct seen *seen = context;

	CHECK(sample->event < 3);
	CHECK_EQUAL(sample->has_values, sample->event != 0);
	if (sample->event)
		CHECK_EQUAL(sample->address, ADDRESS);
	seen->events[sample->event]++;
	seen->periods[sample->event] += sample->period;
	seen->hits += sample->values.hits;
	if (sample->values.hits)
		CHECK_EQUAL(sample->values.after, sample->values.hits - 99);
	return 0;
}

static void read_file(const char *path, unsigned int events)
{
	struct perf_data_reader *reader;
	struct seen seen = { 0 };

	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &(struct perf_data_events){ .sample = count_sample,
									     .context = &seen }),
		    0);
	CHECK_EQUAL(perf_data_reader_summary(reader)->events, events);
	perf_data_reader_close(reader);
	CHECK_EQUAL(seen.events[0], 32);
	CHECK_EQUAL(seen.events[1], 30);
	CHECK_EQUAL(seen.events[2], 28);
	CHECK_EQUAL(seen.periods[1], 30);
	CHECK_EQUAL(seen.periods[2], 280);
	CHECK_EQUAL(seen.hits, 8413);
}

static void check_in_perf(const char *path)
{
	char *text = perf_output(
		"perf script -i %s -F event,period --kallsyms /dev/null 2>/dev/null | "
		"awk '/mem:/ { print $2, $1 }' | sort | uniq -c | awk '{ print $1, $2, $3 }'",
		path);

	CHECK_STRING(text, "30 mem:0xffffffff82a05980:w: 1\n28 mem:schedule:x: 10\n");
	free(text);
	text = perf_output("perf script -D -i %s 2>/dev/null | grep -c ' addr: 0xffffffff82a05980'",
			   path);
	CHECK_STRING(text, "58\n");
	free(text);
	/* -F iregs requires registers in each event of a file. */
	text = perf_output(
		"perf script -D -i %s 2>/dev/null | awk '/^.... (AX|DI|IP|R8|R15) /{ print $2, $3 }' | "
		"sort | uniq -c | awk '$1 == 58 { print $2, $3 }'",
		path);
	CHECK_STRING(text, "AX 0x0000000000001000\nDI 0x0000000000001005\nR15 0x000000000000100d\n"
			   "R8 0x0000000000001006\n");
	free(text);
}

/* Report and script of the same file. */
static void check_in_kvmscope(const char *path)
{
	char *text = perf_output(
		"build/kvmscope report -i %s --sort vcpu -n 1 2>&1 | grep -E '^# (Ev|Sa|Wa)'",
		path);

	CHECK_STRING(
		text,
		"# Event    cpu-clock, 1000 Hz requested, 999.5 on average\n"
		"# Samples  32, 0.032 s, 4 vCPUs\n"
		"# Event    mem:0xffffffff82a05980:w\n# Samples  30, 30 hits, 4 vCPUs\n"
		"# Watched  25.0 % of the time, 2.000 s of 8.000 s on all vCPUs: about 120 hits in "
		"total\n"
		"# Event    mem:schedule:x\n# Samples  28, 280 hits, 4 vCPUs\n");
	free(text);
	text = perf_output(
		"build/kvmscope report -i %s --event mem:schedule:x --sort vcpu --json | "
		"tr -d ' \n' | grep -o '\"event\".*\"hidden_rows\"'",
		path);
	CHECK_STRING(
		text,
		"\"event\":\"mem:schedule:x\",\"number\":2,\"frequency\":0,\"frequency_changed\":false,\"samples\":28,"
		"\"weight\":280,\"weight_unit\":\"hits\",\"count\":null,\"hidden_rows\"\n");
	free(text);
	text = perf_output(
		"build/kvmscope report -i %s --vcpu 1 --json | tr -d ' \n' | grep -o '\"count\":{[^}]*}'",
		path);
	CHECK_STRING(text, "\"count\":{\"hits\":25,\"scaled_hits\":32,\"enabled_ns\":2000000000,"
			   "\"running_ns\":500000000}\n");
	free(text);
	text = perf_output(
		"build/kvmscope export -f folded --event 1 -i %s | awk '{ n += $NF } END { print n }'",
		path);
	CHECK_STRING(text, "30\n");
	free(text);
	text = perf_output(
		"build/kvmscope export -f script -i %s | grep -m 1 mem: | sed 's/.*: *1 /1 /'",
		path);
	CHECK_STRING(text, "1 mem:0xffffffff82a05980:w:  ffffffff82a05980 0x4 -> 0x5 #104\n");
	free(text);
	text = perf_output("build/kvmscope report -i %s --event mem:none:w 2>&1", path);
	CHECK(strstr(text,
		     "its events are 0 cpu-clock, 1 mem:0xffffffff82a05980:w, 2 mem:schedule:x"));
	free(text);
}

TEST(perf_watch, perf_shows_each_watch_as_an_event)
{
	const char *path = "build/tests/watch.data";

	if (system("mkdir -p build/tests"))
		return;
	write_file(path, PERSPECTIVE_GUEST);
	read_file(path, 3);
	check_in_perf(path);
	check_in_kvmscope(path);
	write_file(path, PERSPECTIVE_HOST);
	read_file(path, 3);
	check_in_perf(path);
}

/* A recording that gets its watches while it runs. */
struct growing {
	const char *path;
	enum perspective perspective;
	unsigned int compression;
	struct perf_data_watches watches;
	struct perf_data_writer *writer;
	struct sample *sample;
	unsigned int taken;
};

static void open_growing(struct growing *growing)
{
	struct perf_data_options options = { .path = growing->path,
					     .perspective = growing->perspective,
					     .frequency = 1000,
					     .callchains = true,
					     .compression = growing->compression,
					     .vcpus = 4,
					     .vmm_pid = VMM_PID,
					     .watches = &growing->watches };

	growing->sample = calloc(1, sample_size(SAMPLE_CALLCHAIN_MAX) + sizeof(struct sample_hit));
	REQUIRE_EQUAL(perf_data_writer_open(&growing->writer, &options), 0);
	recording_name_vcpus(growing->writer);
	recording_rewind();
}

static void write_samples(struct growing *growing, unsigned int count, uint16_t event)
{
	while (count--) {
		recording_sample(growing->sample, growing->taken++, 0xffffffff81000000);
		growing->sample->event = event;
		if (event) {
			growing->sample->period = 1;
			*sample_write_hit(growing->sample) =
				(struct sample_hit){ .address = ADDRESS };
		}
		CHECK_EQUAL(perf_data_writer_sample(growing->writer, growing->sample), 0);
	}
}

/* 40 clock samples, 20 hits of a watch that was added then, 10 of a watch that was added later. */
static void write_growing(struct growing *growing)
{
	open_growing(growing);
	write_samples(growing, 20, 0);
	perf_data_watches_add(&growing->watches, &watches.list[1]);
	write_samples(growing, 20, 1);
	CHECK_EQUAL(perf_data_writer_flush(growing->writer, UINT64_MAX), 0);
	perf_data_watches_add(&growing->watches, &watches.list[0]);
	/* The address becomes known later. */
	perf_data_watches_set_address(&growing->watches, 1, 0);
	CHECK_EQUAL(perf_data_writer_write_out(growing->writer), 0);
	perf_data_watches_set_address(&growing->watches, 1, ADDRESS);
	write_samples(growing, 10, 2);
	write_samples(growing, 20, 0);
	CHECK_EQUAL(perf_data_writer_flush(growing->writer, UINT64_MAX), 0);
}

static void close_growing(struct growing *growing)
{
	CHECK_EQUAL(perf_data_writer_close(growing->writer), 0);
	free(growing->sample);
}

static void check_growing(const char *path, const char *how)
{
	struct perf_data_reader *reader;
	struct seen seen = { 0 };
	char *text;

	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &(struct perf_data_events){ .sample = count_sample,
									     .context = &seen }),
		    0);
	CHECK_EQUAL(perf_data_reader_summary(reader)->skipped, 0);
	perf_data_reader_close(reader);
	CHECK_EQUAL(seen.events[0], 40);
	CHECK_EQUAL(seen.events[1], 20);
	CHECK_EQUAL(seen.events[2], 10);
	text = perf_output(
		"perf script %s %s -F event --kallsyms /dev/null 2>&1 | grep : | LC_ALL=C sort | uniq -c | "
		"awk '{ print $1, $2 }'",
		how, path);
	CHECK_STRING(text, "40 cpu-clock:\n20 mem:schedule:x:\n10 mem:0xffffffff82a05980:w:\n");
	free(text);
	/* Each event has exactly one table. */
	text = perf_output(
		"perf report --stdio %s %s --kallsyms /dev/null 2>/dev/null | grep '^# Samples:' | "
		"awk '{ print $3, $6 }'",
		how, path);
	CHECK_STRING(text, "40 'cpu-clock'\n20 'mem:schedule:x'\n10 'mem:0xffffffff82a05980:w'\n");
	free(text);
}

TEST(perf_watch, watch_can_be_added_while_a_file_is_written)
{
	for (int i = 0; i < 4; i++) {
		struct growing growing = { .path = "build/tests/watch-grows.data",
					   .perspective =
						   i & 1 ? PERSPECTIVE_HOST : PERSPECTIVE_GUEST,
					   .compression = i & 2 ? 3 : 0 };
		char *text;

		write_growing(&growing);
		/* As a killed writer leaves it. */
		if (system("cp build/tests/watch-grows.data build/tests/watch-killed.data"))
			FAIL_TEST("there is no file to copy");
		check_growing("build/tests/watch-killed.data", "-i");
		close_growing(&growing);
		check_growing(growing.path, "-i");
		text = perf_output(
			"perf evlist -v -i %s 2>/dev/null | grep -o 'bp_addr[^:]*: 0x[0-9a-f]*'",
			growing.path);
		CHECK_STRING(text, "bp_addr, config1 }: 0xffffffff82a05980\n");
		free(text);
	}
}

TEST(perf_watch, watch_can_be_added_while_a_pipe_is_written)
{
	const char *path = "build/tests/watch-pipe.data";

	for (int i = 0; i < 4; i++) {
		struct growing growing = { .path = "build/tests/watch.pipe",
					   .perspective =
						   i & 1 ? PERSPECTIVE_HOST : PERSPECTIVE_GUEST,
					   .compression = i & 2 ? 3 : 0 };

		if (system("cd build/tests && rm -f watch.pipe && mkfifo watch.pipe && "
			   "{ cat watch.pipe > watch-pipe.data & }"))
			FAIL_TEST("cannot create a pipe");
		write_growing(&growing);
		close_growing(&growing);
		usleep(100000);
		check_growing(path, "-i - <");
	}
}

TEST(perf_watch, perf_counts_throttled_times_of_a_watch)
{
	char *text;

	write_file("build/tests/watch-stats.data", PERSPECTIVE_GUEST);
	text = perf_output(
		"perf report --stats -i build/tests/watch-stats.data 2>/dev/null | grep -i throttle | "
		"awk '{ print $1, $3 }'");
	CHECK_STRING(text, "THROTTLE 1\nUNTHROTTLE 1\n");
	free(text);
}
