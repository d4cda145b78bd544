/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches of variables of Debian's kernel compared with the truth: programs cause a known number of
 * writes to one of them, while the guest uses the debug registers itself.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/e2e/perf_recording.h"
#include "tests/rig/rig.h"
#include "vmm/perf_data/perf_data_reader.h"

/* The clock, and two watches; on one vCPU. */
#define EVENTS 3

struct moment {
	uint64_t time;
	unsigned int event;
	enum { HIT, STOP, START } what;
	uint64_t period; /* of a hit */
};

/* A recording, in order of time. */
struct seen {
	struct moment *moments;
	size_t count, room;
	struct {
		unsigned long stops, hits, hits_while_stopped;
		unsigned long chains; /* samples with a caller in their chain */
	} events[EVENTS];
};

static void add(struct seen *seen, struct moment moment)
{
	if (seen->count == seen->room) {
		seen->room = seen->room ? 2 * seen->room : 4096;
		seen->moments = realloc(seen->moments, seen->room * sizeof(moment));
		if (!seen->moments)
			abort();
	}
	seen->moments[seen->count++] = moment;
}

static int add_sample(void *context, const struct perf_data_sample *sample)
{
	struct seen *seen = context;

	add(seen, (struct moment){ sample->time, sample->event % EVENTS, HIT, sample->period });
	seen->events[sample->event % EVENTS].chains += sample->callchain_size > 4;
	return 0;
}

static int add_throttled(void *context, uint16_t event, bool stopped, uint64_t time)
{
	add(context, (struct moment){ time, event % EVENTS, stopped ? STOP : START, 0 });
	return 0;
}

static int compare_moments(const void *left, const void *right)
{
	uint64_t a = ((const struct moment *)left)->time, b = ((const struct moment *)right)->time;

	return (a > b) - (a < b);
}

static void count_moments(struct seen *seen)
{
	bool stopped[EVENTS] = { false };

	qsort(seen->moments, seen->count, sizeof(*seen->moments), compare_moments);
	for (size_t i = 0; i < seen->count; i++) {
		const struct moment *moment = &seen->moments[i];

		if (moment->what == HIT) {
			seen->events[moment->event].hits += moment->period;
			seen->events[moment->event].hits_while_stopped += stopped[moment->event];
		} else {
			stopped[moment->event] = moment->what == STOP;
			seen->events[moment->event].stops += moment->what == STOP;
		}
	}
}

static struct seen read_recording(const char *path)
{
	struct seen seen = { 0 };
	struct perf_data_events events = { .sample = add_sample,
					   .throttled = add_throttled,
					   .context = &seen };

	if (!recording_replay(path, &events))
		return seen;
	count_moments(&seen);
	free(seen.moments);
	seen.moments = NULL;
	return seen;
}

/* The guest's output for a number of registers: BEGIN, its hits, which are in turn, and END. */
static void check_guest_s(const char *output, const char *begin, int registers, int count,
			  const char *end)
{
	char line[128];
	int length = snprintf(line, sizeof(line), "%s", begin);

	for (int i = 0; i < registers; i++)
		length += snprintf(line + length, sizeof(line) - (size_t)length, " %d",
				   (count + registers - 1 - i) / registers);
	snprintf(line + length, sizeof(line) - (size_t)length, " of %d%s", count, end);
	if (!strstr(output, line))
		FAIL_TEST("the guest did not print '%s'", line);
}

/*
 * Writes to the watched variables of each side, for 1, 2, 3 and 4 of the guest's own, and to the
 * host's only.
 */
#define WRITES 4000
/* The number of those at which a debugger in the guest stops. */
#define STOPS 300
/* Writes for 1, 2, 3 and 4 watchpoints of a gdb in the guest, which stops at each. */
#define GDB_WRITES 40
/* The host's hits: with four of the guest's own there is no register left for it. */
#define HOST_HITS (4 * WRITES + 3 * GDB_WRITES)

/* The number of times that NAME was not armed, from the summary. */
static unsigned long times_stopped(const char *summary, const char *name)
{
	const char *line = strstr(summary, name);
	unsigned long held_back = 0, suspended = 0;

	if (line)
		line = strstr(line, "throttled");
	if (!line ||
	    sscanf(line, "throttled %lu times, suspended %lu", &held_back, &suspended) != 2)
		FAIL_TEST("the summary has no %s", name);
	return held_back + suspended;
}

/*
 * The guest gets exactly its hits, the profile has exactly the host's. With four watchpoints of the
 * guest there is no register left: the stream then has a THROTTLE each time the guest's process
 * runs, and no hits until the UNTHROTTLE.
 */
static void check_coexistence(const struct rig_result *result, const char *path)
{
	struct seen seen;
	char begin[64];

	if (result->status) {
		FAIL_TEST("the guest did not run: %.2000s%.2000s", result->output, result->errors);
		return;
	}
	for (int registers = 1; registers <= 4; registers++) {
		snprintf(begin, sizeof(begin), "debugger: %d watchpoints hit", registers);
		check_guest_s(result->output, begin, registers, WRITES, ", 0 others");
		snprintf(begin, sizeof(begin), "gdb: %d watchpoints hit", registers);
		check_guest_s(result->output, begin, registers, GDB_WRITES, "");
	}
	seen = read_recording(path);
	printf("%lu hits of %d writes besides the guest's own, %lu with callers, %lu times throttled; %lu of jiffies_64\n",
	       seen.events[1].hits, HOST_HITS, seen.events[1].chains, seen.events[1].stops,
	       seen.events[2].hits);
	CHECK_EQUAL(seen.events[1].hits, HOST_HITS);
	CHECK_EQUAL(seen.events[1].chains, seen.events[1].hits);
	snprintf(begin, sizeof(begin), "mem:panic_timeout:w: %d hits", HOST_HITS);
	CHECK(strstr(result->errors, begin));
	CHECK(seen.events[0].hits > 0);
	CHECK(seen.events[2].hits > 0);
	for (int event = 1; event < EVENTS; event++)
		CHECK_EQUAL(seen.events[event].hits_while_stopped, 0);
	/* Until the kernel is located they are throttled as well. */
	CHECK_EQUAL(seen.events[1].stops,
		    1 + times_stopped(result->errors, "mem:panic_timeout:w:"));
	CHECK_EQUAL(seen.events[2].stops, 1 + times_stopped(result->errors, "mem:jiffies_64:w:"));
	CHECK(seen.events[1].stops > STOPS);
	/*
	 * With three of the guest's own, the flexible watch has yielded and the pinned one has not.
	 */
	CHECK(seen.events[2].stops > seen.events[1].stops + STOPS);
	CHECK(strstr(
		result->errors,
		"mem:panic_timeout:w is suspended on vCPU 0 while the guest uses its debug registers"));
}

/*
 * A waiting guest gets its line when COUNT watches are armed: a busy machine takes a while to
 * locate the kernel.
 */
#define PREPARE "mkdir -p build/rig; d=$(mktemp -d); mkfifo $d/in; "
#define BEGIN_WHEN_WATCHED(count)                                                                  \
	" --control $d/socket < $d/in & run=$!; exec 3> $d/in; "                                   \
	"until [ $(build/kvmscope ctl --socket $d/socket bp list | grep -c ' watching ') = " count \
	" ]; do "                                                                                  \
	"kill -0 $run || break; sleep 1; done 2> /dev/null; echo >&3; "

/*
 * mitigations=off: the guest's system calls would flush the TLB otherwise, which takes Bochs most
 * of its time.
 */
#define INITRD "build/initrd/6.1-debugger.cpio"
/* The ring has room for some seconds during which the emulator does not run the collector. */
#define COMMAND                                                                                                           \
	PREPARE "build/kvmscope run --sampler kick %s --kernel %s --initrd %s --mem 256M -F 99 -o %s --no-buildid-cache " \
		"--ring-size 8M --watch panic_timeout:4:w,pinned --watch jiffies_64:8:w,period=50 "                       \
		"--append 'console=ttyS0 quiet mitigations=off " QUICK_BOOT " kvmscope.wait "                             \
		"kvmscope.run=debugger+%d+%d;gdb-watch+%d'" BEGIN_WHEN_WATCHED("2") "wait $run"

static void check_debugger(enum rig_kind kind, const char *options, const char *data)
{
	const char *kernel = rig_kernel("6.1");
	struct rig_result initrd, result;

	if (!kernel)
		return;
	rig_run_here(
		&initrd, 300,
		"tests/rig/initrd --kernel 6.1 --output " INITRD
		" build/rig/debugger tests/rig/guest/gdb-watch $(tests/rig/fetch-packages gdb gdb-minimal)/usr/bin/gdb");
	CHECK_EQUAL(initrd.status, 0);
	rig_result_free(&initrd);
	rig_run_on(&result, kind, 900, COMMAND, options, kernel, INITRD, data, WRITES, STOPS,
		   GDB_WRITES);
	check_coexistence(&result, data);
	rig_result_free(&result);
}

TEST(watch_rig, guest_debugger_works_while_the_host_watches)
{
	RIG_DEBUG_REGISTERS_REQUIRED();
	check_debugger(RIG_AMD, "", "build/rig/watch.data");
}

TEST(watch_rig, guest_debugger_works_while_the_host_watches_on_kvm_intel)
{
	RIG_INTEL_REQUIRED();
	check_debugger(RIG_INTEL, "--pmu off", "build/rig/watch-intel.data");
}

/* The number of breakpoints that the guest lost, from the recording at PATH. */
static unsigned long lost_in_recording(const char *path)
{
	struct perf_data_reader *reader;
	unsigned long count;

	if (perf_data_reader_open(&reader, path))
		return 0;
	perf_data_reader_run(reader, &(struct perf_data_events){ 0 });
	count = perf_data_reader_summary(reader)->losses.counts[LOSS_GUEST_BREAKPOINT];
	perf_data_reader_close(reader);
	return count;
}

/* The number after BEFORE in TEXT; 0: not found. */
static unsigned long number_after(const char *text, const char *before)
{
	const char *found = strstr(text, before);

	return found ? strtoul(found + strlen(before), NULL, 10) : 0;
}

/*
 * The loss is reported to the user of the run when it happens and at the end, to bp list, and in
 * the recording.
 */
static void check_loss_is_reported(const struct rig_result *result, const char *path)
{
	unsigned long lost = lost_in_recording(path),
		      listed = number_after(result->errors, "bp list: ");
	char text[128];
	struct rig_result report;

	printf("the guest lost a breakpoint %lu times, %lu until bp list\n", lost, listed);
	CHECK(strstr(result->errors, "a breakpoint of the guest does not work for it"));
	CHECK(listed > 0 && listed <= lost);
	snprintf(text, sizeof(text),
		 "warning: %lu times a breakpoint of the guest itself did not work", lost);
	if (!strstr(result->errors, text))
		FAIL_TEST("the summary has no '%s'", text);
	rig_run_here(&report, 300, "build/kvmscope report --json -i %s", path);
	snprintf(text, sizeof(text), "\"guest_breakpoint_lost\": %lu", lost);
	if (!strstr(report.output, text))
		FAIL_TEST("the report has no '%s'", text);
	rig_result_free(&report);
}

/* The guest ends when it gets another line, after bp list has shown the loss. */
#define COMMAND_OF_LOSS                                                                                          \
	PREPARE "build/kvmscope run --sampler kick --bp-priority host --kernel %s --initrd %s --mem 256M -F 99 " \
		"-o %s --no-buildid-cache --watch panic_timeout:4:w,pinned "                                     \
		"--append 'console=ttyS0 quiet " QUICK_BOOT " kvmscope.wait kvmscope.run="                       \
		"workload+breakpoints+100;read+line'" BEGIN_WHEN_WATCHED(                                        \
			"1") "while kill -0 $run && ! grep -q '^bp list: [1-9]' $d/list; do sleep 1; "           \
			     "build/kvmscope ctl --socket $d/socket bp list | "                                  \
			     "sed -n 's/^.* times a/bp list: &/p' > $d/list; done 2> /dev/null; "                \
			     "cat $d/list >&2; echo >&3; wait $run"

/*
 * With three of the guest's own, a pinned watch has a register; with four it takes one of the
 * guest's, and reports that.
 */
TEST(watch_rig, pinned_host_watch_takes_a_guest_register_and_reports_it)
{
	const char *kernel, *initrd, *data = "build/rig/watch-host.data";
	struct rig_result result;
	char begin[64];

	RIG_DEBUG_REGISTERS_REQUIRED();
	kernel = rig_kernel("6.1");
	initrd = rig_initrd("6.1");
	if (!kernel || !initrd)
		return;
	rig_run(&result, 400, COMMAND_OF_LOSS, kernel, initrd, data);
	CHECK_EQUAL(result.status, 0);
	for (int registers = 1; registers <= 3; registers++) {
		snprintf(begin, sizeof(begin), "workload: %d breakpoints counted", registers);
		check_guest_s(result.output, begin, registers, 100, "");
	}
	CHECK(strstr(result.output, "workload: 4 breakpoints counted"));
	CHECK(!strstr(result.output, "workload: 4 breakpoints counted 25 25 25 25 "));
	check_loss_is_reported(&result, data);
	CHECK_EQUAL(read_recording(data).events[1].hits, 4 * 100);
	rig_result_free(&result);
}
