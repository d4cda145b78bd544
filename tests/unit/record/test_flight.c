/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/flight_recorder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/sample_record.h"
#include "tests/unit/fake_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/record/collector.h"
#include "vmm/record/collector_kernel.h"

#define RINGS       2
#define TRIGGERS    40
#define RESULTS     40
#define FAR         (1ull << 62) /* ns: later than any clock */
#define MILLISECOND 1000000ull

struct result {
	uint64_t numbers[PERF_DATA_FLIGHT_TRIGGERS];
	size_t count;
	char path[160];
	uint64_t samples, bytes;
	int error;
};

struct setting {
	char directory[64], path[128], kallsyms[128];
	char former_home[1024];
	struct ring *rings[RINGS];
	struct fake_guest guest;
	struct flight_options flight_options;
	struct collector_options options;
	struct collector_kernel kernel;
	struct flight *flight;

	struct flight_trigger triggers[TRIGGERS]; /* to be taken */
	size_t trigger_count, taken;
	uint64_t missed;
	struct result results[RESULTS];
	size_t result_count;
};

static bool take(void *context, struct flight_trigger *trigger)
{
	struct setting *setting = context;

	if (setting->taken == setting->trigger_count)
		return false;
	*trigger = setting->triggers[setting->taken++];
	return true;
}

static uint64_t missed(void *context)
{
	return ((struct setting *)context)->missed;
}

static void done(void *context, const struct flight_result *result)
{
	struct setting *setting = context;
	struct result *kept = &setting->results[setting->result_count++];

	memcpy(kept->numbers, result->numbers, result->count * sizeof(result->numbers[0]));
	kept->count = result->count;
	snprintf(kept->path, sizeof(kept->path), "%s", result->path);
	kept->samples = result->samples;
	kept->bytes = result->bytes;
	kept->error = result->error;
}

static void write_kallsyms(struct setting *setting)
{
	FILE *file = fopen(setting->kallsyms, "we");
	struct symbol symbol;

	for (size_t i = 0; i < symbols_count(setting->guest.symbols); i++) {
		symbols_at(setting->guest.symbols, i, &symbol);
		if (!symbol.module)
			fprintf(file, "%016llx %c %s\n", (unsigned long long)symbol.start,
				symbol.type, symbol.name);
	}
	fclose(file);
}

static void make_rings(struct setting *setting)
{
	const struct ring_options options = { .size = RING_SIZE_MIN, .mode = RING_MODE_OVERWRITE };

	for (int i = 0; i < RINGS; i++)
		CHECK_EQUAL(ring_create_with(&setting->rings[i], &options), 0);
}

/* Windows of BEFORE ns; kernel symbols are given, so it need not be found. */
static void prepare(struct setting *setting, uint64_t before)
{
	memset(setting, 0, sizeof(*setting));
	strcpy(setting->directory, "/tmp/kvmscope-test-XXXXXX");
	if (!mkdtemp(setting->directory))
		abort();
	snprintf(setting->former_home, sizeof(setting->former_home), "%s",
		 getenv("HOME") ? getenv("HOME") : "/");
	setenv("HOME", setting->directory, 1);
	snprintf(setting->path, sizeof(setting->path), "%s/perf.data", setting->directory);
	snprintf(setting->kallsyms, sizeof(setting->kallsyms), "%s/kallsyms", setting->directory);
	fake_guest_make(&setting->guest, 0x11, 0, FAKE_MODULE);
	write_kallsyms(setting);
	make_rings(setting);
	setting->flight_options = (struct flight_options){
		.before = before,
		.by_guest_max = 8,
		.wake_fd = -1,
		.next_trigger = take,
		.missed = missed,
		.done = done,
		.context = setting,
	};
	setting->options = (struct collector_options){
		.rings = setting->rings,
		.ring_count = RINGS,
		.view = &setting->guest.view,
		.output = { .path = setting->path,
			    .frequency = 1000,
			    .callchains = true,
			    .vcpus = RINGS,
			    .vmm_pid = 77 },
		.flight = &setting->flight_options,
		.kallsyms = setting->kallsyms,
		.buildid_cache = true,
	};
	CHECK_EQUAL(collector_kernel_init(&setting->kernel, &setting->options), 0);
	CHECK_EQUAL(collector_kernel_update(&setting->kernel, 1), 0);
	CHECK_EQUAL(flight_create(&setting->flight, &setting->options, &setting->kernel, NULL), 0);
}

static void clean_up(struct setting *setting)
{
	char command[128];

	flight_destroy(setting->flight);
	collector_kernel_free(&setting->kernel);
	for (int i = 0; i < RINGS; i++)
		ring_destroy(setting->rings[i]);
	fake_guest_free(&setting->guest);
	setenv("HOME", setting->former_home, 1);
	snprintf(command, sizeof(command), "rm -rf %s", setting->directory);
	CHECK_EQUAL(system(command), 0);
}

/* In the kernel, with room for MORE bytes after it; NULL: the ring has none. */
static struct sample *begin_sample(struct setting *setting, unsigned int vcpu, uint64_t time,
				   size_t more)
{
	struct sample *sample =
		ring_reserve(setting->rings[vcpu], RECORD_SAMPLE, sample_size(1) + more);

	if (!sample)
		return NULL;
	*sample = (struct sample){
		.time = time,
		.period = 1000,
		.vcpu = vcpu,
		.host_tid = 100 + vcpu,
		.pid = SAMPLE_TASK_UNKNOWN,
		.tid = SAMPLE_TASK_UNKNOWN,
		.kernel_depth = 1,
		.rip = FAKE_TEXT,
	};
	sample->callchain[0] = FAKE_TEXT;
	return sample;
}

static void end_sample(struct setting *setting, unsigned int vcpu, struct sample *sample)
{
	ring_commit(setting->rings[vcpu], sample);
	ring_flush(setting->rings[vcpu]);
}

static void push(struct setting *setting, unsigned int vcpu, uint64_t time)
{
	struct sample *sample = begin_sample(setting, vcpu, time, 0);

	REQUIRE(sample);
	end_sample(setting, vcpu, sample);
}

/* One whose stop had no time for its cgroup. */
static void push_cut(struct setting *setting, unsigned int vcpu, uint64_t time)
{
	struct sample *sample = begin_sample(setting, vcpu, time, sizeof(struct sample_deferred));

	REQUIRE(sample);
	sample->pid = sample->tid = 5;
	sample->flags = SAMPLE_LOOKUP_INCOMPLETE;
	sample->deferred = 1;
	*sample_write_deferred(sample) = (struct sample_deferred){ .parts = 1 };
	end_sample(setting, vcpu, sample);
}

/* What was found of it later; as the same thread by another number, which the file then says. */
static void complete(struct setting *setting, unsigned int vcpu, uint64_t time)
{
	uint64_t room[sizeof(struct sample) / sizeof(uint64_t) + 1];
	struct sample *sample = (struct sample *)room;

	*sample = (struct sample){
		.time = time,
		.period = 1000,
		.vcpu = vcpu,
		.host_tid = 100 + vcpu,
		.pid = 6,
		.tid = 6,
		.kernel_depth = 1,
		.rip = FAKE_TEXT,
	};
	sample->callchain[0] = FAKE_TEXT;
	flight_complete(setting->flight, vcpu, sample);
}

/* The user's; the caller may change it before flight_update(). */
static struct flight_trigger *trigger(struct setting *setting, uint64_t time, const char *kind)
{
	struct flight_trigger *added = &setting->triggers[setting->trigger_count++];

	*added = (struct flight_trigger){ .number = setting->trigger_count, .listed.time = time };
	snprintf(added->listed.kind, sizeof(added->listed.kind), "%s", kind);
	return added;
}

struct counts {
	uint64_t samples, completed, lost, comms, maps, modules, first, last;
	bool disorder;
	struct perf_data_flight flight;
	struct losses losses;
};

static int count_sample(void *context, const struct perf_data_sample *sample)
{
	struct counts *counts = context;

	counts->disorder |= sample->time < counts->last;
	if (!counts->samples++)
		counts->first = sample->time;
	counts->completed += sample->pid == 6;
	counts->last = sample->time;
	return 0;
}

static int count_lost(void *context, uint64_t count)
{
	((struct counts *)context)->lost += count;
	return 0;
}

static int count_comm(void *context, uint32_t pid, uint32_t tid, const char *comm, uint64_t time)
{
	((struct counts *)context)->comms += !strncmp(comm, "vcpu ", 5);
	return 0;
}

static int count_mapping(void *context, const struct perf_data_mapping_event *mapping)
{
	struct counts *counts = context;

	counts->maps += !strcmp(mapping->name, "[kernel.kallsyms]_text");
	counts->modules += mapping->start == FAKE_MODULE;
	return 0;
}

static void read_counts(const char *path, struct counts *counts)
{
	struct perf_data_events events = {
		.sample = count_sample,
		.lost = count_lost,
		.comm = count_comm,
		.mapping = count_mapping,
		.context = counts,
	};
	struct perf_data_reader *reader;

	*counts = (struct counts){ 0 };
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	CHECK(!perf_data_reader_summary(reader)->cut_off);
	counts->flight = perf_data_reader_summary(reader)->flight;
	counts->losses = perf_data_reader_summary(reader)->losses;
	perf_data_reader_close(reader);
}

static bool exists(const struct setting *setting, const char *suffix)
{
	char path[160];

	snprintf(path, sizeof(path), "%s%s", setting->path, suffix);
	return !access(path, F_OK);
}

static uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC_RAW);
}

TEST(flight, writes_the_window_before_a_trigger_in_order_of_time)
{
	struct setting setting;
	struct counts counts;

	prepare(&setting, 500);
	for (uint64_t time = 1000; time < 3000; time += 10) {
		push(&setting, 0, time);
		push(&setting, 1, time + 5);
	}
	flight_update(setting.flight);
	CHECK(!exists(&setting, "")); /* nothing was triggered */
	strcpy(trigger(&setting, 2000, "guest panic")->listed.detail, "sysrq");
	flight_update(setting.flight);
	REQUIRE_EQUAL(setting.result_count, 1);
	CHECK_EQUAL(setting.results[0].error, 0);
	CHECK_STRING(setting.results[0].path, setting.path);
	read_counts(setting.path, &counts);
	/* 1500, 1505, ... 2000 */
	CHECK_EQUAL(counts.samples, 101);
	CHECK_EQUAL(setting.results[0].samples, 101);
	CHECK_EQUAL(counts.first, 1500);
	CHECK_EQUAL(counts.last, 2000);
	CHECK(!counts.disorder);
	CHECK_EQUAL(counts.comms, RINGS);
	CHECK_EQUAL(counts.maps, 1);
	CHECK_EQUAL(counts.flight.count, 1);
	CHECK_STRING(counts.flight.triggers[0].kind, "guest panic");
	CHECK_STRING(counts.flight.triggers[0].detail, "sysrq");
	CHECK_EQUAL(counts.flight.triggers[0].time, 2000);
	CHECK_EQUAL(counts.flight.from, 1500);
	CHECK_EQUAL(counts.flight.to, 2000);
	CHECK_EQUAL(counts.flight.complete, 0);
	clean_up(&setting);
}

TEST(flight, has_samples_as_completed_after_their_stops)
{
	struct setting setting;
	struct counts counts;

	prepare(&setting, 0);
	for (uint64_t time = 1000; time < 1100; time += 4) {
		push(&setting, 0, time);
		push_cut(&setting, 0, time + 1);
		push_cut(&setting, 0, time + 2);
		push_cut(&setting, 1, time + 3);
	}
	for (uint64_t time = 1000; time < 1100; time += 4) {
		complete(&setting, 0, time + 2);
		complete(&setting, 1, time + 3);
	}
	for (int i = 0; i < 2; i++) { /* they stay, for the next file */
		trigger(&setting, 2000, "SIGUSR2");
		flight_update(setting.flight);
		REQUIRE_EQUAL(setting.result_count, i + 1);
		CHECK_EQUAL(setting.results[i].error, 0);
		read_counts(setting.results[i].path, &counts);
		CHECK_EQUAL(counts.samples, 100);
		CHECK_EQUAL(counts.completed, 50);
		CHECK_EQUAL(counts.losses.counts[LOSS_LOOKUP_INCOMPLETE], 25);
		CHECK(!counts.disorder);
	}
	clean_up(&setting);
}

/* What came last is kept, where there is no room for all. */
TEST(flight, keeps_of_what_was_completed_as_much_as_there_is_room_for)
{
	struct setting setting;
	struct counts counts;

	prepare(&setting, 0);
	push_cut(&setting, 0, 1000);
	complete(&setting, 0, 1000);
	for (uint64_t time = 1001; time < 2000; time++)
		complete(&setting, 0, time);
	push_cut(&setting, 0, 1999);
	trigger(&setting, 30000, "SIGUSR2");
	flight_update(setting.flight);
	REQUIRE_EQUAL(setting.result_count, 1);
	read_counts(setting.path, &counts);
	CHECK_EQUAL(counts.samples, 2);
	CHECK_EQUAL(counts.completed, 1);
	CHECK_EQUAL(counts.losses.counts[LOSS_LOOKUP_INCOMPLETE], 1);
	clean_up(&setting);
}

/* As the collector does when it finds the guest's modules. */
static void find_module(struct setting *setting)
{
	const struct collector_scan none = { 0 };

	CHECK_EQUAL(collector_modules_scan(&setting->kernel.boot.modules, &setting->guest.module, 1,
					   &none, &none),
		    0);
}

TEST(flight, each_file_has_a_number_and_is_complete)
{
	struct setting setting;
	struct counts counts;
	char path[160];

	prepare(&setting, 0);
	find_module(&setting);
	for (unsigned int i = 0; i < 3; i++) {
		struct stat status;

		push(&setting, 0, 1000 + i);
		trigger(&setting, 2000 + i, "SIGUSR2");
		flight_update(setting.flight);
		REQUIRE_EQUAL(setting.result_count, i + 1);
		snprintf(path, sizeof(path), i ? "%s.%u" : "%s", setting.path, i);
		CHECK_STRING(setting.results[i].path, path);
		read_counts(path, &counts);
		CHECK_EQUAL(counts.samples, i + 1); /* windows may overlap */
		CHECK_EQUAL(counts.maps, 1);
		CHECK_EQUAL(counts.modules, 1);
		CHECK_EQUAL(counts.comms, 1);
		CHECK_EQUAL(counts.flight.from, 0);
		CHECK_EQUAL(setting.results[i].numbers[0], i + 1);
		REQUIRE_EQUAL(stat(path, &status), 0);
		CHECK_EQUAL(setting.results[i].bytes, status.st_size);
	}
	CHECK_EQUAL(flight_bytes(setting.flight),
		    setting.results[0].bytes + setting.results[1].bytes + setting.results[2].bytes);
	CHECK(!exists(&setting, ".3"));
	clean_up(&setting);
}

TEST(flight, triggers_that_come_together_share_a_file)
{
	struct setting setting;
	struct counts counts;

	prepare(&setting, 500);
	push(&setting, 0, 1000);
	push(&setting, 0, 1600);
	trigger(&setting, 1400, "guest panic");
	trigger(&setting, 1700, "guest reset");
	flight_update(setting.flight);
	REQUIRE_EQUAL(setting.result_count, 1);
	CHECK_EQUAL(setting.results[0].count, 2);
	CHECK_EQUAL(setting.results[0].numbers[1], 2);
	read_counts(setting.path, &counts);
	CHECK_EQUAL(counts.samples, 2);
	CHECK_EQUAL(counts.flight.count, 2);
	CHECK_STRING(counts.flight.triggers[1].kind, "guest reset");
	CHECK_EQUAL(counts.flight.to, 1700);
	flight_update(setting.flight);
	CHECK_EQUAL(setting.result_count, 1);
	clean_up(&setting);
}

TEST(flight, more_triggers_than_a_file_can_name_get_another_one)
{
	struct setting setting;

	prepare(&setting, 0);
	push(&setting, 0, 1000);
	for (unsigned int i = 0; i < PERF_DATA_FLIGHT_TRIGGERS + 1; i++)
		trigger(&setting, 2000 + i, "SIGUSR2");
	flight_update(setting.flight);
	REQUIRE_EQUAL(setting.result_count, 1);
	CHECK_EQUAL(setting.results[0].count, PERF_DATA_FLIGHT_TRIGGERS);
	flight_update(setting.flight);
	REQUIRE_EQUAL(setting.result_count, 2);
	CHECK_EQUAL(setting.results[1].count, 1);
	CHECK_EQUAL(setting.results[1].numbers[0], PERF_DATA_FLIGHT_TRIGGERS + 1);
	clean_up(&setting);
}

TEST(flight, a_file_of_its_own_is_for_one_trigger)
{
	struct setting setting;
	struct counts counts;
	char own[160];

	prepare(&setting, 0);
	snprintf(own, sizeof(own), "%s.mine", setting.path);
	push(&setting, 0, 1000);
	trigger(&setting, 2000, "guest panic");
	trigger(&setting, 2001, "kvmscope dump")->path = own;
	trigger(&setting, 2002, "SIGUSR2");
	for (int i = 0; i < 3; i++)
		flight_update(setting.flight);
	REQUIRE_EQUAL(setting.result_count, 3);
	CHECK_STRING(setting.results[0].path, setting.path);
	CHECK_STRING(setting.results[1].path, own);
	CHECK_EQUAL(setting.results[1].count, 1);
	CHECK(exists(&setting, ".1") && !exists(&setting, ".2"));
	read_counts(own, &counts);
	CHECK_STRING(counts.flight.triggers[0].kind, "kvmscope dump");
	clean_up(&setting);
}

TEST(flight, a_file_waits_for_the_time_after_its_trigger)
{
	uint64_t begin = now();
	struct setting setting;
	struct counts counts;

	prepare(&setting, 1000 * MILLISECOND);
	push(&setting, 0, begin - 1);
	trigger(&setting, begin, "SIGUSR2")->after = FAR;
	flight_update(setting.flight);
	CHECK_EQUAL(setting.result_count, 0);
	push(&setting, 0, begin + 100);
	trigger(&setting, begin + 50, "guest reset");
	flight_update(setting.flight);
	CHECK_EQUAL(setting.result_count, 0);
	push(&setting, 0, begin + 200);
	flight_end(setting.flight);
	REQUIRE_EQUAL(setting.result_count, 1);
	read_counts(setting.path, &counts);
	CHECK_EQUAL(counts.samples, 3);
	CHECK_EQUAL(counts.flight.count, 2);
	/* No more than there was before the end. */
	CHECK(counts.flight.to >= begin + 200 && counts.flight.to <= now());
	clean_up(&setting);
}

TEST(flight, a_panic_waits_for_the_reset_after_it)
{
	uint64_t begin = now();
	struct setting setting;
	struct counts counts;

	prepare(&setting, 1000 * MILLISECOND);
	push(&setting, 0, begin);
	push(&setting, 0, begin + 10);
	push(&setting, 0, begin + 30);
	trigger(&setting, begin, "guest panic")->patience = FAR;
	flight_update(setting.flight);
	CHECK_EQUAL(setting.result_count, 0);
	trigger(&setting, begin + 20, "guest reset");
	flight_end(setting.flight);
	REQUIRE_EQUAL(setting.result_count, 1);
	read_counts(setting.path, &counts);
	CHECK_EQUAL(counts.samples,
		    2); /* of the time up to the reset, not of all that was waited for */
	CHECK_EQUAL(counts.flight.count, 2);
	clean_up(&setting);
}

TEST(flight, the_guest_cannot_delay_a_file_or_fill_the_disk)
{
	uint64_t begin = now();
	struct setting setting;

	prepare(&setting, 0);
	setting.flight_options.by_guest_max = 2;
	push(&setting, 0, 1000);
	trigger(&setting, begin, "console line")->by_guest = true;
	for (unsigned int i = 0; i < 3; i++) {
		struct flight_trigger *more = trigger(&setting, begin, "console line");

		more->by_guest = true;
		more->after = FAR; /* of a trigger that only joins */
	}
	flight_update(setting.flight);
	CHECK_EQUAL(setting.result_count, 1);
	for (unsigned int i = 0; i < 3; i++) {
		trigger(&setting, begin, "console line")->by_guest = true;
		flight_update(setting.flight);
	}
	REQUIRE_EQUAL(setting.result_count, 4);
	CHECK_EQUAL(setting.results[1].error, 0);
	CHECK_EQUAL(setting.results[2].error, -EDQUOT);
	CHECK_EQUAL(setting.results[3].error, -EDQUOT);
	CHECK(exists(&setting, ".1") && !exists(&setting, ".2"));
	trigger(&setting, begin, "SIGUSR2");
	setting.missed = 5;
	flight_update(setting.flight);
	REQUIRE_EQUAL(setting.result_count, 5);
	CHECK_EQUAL(setting.results[4].error, 0);
	if (exists(&setting, ".2")) {
		struct counts counts;
		char path[160];

		snprintf(path, sizeof(path), "%s.2", setting.path);
		read_counts(path, &counts);
		CHECK_EQUAL(counts.flight.missed, 7);
	} else {
		FAIL_TEST("the user got no file");
	}
	clean_up(&setting);
}

TEST(flight, says_from_when_on_overwritten_rings_are_complete)
{
	struct setting setting;
	struct counts counts;
	uint64_t count = 4 * RING_SIZE_MIN / sizeof(struct sample);

	prepare(&setting, 1000000);
	for (uint64_t i = 0; i < count; i++)
		push(&setting, 0, 1000 + i);
	push(&setting, 1, 1000);
	trigger(&setting, 1000 + count, "SIGUSR2");
	flight_update(setting.flight);
	REQUIRE_EQUAL(setting.result_count, 1);
	read_counts(setting.path, &counts);
	CHECK(counts.flight.complete > 1000);
	CHECK_EQUAL(counts.last, 1000 + count - 1);
	/* Of ring 0 each sample from then on is there, and nothing older; and the one of ring 1. */
	CHECK_EQUAL(counts.samples, 1 + 1000 + count - counts.flight.complete);
	CHECK(counts.samples > count / 16);
	clean_up(&setting);
}

/* One that is open while the ring goes round keeps the writer from its space: what comes then is
 * lost, and counted. */
TEST(flight, tells_exactly_what_was_lost)
{
	struct ring_statistics ring;
	struct setting setting;
	struct counts counts;
	void *open;

	prepare(&setting, 0);
	push(&setting, 0, 1000);
	open = ring_reserve(setting.rings[0], RECORD_SAMPLE, sample_size(1));
	REQUIRE(open);
	for (unsigned int i = 0; i < 2 * RING_SIZE_MIN / sizeof(struct sample); i++)
		ring_commit(setting.rings[0],
			    ring_reserve(setting.rings[0], RECORD_SAMPLE + 1, sample_size(1)));
	ring_discard(setting.rings[0], open);
	push(&setting, 0, 2000);
	ring_statistics(setting.rings[0], &ring);
	CHECK(ring.lost > 0);
	trigger(&setting, 3000, "SIGUSR2");
	flight_update(setting.flight);
	REQUIRE_EQUAL(setting.result_count, 1);
	read_counts(setting.path, &counts);
	CHECK_EQUAL(counts.lost, ring.lost);
	CHECK_EQUAL(counts.losses.counts[LOSS_RING_FULL], ring.lost);
	clean_up(&setting);
}

TEST(flight, writes_nothing_to_the_cache_before_a_trigger)
{
	struct setting setting;
	char command[256], cache[128];

	prepare(&setting, 0);
	snprintf(cache, sizeof(cache), "%s/.debug", setting.directory);
	CHECK(setting.kernel.boot.mapped);
	push(&setting, 0, 1000);
	flight_update(setting.flight);
	CHECK(access(cache, F_OK) < 0);
	trigger(&setting, 2000, "SIGUSR2");
	flight_update(setting.flight);
	snprintf(command, sizeof(command),
		 "grep -q 'guest_function_5$' '%s'/'[kernel.kallsyms]'/*/kallsyms", cache);
	CHECK_EQUAL(system(command), 0);
	clean_up(&setting);
}

TEST(flight, continues_after_a_file_that_cannot_be_written)
{
	struct setting setting;

	prepare(&setting, 0);
	push(&setting, 0, 1000);
	trigger(&setting, 2000, "kvmscope dump")->path = "/nonexistent/perf.data";
	flight_update(setting.flight);
	REQUIRE_EQUAL(setting.result_count, 1);
	CHECK_EQUAL(setting.results[0].error, -ENOENT);
	CHECK_EQUAL(flight_error(setting.flight), 0); /* reported to the requester */
	CHECK_EQUAL(mkdir(setting.path, 0700), 0);
	trigger(&setting, 2001, "SIGUSR2");
	flight_update(setting.flight);
	REQUIRE_EQUAL(setting.result_count, 2);
	CHECK(setting.results[1].error < 0);
	trigger(&setting, 2002, "SIGUSR2");
	flight_update(setting.flight);
	REQUIRE_EQUAL(setting.result_count, 3);
	CHECK_EQUAL(setting.results[2].error, 0);
	CHECK(exists(&setting, ".1"));
	CHECK_EQUAL(flight_error(setting.flight), setting.results[1].error);
	CHECK(strstr(error_message(), setting.path));
	clean_up(&setting);
}

TEST(flight, leaves_what_it_did_not_open)
{
	struct setting setting;
	FILE *other;

	prepare(&setting, 0);
	push(&setting, 0, 1000);
	setting.options.output.compression = 23; /* zstd has 22: nothing is opened */
	other = fopen(setting.path, "we");
	REQUIRE(other);
	fclose(other);
	trigger(&setting, 2000, "SIGUSR2");
	flight_update(setting.flight);
	REQUIRE_EQUAL(setting.result_count, 1);
	CHECK_EQUAL(setting.results[0].error, -EINVAL);
	CHECK(exists(&setting, ""));
	clean_up(&setting);
}

TEST(flight, says_at_the_start_where_it_could_not_write)
{
	struct flight *flight;
	struct setting setting;

	prepare(&setting, 0);
	setting.options.output.path = "/nonexistent/perf.data";
	CHECK_EQUAL(flight_create(&flight, &setting.options, &setting.kernel, NULL), -ENOENT);
	CHECK(strstr(error_message(), "/nonexistent/perf.data"));
	setting.options.output.path = "/dev/null";
	CHECK_EQUAL(flight_create(&flight, &setting.options, &setting.kernel, NULL), -EINVAL);
	CHECK(strstr(error_message(), "/dev/null: it is no regular file"));
	clean_up(&setting);
}
