// SPDX-License-Identifier: Apache-2.0
/*
 * Watches over the life of a machine, in one run: a CPU that comes up late and goes, processes
 * that are watched alone, a reset and a kexec that put the kernel elsewhere (KASLR).
 * tests/rig/guest/life.c says how often it wrote to what is watched.
 */
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/rig.h"
#include "vmm/profile/perf_data_reader.h"

#define DATA   "build/rig/life.data"
#define HOME   "build/rig/life-home" /* for perf's cache of names */
#define BOOTS  3
#define EVENTS 4 /* the clock, and three watches */

static const char *const boots[BOOTS] = { "first", "second", "third" };
static const char *const files[BOOTS] = { DATA, DATA ".1", DATA ".2" };

struct seen {
	unsigned long hits[EVENTS], on_cpu1, unnamed, unnamed_hits, kernels;
	uint64_t text, place; /* place: of the first hit of the first watch, from the text's start */
	uint64_t other_kernel;
};

static int see_sample(void *context, const struct perf_data_sample *sample)
{
	bool unnamed = sample->misc == PERF_RECORD_MISC_CPUMODE_UNKNOWN;
	struct seen *seen = context;

	seen->hits[sample->event % EVENTS]++;
	seen->on_cpu1 += sample->event == 1 && sample->cpu == 1;
	seen->unnamed += unnamed;
	seen->unnamed_hits += sample->event && unnamed;
	if (sample->event == 1 && !seen->place)
		seen->place = sample->ip;
	return 0;
}

static int see_mapping(void *context, const struct perf_data_mapping_event *mapping)
{
	struct seen *seen = context;

	if (strcmp(mapping->name, "[kernel.kallsyms]_text") != 0)
		return 0;
	seen->kernels++;
	seen->text = mapping->start;
	return 0;
}

static struct seen read_recording(const char *path)
{
	struct perf_data_reader *reader;
	struct seen seen = { 0 };

	if (perf_data_reader_open(&reader, path)) {
		FAIL_TEST("no recording in %s", path);
		return seen;
	}
	CHECK_EQUAL(perf_data_reader_run(reader, &(struct perf_data_events){ .sample = see_sample,
									     .mapping = see_mapping,
									     .context = &seen }),
		    0);
	seen.other_kernel = perf_data_reader_summary(reader)->losses.counts[SAMPLE_OTHER_KERNEL_RAN];
	perf_data_reader_close(reader);
	seen.place -= seen.text;
	return seen;
}

/* The sum of what the guest printed for WHAT, and for all that write if it is NULL. */
static unsigned long truth(const char *output, const char *boot, const char *what)
{
	char start[64], name[32];
	unsigned long sum = 0, count;
	int length = snprintf(start, sizeof(start), "life: %s: ", boot);

	for (const char *at = output; (at = strstr(at, start)); at += length)
		if (sscanf(at + length, "%31s %lu", name, &count) == 2 && *name != '_' &&
		    strcmp(name, "kexec") != 0 && (!what || !strcmp(name, what)))
			sum += count;
	return sum;
}

static unsigned long long text_of(const char *output, const char *boot)
{
	unsigned long long text = 0;
	char start[64];
	const char *at;

	snprintf(start, sizeof(start), "life: %s: _text ", boot);
	at = strstr(output, start);
	if (at)
		sscanf(at + strlen(start), "%llx", &text);
	return text;
}

/* Lines of perf's dump of FILE that have PATTERN. */
static int count_records(const char *file, const char *pattern)
{
	struct rig_result result;
	int count;

	rig_run_here(&result, 60, "perf report -D -i %s 2>/dev/null | grep -cE '%s'", file, pattern);
	count = atoi(result.output);
	rig_result_free(&result);
	return count;
}

/* The function that the guest spends its time in until it is found has its name in each boot. */
static void check_names(const char *file)
{
	struct rig_result result;

	rig_run_here(&result, 60, "HOME=$PWD/" HOME " build/kvmscope report -i %s", file);
	CHECK_EQUAL(result.status, 0);
	if (!strstr(result.output, "getppid"))
		FAIL_TEST("%s: no getppid in %s%s", file, result.output, result.errors);
	rig_result_free(&result);
}

static void check_boot(const char *output, unsigned int boot, struct seen *seen)
{
	*seen = read_recording(files[boot]);
	printf("%s: text at %#llx, %lu hits of %lu writes, %lu on CPU 1; %lu samples in another kernel\n",
	       boots[boot], (unsigned long long)seen->text, seen->hits[1], truth(output, boots[boot], NULL),
	       seen->on_cpu1, (unsigned long)seen->other_kernel);
	CHECK_EQUAL(seen->kernels, 1);
	CHECK_EQUAL(seen->text, text_of(output, boots[boot]));
	CHECK_EQUAL(seen->hits[1], truth(output, boots[boot], NULL));
	CHECK(seen->hits[1]);
	CHECK_EQUAL(seen->hits[2], truth(output, boots[boot], "chosen")); /* pid= */
	CHECK_EQUAL(seen->hits[3], truth(output, boots[boot], "chosen")); /* comm= */
	CHECK_EQUAL(seen->unnamed_hits, 0);
	CHECK(seen->unnamed >=
	      seen->other_kernel); /* of modules that come and go, some have no name either */
	check_names(files[boot]);
}

static void check_run(const struct rig_result *result)
{
	struct seen seen[BOOTS];

	if (result->status || !strstr(result->output, "life: third: all")) {
		FAIL_TEST("the guest did not run: %.2000s%.2000s", result->output, result->errors);
		return;
	}
	for (unsigned int i = 0; i < BOOTS; i++)
		check_boot(result->output, i, &seen[i]);
	/* One build: the same instruction wrote each time. */
	CHECK_EQUAL(seen[1].place, seen[0].place);
	CHECK_EQUAL(seen[2].place, seen[0].place);
	/* A reset comes between two files; what a kexec starts is at first in the file of what was before. */
	CHECK_EQUAL(seen[0].other_kernel, 0);
	CHECK(seen[1].other_kernel);
	CHECK_EQUAL(seen[0].on_cpu1, truth(result->output, boots[0], "on_cpu1"));
	/* Armed when its kernel was found, and disarmed when that was gone, on at least the one vCPU that
	 * ran. */
	CHECK(count_records(files[0], "PERF_RECORD_UNTHROTTLE") >= 3);
	CHECK(count_records(files[1], "PERF_RECORD_THROTTLE") >= 6);
	CHECK(count_records(files[2], "PERF_RECORD_UNTHROTTLE") >= 3);
	CHECK(strstr(result->errors, "mem:panic_timeout:w is not watched until its new place is known"));
	CHECK(strstr(result->errors, "mem:panic_timeout:w is watched again, at "));
	CHECK(strstr(result->errors, "disarmed 2 times with its kernel"));
}

#define INITRD                                                                                               \
	"tests/rig/initrd --modules '' --output build/initrd/kexec.cpio build/rig/life"                      \
	" && tests/rig/initrd --output build/initrd/life.cpio build/rig/life %s build/initrd/kexec.cpio"

TEST(life_rig, watches_survive_hot_plug_reset_and_kexec)
{
	struct rig_result result;
	const char *kernel;

	RIG_DEBUG_REGISTERS_REQUIRED();
	kernel = rig_kernel("6.1");
	if (!kernel)
		return;
	rig_run_here(&result, 60, INITRD, kernel);
	REQUIRE_EQUAL(result.status, 0);
	rig_result_free(&result);
	rig_run(&result, 400,
		/* The rig starts anew if its emulator stands still; so has the guest to. */
		"rm -rf " DATA "* " HOME " build/rig/life.img && mkdir -p " HOME
		" && truncate -s 1M build/rig/life.img && "
		"HOME=$PWD/" HOME " build/kvmscope run --pmu off --reboot --cpus 2 --mem 512M --kernel %s "
		"--initrd build/initrd/life.cpio --disk build/rig/life.img -F 499 -o " DATA
		" --watch panic_timeout:4:w --watch panic_on_oops:4:w,pid=4321 --watch panic_on_warn:4:w,comm=chosen "
		"--append 'console=ttyS0 quiet maxcpus=1 kvmscope.run=life'",
		kernel);
	check_run(&result);
	rig_result_free(&result);
}
