/* SPDX-License-Identifier: Apache-2.0 */
/* A recording in which the guest changes its kernel: by a kexec, which is not reported, and by a
 * reset. */
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/log.h"
#include "shared/sample_record.h"
#include "tests/unit/kernel_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/record/collector.h"

#define WAIT_MS 60000

#define TEXT  0xffffffff9c200000ull
#define MOVED 0xffffffff9d400000ull

static const struct kernel_guest_location first = { TEXT, 0x200000, KERNEL_GUEST_BANNER };
static const struct kernel_guest_location moved = { MOVED, 0x800000, KERNEL_GUEST_BANNER };

struct boot {
	char directory[64], path[128];
	struct ring *ring;
	struct flat_guest guest;
	pthread_mutex_t lock; /* of the guest's registers and memory, and of what follows */
	bool stopped;         /* no registers are known */
	bool still;           /* they are always of the same stop */
	uint64_t stops;
	struct collector_options options;
	struct collector *collector;
	_Atomic uint64_t text;       /* of the kernel that was published last; 0: of none */
	atomic_uint published, lost; /* how often */
	const struct guest_kernel *newest, *used; /* the collector's thread */
	uint64_t used_text;
};

static bool get_registers(void *context, struct guest_registers *registers)
{
	struct boot *boot = context;
	bool known;

	pthread_mutex_lock(&boot->lock);
	*registers = boot->guest.registers;
	boot->stops += !boot->still;
	registers->rsp += 8 * boot->stops;
	known = !boot->stopped;
	pthread_mutex_unlock(&boot->lock);
	return known;
}

static void take_kernel(void *context, const struct guest_kernel *kernel)
{
	struct boot *boot = context;

	boot->newest = kernel;
	atomic_store(&boot->text, kernel ? kernel->text_start : 0);
	atomic_fetch_add(&boot->published, 1);
}

static void lose_kernel(void *context)
{
	atomic_fetch_add(&((struct boot *)context)->lost, 1);
}

static void begin(struct boot *boot)
{
	memset(boot, 0, sizeof(*boot));
	strcpy(boot->directory, "/tmp/kvmscope-test-XXXXXX");
	REQUIRE(mkdtemp(boot->directory));
	snprintf(boot->path, sizeof(boot->path), "%s/perf.data", boot->directory);
	pthread_mutex_init(&boot->lock, NULL);
	REQUIRE_EQUAL(ring_create(&boot->ring, RING_SIZE_MIN), 0);
	flat_guest_create(&boot->guest, KERNEL_GUEST_SIZE);
	kernel_guest_start(&boot->guest, KALLSYMS_6_12, &first);
	boot->options = (struct collector_options){
		.rings = &boot->ring,
		.ring_count = 1,
		.view = &boot->guest.view,
		.registers = get_registers,
		.publish = take_kernel,
		.lost = lose_kernel,
		.context = boot,
		.output = { .path = boot->path,
			    .frequency = 1000,
			    .callchains = true,
			    .vcpus = 1,
			    .vmm_pid = 77 },
	};
}

static void end(struct boot *boot)
{
	char command[128];

	ring_destroy(boot->ring);
	flat_guest_destroy(&boot->guest);
	pthread_mutex_destroy(&boot->lock);
	snprintf(command, sizeof(command), "rm -rf %s", boot->directory);
	CHECK_EQUAL(system(command), 0);
}

static void wait_for(struct boot *boot, uint64_t text, unsigned int published)
{
	for (int i = 0;
	     atomic_load(&boot->text) != text || atomic_load(&boot->published) < published; i++) {
		if (i == WAIT_MS) { /* no later check makes sense */
			fprintf(stderr,
				"waited in vain for kernel %u, at %#llx: there were %u, the latest at %#llx\n",
				published, (unsigned long long)text, atomic_load(&boot->published),
				(unsigned long long)atomic_load(&boot->text));
			abort();
		}
		usleep(1000);
	}
}

static uint64_t count_stops(struct boot *boot)
{
	uint64_t stops;

	pthread_mutex_lock(&boot->lock);
	stops = boot->stops;
	pthread_mutex_unlock(&boot->lock);
	return stops;
}

/* The collector has checked the kernel that it published: it reads the registers first, each
 * time. */
static void wait_for_look(struct boot *boot)
{
	uint64_t before = count_stops(boot);

	while (count_stops(boot) < before + 2)
		usleep(1000);
}

static void run_kernel(struct boot *boot, const struct kernel_guest_location *place)
{
	pthread_mutex_lock(&boot->lock);
	kernel_guest_start(&boot->guest, KALLSYMS_6_12, place);
	boot->stopped = false;
	pthread_mutex_unlock(&boot->lock);
}

static uint64_t sample_time(void)
{
	return clock_ns(CLOCK_MONOTONIC_RAW);
}

/* At RIP in the kernel, called from the byte after it. */
static void push(struct boot *boot, uint64_t rip, uint8_t flags)
{
	bool chain = !(flags & SAMPLE_OTHER_KERNEL);
	struct sample *sample = ring_reserve(boot->ring, RECORD_SAMPLE, sample_size(chain ? 2 : 0));

	REQUIRE(sample);
	*sample = (struct sample){ .time = sample_time(),
				   .period = 1000,
				   .pid = SAMPLE_TASK_UNKNOWN,
				   .tid = SAMPLE_TASK_UNKNOWN,
				   .flags = flags,
				   .kernel_depth = chain ? 2 : 0,
				   .rip = rip };
	if (chain) {
		sample->callchain[0] = rip;
		sample->callchain[1] = rip + 1;
	}
	ring_commit(boot->ring, sample);
	ring_publish(boot->ring);
}

/*
 * Returns the number of files once it is at least WANTED. The collector updates it at the end of
 * each pass.
 */
static unsigned int wait_for_files(const struct boot *boot, unsigned int wanted)
{
	struct collector_statistics statistics;

	do {
		usleep(1000);
		collector_statistics(boot->collector, &statistics);
	} while (statistics.files < wanted);
	return statistics.files;
}

/* What a file has. */
struct content {
	unsigned int kernels, named, unnamed;
	uint64_t text, addresses; /* addresses: sum of the RIPs */
	uint64_t other;           /* as its counts of losses say */
	bool chains;              /* of those that are unnamed */
};

static int see_sample(void *context, const struct perf_data_sample *sample)
{
	struct content *content = context;
	bool named = sample->misc != PERF_RECORD_MISC_CPUMODE_UNKNOWN;

	content->named += named;
	content->unnamed += !named;
	content->chains |= !named && sample->callchain_size;
	content->addresses += sample->ip;
	return 0;
}

static int see_mapping(void *context, const struct perf_data_mapping_event *mapping)
{
	struct content *content = context;

	if (strcmp(mapping->name, "[kernel.kallsyms]_text") != 0)
		return 0;
	content->kernels++;
	content->text = mapping->start;
	return 0;
}

static struct content read_content(const char *path)
{
	struct content content = { 0 };
	struct perf_data_reader *reader;

	if (perf_data_reader_open(&reader, path)) {
		FAIL_TEST("no recording in %s", path);
		return content;
	}
	CHECK_EQUAL(perf_data_reader_run(reader, &(struct perf_data_events){ .sample = see_sample,
									     .mapping = see_mapping,
									     .context = &content }),
		    0);
	content.other = perf_data_reader_summary(reader)->losses.counts[LOSS_OTHER_KERNEL];
	perf_data_reader_close(reader);
	return content;
}

static const char *second_path(const struct boot *boot)
{
	static char path[160];

	snprintf(path, sizeof(path), "%s.1", boot->path);
	return path;
}

/* One kernel, and samples in it; what was sampled between is in the first file, without a name. */
static void check_two_files(const struct boot *boot, unsigned int between)
{
	struct content one = read_content(boot->path), other = read_content(second_path(boot));

	CHECK_EQUAL(one.kernels, 1);
	CHECK_EQUAL(one.text, TEXT);
	CHECK_EQUAL(one.named, 1);
	CHECK_EQUAL(one.unnamed, between);
	CHECK_EQUAL(one.other, between);
	CHECK(!one.chains);
	CHECK_EQUAL(other.kernels, 1);
	CHECK_EQUAL(other.text, MOVED);
	CHECK_EQUAL(other.named, 1);
	CHECK_EQUAL(other.unnamed, 0);
	CHECK_EQUAL(other.other, 0);
	CHECK_EQUAL(other.addresses, MOVED + 0x2000);
}

TEST(collector_boot, kernel_of_a_kexec_gets_a_file_of_its_own)
{
	struct collector_statistics statistics;
	struct boot boot;

	begin(&boot);
	REQUIRE_EQUAL(collector_start(&boot.collector, &boot.options), 0);
	wait_for(&boot, TEXT, 1);
	push(&boot, TEXT + 0x2000, 0);
	/* As the sampler sees it before anybody else does. */
	push(&boot, TEXT + 0x3000, SAMPLE_OTHER_KERNEL);
	run_kernel(&boot, &moved);
	wait_for(&boot, MOVED, 2);
	CHECK_EQUAL(atomic_load(&boot.lost), 1);
	push(&boot, MOVED + 0x2000, 0);
	CHECK_EQUAL(wait_for_files(&boot, 2), 2);
	CHECK_EQUAL(collector_stop(boot.collector, &statistics), 0);
	CHECK_EQUAL(statistics.samples, 3);
	CHECK_EQUAL(statistics.losses.counts[LOSS_OTHER_KERNEL], 1);
	check_two_files(&boot, 1);
	end(&boot);
}

/* Away for a while, as under the page tables of firmware: it is known again, and all stays in one
 * file. */
TEST(collector_boot, kernel_that_comes_back_is_the_same)
{
	struct guest_registers registers;
	struct boot boot;
	uint64_t empty;

	begin(&boot);
	REQUIRE_EQUAL(collector_start(&boot.collector, &boot.options), 0);
	wait_for(&boot, TEXT, 1);
	registers = boot.guest.registers;
	empty = flat_guest_table(&boot.guest);
	pthread_mutex_lock(&boot.lock);
	boot.guest.registers.paging.cr3 = empty;
	pthread_mutex_unlock(&boot.lock);
	while (!atomic_load(&boot.lost))
		usleep(1000);
	pthread_mutex_lock(&boot.lock);
	boot.guest.registers = registers;
	pthread_mutex_unlock(&boot.lock);
	wait_for(&boot, TEXT, 2);
	CHECK_EQUAL(wait_for_files(&boot, 1), 1);
	CHECK_EQUAL(collector_stop(boot.collector, NULL), 0);
	CHECK(access(second_path(&boot), F_OK) < 0);
	end(&boot);
}

/* The page tables of an ended process are freed, maybe before the collector reads them. */
TEST(collector_boot, one_stop_under_tables_that_are_gone_proves_nothing)
{
	struct boot boot;
	uint64_t empty;

	begin(&boot);
	REQUIRE_EQUAL(collector_start(&boot.collector, &boot.options), 0);
	wait_for(&boot, TEXT, 1);
	empty = flat_guest_table(&boot.guest);
	pthread_mutex_lock(&boot.lock);
	boot.still = true;
	boot.guest.registers.paging.cr3 = empty;
	pthread_mutex_unlock(&boot.lock);
	usleep(400000); /* eight passes */
	CHECK_EQUAL(atomic_load(&boot.lost), 0);
	pthread_mutex_lock(&boot.lock);
	boot.still = false;
	pthread_mutex_unlock(&boot.lock);
	while (!atomic_load(&boot.lost))
		usleep(1000);
	CHECK_EQUAL(collector_stop(boot.collector, NULL), 0);
	end(&boot);
}

/* Without KASLR the next boot of a kernel lies where the one before did. */
TEST(collector_boot, restarted_kernel_at_the_same_address_is_detected_by_its_clock)
{
	const uint64_t ticks = first.gpa + KERNEL_GUEST_PAGE + KERNEL_GUEST_TICKS;
	struct boot boot;

	begin(&boot);
	flat_guest_write_u64(&boot.guest, ticks, 5000);
	REQUIRE_EQUAL(collector_start(&boot.collector, &boot.options), 0);
	wait_for(&boot, TEXT, 1);
	wait_for_look(&boot);
	pthread_mutex_lock(&boot.lock);
	flat_guest_write_u64(&boot.guest, ticks, 100);
	pthread_mutex_unlock(&boot.lock);
	wait_for(&boot, TEXT, 2);
	CHECK_EQUAL(atomic_load(&boot.lost), 1);
	CHECK_EQUAL(wait_for_files(&boot, 2), 2);
	CHECK_EQUAL(collector_stop(boot.collector, NULL), 0);
	CHECK_EQUAL(read_content(second_path(&boot)).text, TEXT);
	end(&boot);
}

TEST(collector_boot, reset_completes_the_file_and_begins_the_next)
{
	struct boot boot;

	begin(&boot);
	REQUIRE_EQUAL(collector_start(&boot.collector, &boot.options), 0);
	wait_for(&boot, TEXT, 1);
	push(&boot, TEXT + 0x2000, 0);
	pthread_mutex_lock(&boot.lock);
	boot.stopped = true;
	pthread_mutex_unlock(&boot.lock);
	collector_reset(boot.collector);
	CHECK_EQUAL(atomic_load(&boot.lost), 1);
	CHECK_EQUAL(atomic_load(&boot.text), 0);
	CHECK_EQUAL(wait_for_files(&boot, 2), 2);
	run_kernel(&boot, &moved);
	wait_for(&boot, MOVED, 3);
	push(&boot, MOVED + 0x2000, 0);
	CHECK_EQUAL(collector_stop(boot.collector, NULL), 0);
	check_two_files(&boot, 0);
	end(&boot);
}

/* Nothing can follow a stream: the names in it stay those of the first kernel, and others have
 * none. */
TEST(collector_boot, stream_has_names_of_the_first_kernel_alone)
{
	struct content content;
	struct boot boot;
	char command[256];

	begin(&boot);
	snprintf(command, sizeof(command), "%s/pipe", boot.directory);
	REQUIRE_EQUAL(mkfifo(command, 0600), 0);
	snprintf(command, sizeof(command), "cat %s/pipe > %s/perf.data & true", boot.directory,
		 boot.directory);
	REQUIRE_EQUAL(system(command), 0);
	snprintf(command, sizeof(command), "%s/pipe", boot.directory);
	boot.options.output.path = command;
	REQUIRE_EQUAL(collector_start(&boot.collector, &boot.options), 0);
	wait_for(&boot, TEXT, 1);
	push(&boot, TEXT + 0x2000, 0);
	run_kernel(&boot, &moved);
	wait_for(&boot, MOVED, 2);
	push(&boot, MOVED + 0x2000, 0);
	CHECK_EQUAL(collector_stop(boot.collector, NULL), 0);
	do {
		usleep(1000);
		content = read_content(boot.path);
	} while (content.named + content.unnamed < 2);
	CHECK_EQUAL(content.kernels, 1);
	CHECK_EQUAL(content.text, TEXT);
	CHECK_EQUAL(content.named, 1);
	CHECK_EQUAL(content.unnamed, 1);
	CHECK(!content.chains);
	end(&boot);
}

TEST(collector_boot, number_of_files_is_limited_for_a_guest_that_reboots_endlessly)
{
	struct collector_statistics statistics;
	struct boot boot;

	begin(&boot);
	boot.stopped = true;
	log_quiet(true);
	REQUIRE_EQUAL(collector_start(&boot.collector, &boot.options), 0);
	for (int i = 0; i < 1010; i++)
		collector_reset(boot.collector);
	CHECK_EQUAL(collector_stop(boot.collector, &statistics), 0);
	log_quiet(false);
	CHECK_EQUAL(statistics.files, 1000);
	end(&boot);
}

/* As a vCPU that takes its samples by the kernel that was the newest when settle() came back last.
 */
static void settle(void *context)
{
	struct boot *boot = context;

	CHECK(!boot->used || boot->used->text_start == boot->used_text);
	boot->used = boot->newest;
	boot->used_text = boot->used ? boot->used->text_start : 0;
}

/* It takes no samples, and what is kept for it is not without end for that. */
TEST(collector_boot, a_kernel_is_kept_for_those_who_use_it)
{
	const struct kernel_guest_location *places[] = { &first, &moved };
	struct boot boot;

	begin(&boot);
	boot.options.settle = settle;
	log_quiet(true);
	REQUIRE_EQUAL(collector_start(&boot.collector, &boot.options), 0);
	wait_for(&boot, TEXT, 1);
	for (unsigned int i = 1; i < 6; i++) {
		run_kernel(&boot, places[i % 2]);
		wait_for(&boot, i % 2 ? MOVED : TEXT, i + 1);
	}
	CHECK_EQUAL(collector_stop(boot.collector, NULL), 0);
	log_quiet(false);
	end(&boot);
}
