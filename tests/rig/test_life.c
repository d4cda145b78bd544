/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches over the lifetime of a machine, in one run: a CPU that is brought up late and taken down,
 * watches on processes, a reset and a kexec that move the kernel (KASLR). tests/rig/guest/life.c
 * prints the number of writes to the watched variables.
 */
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/rig.h"
#include "tests/rig/storm_truth.h"
#include "vmm/perf_data/perf_data_reader.h"

#define BOOTS  3
#define EVENTS 7 /* the clock, three watches, and three that are added during the first boot */
#define STORM  6

static const char *const boots[BOOTS] = { "first", "second", "third" };

/* The directory of a run's recordings, disk, and perf's build-id cache. */
struct place {
	const char *directory;
	char files[BOOTS][64];
};

static struct place place_at(const char *directory)
{
	struct place place = { .directory = directory };

	for (unsigned int i = 0; i < BOOTS; i++)
		snprintf(place.files[i], sizeof(place.files[i]),
			 i ? "%s/perf.data.%u" : "%s/perf.data", directory, i);
	return place;
}

struct seen {
	unsigned long hits[EVENTS], on_cpu1[EVENTS], unnamed, unnamed_hits, kernels;
	uint64_t text,
		place; /* address of the first hit of the first watch, relative to the text */
	uint64_t other_kernel;
};

static int add_sample(void *context, const struct perf_data_sample *sample)
{
	bool unnamed = sample->misc == PERF_RECORD_MISC_CPUMODE_UNKNOWN;
	struct seen *seen = context;

	seen->hits[sample->event % EVENTS]++;
	seen->on_cpu1[sample->event % EVENTS] += sample->cpu == 1;
	seen->unnamed += unnamed;
	seen->unnamed_hits += sample->event && unnamed;
	if (sample->event == 1 && !seen->place)
		seen->place = sample->ip;
	return 0;
}

static int add_mapping(void *context, const struct perf_data_mapping_event *mapping)
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
		FAIL_TEST("cannot read %s", path);
		return seen;
	}
	CHECK_EQUAL(perf_data_reader_run(reader, &(struct perf_data_events){ .sample = add_sample,
									     .mapping = add_mapping,
									     .context = &seen }),
		    0);
	seen.other_kernel = perf_data_reader_summary(reader)->losses.counts[LOSS_OTHER_KERNEL];
	perf_data_reader_close(reader);
	seen.place -= seen.text;
	return seen;
}

/* The sum of the numbers that the guest printed for WHAT; NULL: for all writes to panic_timeout. */
static unsigned long truth(const char *output, const char *boot, const char *what)
{
	char start[64], name[32];
	unsigned long sum = 0, count;
	int length = snprintf(start, sizeof(start), "life: %s: ", boot);

	for (const char *at = output; (at = strstr(at, start)); at += length)
		if (sscanf(at + length, "%31s %lu", name, &count) == 2 && *name != '_' &&
		    strcmp(name, "kexec") != 0 &&
		    (what ? !strcmp(name, what) : strncmp(name, "of_", 3) != 0))
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

/* The number of lines in perf's dump of FILE that match PATTERN. */
static int count_records(const char *file, const char *pattern)
{
	struct rig_result result;
	int count;

	rig_run_here(&result, 300, "perf report -D -i %s 2>/dev/null | grep -cE '%s'", file,
		     pattern);
	count = atoi(result.output);
	rig_result_free(&result);
	return count;
}

/*
 * The second that the guest spends in a system call is symbolized in each boot: some ten samples
 * each, which come in bursts.
 */
static void check_symbols(const struct place *place, const char *file)
{
	struct rig_result result;

	rig_run_here(&result, 300, "HOME=$PWD/%s build/kvmscope report -i %s", place->directory,
		     file);
	CHECK_EQUAL(result.status, 0);
	if (!strstr(result.output, "getppid") && !strstr(result.output, " x64_sys_call ") &&
	    !strstr(result.output, " syscall_enter_from_user_mode "))
		FAIL_TEST("%s: no system call in %s%s", file, result.output, result.errors);
	rig_result_free(&result);
}

static void check_boot(const struct place *place, const char *output, unsigned int boot,
		       struct seen *seen)
{
	*seen = read_recording(place->files[boot]);
	printf("%s: text at %#llx, %lu hits of %lu writes, %lu on CPU 1; %lu samples in another kernel\n",
	       boots[boot], (unsigned long long)seen->text, seen->hits[1],
	       truth(output, boots[boot], NULL), seen->on_cpu1[1],
	       (unsigned long)seen->other_kernel);
	CHECK_EQUAL(seen->kernels, 1);
	CHECK_EQUAL(seen->text, text_of(output, boots[boot]));
	CHECK_EQUAL(seen->hits[1], truth(output, boots[boot], NULL));
	CHECK(seen->hits[1]);
	CHECK_EQUAL(seen->hits[2], truth(output, boots[boot], "chosen")); /* pid= */
	CHECK_EQUAL(seen->hits[3], truth(output, boots[boot], "chosen")); /* comm= */
	CHECK_EQUAL(seen->unnamed_hits, 0);
	CHECK(seen->unnamed >= seen->other_kernel); /* modules may have been unloaded */
	check_symbols(place, place->files[boot]);
}

/*
 * By page tables: of one process only; of a module: per CPU. They existed in the first boot only.
 */
static void check_added(const struct place *place, const char *output, const struct seen *seen)
{
	CHECK_EQUAL(seen[0].hits[4], truth(output, boots[0], "of_asked"));
	CHECK(seen[0].hits[4]);
	CHECK_EQUAL(seen[0].on_cpu1[5], truth(output, boots[0], "of_module_1"));
	CHECK_EQUAL(seen[0].hits[5] - seen[0].on_cpu1[5], truth(output, boots[0], "of_module_0"));
	CHECK(seen[0].on_cpu1[5]);
	for (unsigned int boot = 1; boot < BOOTS; boot++)
		CHECK_EQUAL(seen[boot].hits[4] + seen[boot].hits[5] + seen[boot].hits[STORM], 0);
	storm_check(place->files[0], STORM, truth(output, boots[0], "of_storm"));
}

static bool check_run(const struct place *place, const struct rig_result *result, struct seen *seen)
{
	if (result->status || !strstr(result->output, "life: third: all")) {
		FAIL_TEST("the guest did not run: %.2000s%.2000s", result->output, result->errors);
		return false;
	}
	for (unsigned int i = 0; i < BOOTS; i++)
		check_boot(place, result->output, i, &seen[i]);
	/* The same build: the same instruction wrote each time. */
	CHECK_EQUAL(seen[1].place, seen[0].place);
	CHECK_EQUAL(seen[2].place, seen[0].place);
	/*
	 * A reset separates two files; samples after a kexec are at first in the file of the kernel
	 * before.
	 */
	CHECK_EQUAL(seen[0].other_kernel, 0);
	CHECK(seen[1].other_kernel);
	CHECK_EQUAL(seen[0].on_cpu1[1], truth(result->output, boots[0], "on_cpu1"));
	/*
	 * Armed when its kernel was located, and disarmed when that was gone, on at least the one
	 * vCPU that ran.
	 */
	CHECK(count_records(place->files[0], "PERF_RECORD_UNTHROTTLE") >= 3);
	/* The end of a kernel by a kexec may be noticed after the next file has begun. */
	CHECK(count_records(place->files[1], "PERF_RECORD_THROTTLE") +
		      count_records(place->files[2], "PERF_RECORD_THROTTLE") >=
	      6);
	CHECK(count_records(place->files[2], "PERF_RECORD_UNTHROTTLE") >= 3);
	CHECK(strstr(result->errors,
		     "mem:panic_timeout:w is not watched until its new address is known"));
	CHECK(strstr(result->errors, "mem:panic_timeout:w is watched again, at "));
	CHECK(strstr(result->errors, "disarmed 2 times with its kernel"));
	return true;
}

#define INITRD                                                                                     \
	"tests/rig/initrd --modules '' --output build/initrd/kexec.cpio build/rig/life"            \
	" && tests/rig/initrd --modules 'virtio_mmio virtio_blk dccp_ipv4' --output build/initrd/life.cpio build/rig/life %s build/initrd/kexec.cpio"

/* The rig restarts if its emulator stalls; then the guest restarts as well. */
#define BEGIN "rm -rf %s; mkdir -p %s; truncate -s 1M %s/disk; export HOME=$PWD/%s; "
#define RUN(options)                                                                                                \
	"build/kvmscope run --sampler kick " options                                                                \
	" --reboot --mem 512M --kernel %s --initrd build/initrd/life.cpio --disk %s/disk -F 499 "                   \
	"-o %s --watch panic_timeout:4:w --watch panic_on_oops:4:w,pid=4321 --watch panic_on_warn:4:w,comm=chosen " \
	"--append 'console=ttyS0 quiet maxcpus=1 "

/*
 * They are for annotation only, and too large to copy out of Bochs; the symbols next to them are
 * not.
 */
#define WITHOUT_KCORE "; status=$?; rm -f $HOME/.debug/*kcore*/*/*/kcore; exit $status"

/* The kernel; NULL: unavailable. */
static const char *prepare(void)
{
	const char *kernel = rig_kernel("6.1");
	struct rig_result result;

	if (!kernel)
		return NULL;
	rig_run_here(&result, 300, INITRD, kernel);
	CHECK_EQUAL(result.status, 0);
	rig_result_free(&result);
	return kernel;
}

#define RUN_IN(place, kernel)                                                                      \
	(place).directory, (place).directory, (place).directory, (place).directory, kernel,        \
		(place).directory, (place).files[0]

TEST(life_rig, watches_survive_hot_plug_reset_and_kexec)
{
	const struct place place = place_at("build/rig/life-amd");
	struct rig_result result;
	struct seen seen[BOOTS];
	const char *kernel;

	RIG_DEBUG_REGISTERS_REQUIRED();
	kernel = prepare();
	if (!kernel)
		return;
	rig_run(&result, 400,
		BEGIN "tests/rig/life-host " RUN("") "kvmscope.run=life+ask' --cpus 2",
		RUN_IN(place, kernel));
	if (check_run(&place, &result, seen))
		check_added(&place, result.output, seen);
	rig_result_free(&result);
}

/* One CPU, and this command line, save Bochs most of its time. */
TEST(life_rig, watches_survive_reset_and_kexec_on_kvm_intel)
{
	const struct place place = place_at("build/rig/life-intel");
	struct rig_result result;
	struct seen seen[BOOTS];
	const char *kernel;

	RIG_INTEL_REQUIRED();
	kernel = prepare();
	if (!kernel)
		return;
	rig_run_on(&result, RIG_INTEL, 800,
		   BEGIN RUN("") "mitigations=off " QUICK_BOOT " kvmscope.run=life'" WITHOUT_KCORE,
		   RUN_IN(place, kernel));
	check_run(&place, &result, seen);
	rig_result_free(&result);
}
