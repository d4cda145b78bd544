/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seconds for a report on a million samples with 5000 call paths of 12 to 27 frames in a kernel of
 * 20 000 functions, compared with perf report on the same file with the same symbols; and how long
 * a browser takes to open their flame graph. With ten times the samples, the CPU time for each must
 * be the same.
 */
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/sample_record.h"
#include "tests/bench/bench.h"
#include "vmm/perf_data/perf_data_writer.h"

#define SAMPLES       bench_size(1000000, 20000)
#define FUNCTIONS     20000
#define FUNCTION_SIZE 256
#define PATHS         5000
#define DEEPEST       27
#define TEXT          0xffffffff81000000ull
#define OUTPUT        "build/bench/report.data"
#define TIMES         10 /* samples of the larger recording */
#define LARGER        "build/bench/report-larger.data"
#define PAGE          "build/bench/report.html"
#define HOME          "build/bench/report-home"
#define ENTRY         HOME "/.debug/[kernel.kallsyms]/4242424242424242424242424242424242424242"

static uint64_t state = 1;

static uint32_t next_random(uint32_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33) % below;
}

static struct path {
	unsigned int depth;
	uint64_t addresses[DEEPEST]; /* innermost first */
} paths[PATHS];

/*
 * Each path begins like another one, as calls from the same system call do, and ends in its own
 * functions.
 */
static void make_paths(void)
{
	for (unsigned int i = 0; i < PATHS; i++) {
		struct path *path = &paths[i];
		const struct path *like = &paths[i ? next_random(i) : 0];
		unsigned int shared = i ? next_random(like->depth) : 0;

		path->depth = 12 + next_random(DEEPEST - 12 + 1);
		if (shared >= path->depth)
			shared = path->depth - 1;
		for (unsigned int j = 0; j < path->depth; j++)
			path->addresses[path->depth - 1 - j] =
				j < shared
					? like->addresses[like->depth - 1 - j]
					: TEXT + (uint64_t)next_random(FUNCTIONS) * FUNCTION_SIZE +
						  16 * next_random(4);
	}
}

/* Puts the kernel's symbols where both programs look for them. */
static int write_symbols(void)
{
	FILE *file;

	if (system("rm -rf " HOME " && mkdir -p '" ENTRY "' " HOME "/.debug/.build-id/42 && "
		   "ln -s '../../[kernel.kallsyms]/4242424242424242424242424242424242424242' " HOME
		   "/.debug/.build-id/42/42424242424242424242424242424242424242") != 0)
		return -1;
	file = fopen(ENTRY "/kallsyms", "we");
	if (!file)
		return -1;
	fprintf(file, "%llx T _text\n%llx T _stext\n", TEXT, TEXT);
	for (int i = 0; i < FUNCTIONS; i++)
		fprintf(file, "%llx t function_%d\n", TEXT + (uint64_t)i * FUNCTION_SIZE, i);
	return fclose(file);
}

static int write_sample(struct perf_data_writer *writer, struct sample *sample, unsigned int number)
{
	const struct path *path = &paths[next_random(1 + next_random(1 + next_random(PATHS)))];

	*sample = (struct sample){ .time = 1000000ull * number,
				   .period = 1000000,
				   .host_tid = 2,
				   .vcpu = number % 4,
				   .pid = SAMPLE_TASK_UNKNOWN,
				   .tid = SAMPLE_TASK_UNKNOWN };
	sample->kernel_depth = (uint16_t)path->depth;
	memcpy(sample->callchain, path->addresses, path->depth * sizeof(path->addresses[0]));
	/* A random offset in the innermost function; few paths are hot. */
	sample->callchain[0] =
		sample->callchain[0] / FUNCTION_SIZE * FUNCTION_SIZE + next_random(FUNCTION_SIZE);
	sample->rip = sample->callchain[0];
	return perf_data_writer_sample(writer, sample);
}

static int write_samples(struct perf_data_writer *writer, unsigned int count)
{
	uint8_t build_id[20];
	struct perf_data_mapping kernel = {
		.pid = -1,
		.tid = -1,
		.start = TEXT,
		.size = FUNCTIONS * FUNCTION_SIZE,
		.offset = TEXT,
		.name = "[kernel.kallsyms]_text",
		.build_id = build_id,
		.build_id_size = sizeof(build_id),
		.kernel = true,
	};
	struct sample *sample = malloc(sample_size(SAMPLE_CALLCHAIN_MAX));
	int error;

	memset(build_id, 0x42, sizeof(build_id));
	error = sample ? perf_data_writer_mapping(writer, &kernel) : -1;
	for (unsigned int i = 0; !error && i < count; i++) {
		error = write_sample(writer, sample, i);
		if (!error && i % 4096 == 4095)
			error = perf_data_writer_flush(writer, UINT64_MAX);
	}
	free(sample);
	return error;
}

static int write_recording(const char *path, unsigned int count)
{
	struct perf_data_options options = { .path = path,
					     .frequency = 1000,
					     .callchains = true,
					     .vcpus = 4,
					     .vmm_pid = 1,
					     .command_line = "bench" };
	struct perf_data_writer *writer;
	int error, closed;

	/* The writer would keep an older file under another name. */
	unlink(path);
	if (perf_data_writer_open(&writer, &options))
		return -1;
	error = write_samples(writer, count);
	closed = perf_data_writer_close(writer);
	return error ? error : closed;
}

/* Seconds that COMMAND takes, the best of RUNS; negative: it failed. */
static double seconds(const char *command, int runs)
{
	double best = -1;

	for (int i = 0; i < runs; i++) {
		uint64_t begin = bench_time(CLOCK_MONOTONIC);
		double taken;

		if (system(command) != 0)
			return -1;
		taken = (double)(bench_time(CLOCK_MONOTONIC) - begin) / 1e9;
		if (best < 0 || taken < best)
			best = taken;
	}
	return best;
}

static void compare(const char *what, const char *ours, const char *baseline, const char *theirs)
{
	double mine = seconds(ours, 3), perf = seconds(theirs, 1);

	if (mine < 0)
		bench_skip(what, "kvmscope report failed");
	else if (perf < 0)
		bench_skip(what, "perf is missing, failed or took longer than 90 s");
	else
		bench_print_relative(what, mine, "s", baseline, perf);
}

/* Seconds of CPU time that COMMAND takes; negative: it failed. */
static double cpu_seconds(const char *command)
{
	struct rusage usage[2];
	double times[2];

	for (int i = 0; i < 2; i++) {
		if (i && system(command) != 0)
			return -1;
		getrusage(RUSAGE_CHILDREN, &usage[i]);
		times[i] = (double)(usage[i].ru_utime.tv_sec + usage[i].ru_stime.tv_sec) +
			   (double)(usage[i].ru_utime.tv_usec + usage[i].ru_stime.tv_usec) / 1e6;
	}
	return times[1] - times[0];
}

/* kvmscope with ARGUMENTS reads the larger recording in the same time per sample. */
static void compare_sizes(const char *what, const char *arguments)
{
	static const char *const inputs[] = { OUTPUT, LARGER };
	double times[2], ratio;
	char command[256];

	for (int i = 0; i < 2; i++) {
		snprintf(command, sizeof(command), "build/kvmscope %s -i %s > /dev/null", arguments,
			 inputs[i]);
		times[i] = cpu_seconds(command);
		if (times[i] < 0) {
			bench_fail(what, "kvmscope failed");
			return;
		}
	}
	ratio = times[1] / TIMES / times[0];
	bench_print_ratio_bound(what, times[1] / TIMES / SAMPLES * 1e9, "ns", "1 M samples",
				times[0] / SAMPLES * 1e9, &ratio, 1,
				(struct bench_bound){ BENCH_MOST, 1.25 });
}

static void measure_larger(void)
{
	if (write_recording(LARGER, SAMPLES * TIMES)) {
		bench_fail("10 M samples", error_message());
		return;
	}
	compare_sizes("report on 10 M samples: CPU time of a sample", "report");
	compare_sizes("report --children on 10 M samples: CPU time of a sample",
		      "report --children");
	compare_sizes("HTML of 10 M samples: CPU time of a sample", "export -f html -o " PAGE);
	unlink(LARGER);
}

/*
 * ms in which Chromium opens PAGE, draws it and lays it out; the best of RUNS; negative: it failed.
 * The page is in a frame of another page, which says when that is done.
 */
static double milliseconds_to_open(const char *page, int runs)
{
	char command[1024];
	double best = -1;

	snprintf(
		command, sizeof(command),
		"echo '<body><iframe id=page width=1280 height=800 src=%s onload=\""
		"page.contentDocument.body.offsetHeight;"
		"document.body.append(`opened ${performance.now()} `)\">' > build/bench/open.html;"
		"timeout 60 chromium --headless --no-sandbox --disable-gpu "
		"--allow-file-access-from-files --user-data-dir=build/bench/chromium "
		"--dump-dom \"file://$PWD/build/bench/open.html\" 2> /dev/null | grep -o 'opened [0-9][0-9.]*'",
		page);
	for (int i = 0; i < runs; i++) {
		FILE *from = popen(command, "re");
		double taken = -1;

		if (!from || fscanf(from, "opened %lf", &taken) != 1)
			taken = -1;
		if (!from || pclose(from) || taken < 0)
			return -1;
		if (best < 0 || taken < best)
			best = taken;
	}
	return best;
}

static void measure_page(void)
{
	static const char *const what = "HTML of 1 M samples with their times, opened in Chromium";
	double page, empty;

	if (system("echo '<p>' > build/bench/empty.html && rm -f " PAGE
		   " && build/kvmscope export -i " OUTPUT " -o " PAGE) != 0) {
		bench_fail(what, "kvmscope export failed");
		return;
	}
	page = milliseconds_to_open("report.html", 3);
	empty = milliseconds_to_open("empty.html", 3);
	if (page < 0 || empty < 0)
		bench_skip(what, "Chromium is missing or failed");
	else
		bench_print_relative_bound(
			what, page, "ms", "an empty page", empty,
			(struct bench_bound){ .kind = BENCH_MOST, .value = 2000 });
}

int main(void)
{
	make_paths();
	if (write_symbols() || write_recording(OUTPUT, SAMPLES)) {
		fprintf(stderr, "bench_report: %s\n", error_message());
		return 1;
	}
	setenv("HOME", HOME, 1);
	compare("report on 1 M samples with callchains",
		"build/kvmscope report -i " OUTPUT " > /dev/null",
		"perf report --stdio --no-children -g none",
		"perf report --stdio --no-children -g none -i " OUTPUT
		" > build/bench/report-perf.txt 2> /dev/null");
	compare("report --children on 1 M samples with callchains",
		"build/kvmscope report --children -i " OUTPUT " > /dev/null",
		"perf report --stdio --children -g none",
		"timeout 90 perf report --stdio --children -g none -i " OUTPUT " > /dev/null 2>&1");
	measure_page();
	measure_larger();
	unlink(OUTPUT);
	return bench_status();
}
