/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/collector.h"
#include "vmm/record/collector_kernel_parts.h"
#include "vmm/record/collector_modules.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "shared/sample_record.h"
#include "tests/unit/fake_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/record/file_state_parts.h"

#define RINGS  2
#define PUSHES 60000u

struct counts {
	uint64_t samples, lost, comms, kernel_maps, program_maps;
	uint64_t last_time[RINGS];
	uint64_t text;
	bool out_of_order;
};

static int count_sample(void *context, const struct perf_data_sample *sample)
{
	struct counts *counts = context;

	counts->samples++;
	counts->out_of_order |=
		sample->cpu >= RINGS || sample->time <= counts->last_time[sample->cpu];
	counts->last_time[sample->cpu % RINGS] = sample->time;
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

	if (!strcmp(mapping->name, "[kernel.kallsyms]_text")) {
		counts->kernel_maps++;
		counts->text = mapping->start;
		CHECK_EQUAL(mapping->offset, mapping->start);
		CHECK_EQUAL(mapping->build_id_size, 20);
	}
	counts->program_maps += *mapping->name == '/';
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
	perf_data_reader_close(reader);
}

static bool no_registers(void *context, struct guest_registers *registers)
{
	return false;
}

static void push(struct ring *ring, unsigned int vcpu, unsigned int number)
{
	struct sample *sample = ring_reserve(ring, RECORD_SAMPLE, sample_size(3));

	if (!sample)
		return;
	*sample = (struct sample){
		.time = 1000 + number,
		.period = 1000,
		.vcpu = vcpu,
		.host_tid = 100 + vcpu,
		.cost = 7,
		.pid = SAMPLE_TASK_UNKNOWN,
		.tid = SAMPLE_TASK_UNKNOWN,
		.kernel_depth = 2,
		.user_depth = 1,
		.rip = FAKE_TEXT,
	};
	for (int i = 0; i < 3; i++)
		sample->callchain[i] = FAKE_TEXT + (unsigned int)i;
	ring_commit(ring, sample);
	ring_publish(ring);
}

struct pusher {
	struct ring *ring;
	unsigned int vcpu;
};

static void *push_all(void *argument)
{
	struct pusher *pusher = argument;

	for (unsigned int i = 0; i < PUSHES; i++)
		push(pusher->ring, pusher->vcpu, i);
	ring_flush(pusher->ring);
	return NULL;
}

static void push_from_threads(struct ring *const *rings)
{
	struct pusher pushers[RINGS];
	pthread_t threads[RINGS];

	for (unsigned int i = 0; i < RINGS; i++) {
		pushers[i] = (struct pusher){ rings[i], i };
		pthread_create(&threads[i], NULL, push_all, &pushers[i]);
	}
	for (unsigned int i = 0; i < RINGS; i++)
		pthread_join(threads[i], NULL);
}

struct setting {
	char directory[64], path[128];
	char former_home[1024];
	struct ring *rings[RINGS];
	struct fake_guest guest;
	struct collector_options options;
};

static void prepare(struct setting *setting)
{
	memset(setting, 0, sizeof(*setting));
	strcpy(setting->directory, "/tmp/kvmscope-test-XXXXXX");
	if (!mkdtemp(setting->directory))
		abort();
	snprintf(setting->former_home, sizeof(setting->former_home), "%s",
		 getenv("HOME") ? getenv("HOME") : "/");
	setenv("HOME", setting->directory, 1);
	snprintf(setting->path, sizeof(setting->path), "%s/perf.data", setting->directory);
	fake_guest_make(&setting->guest, 0x11, 0, FAKE_MODULE);
	for (int i = 0; i < RINGS; i++)
		CHECK_EQUAL(ring_create(&setting->rings[i], RING_SIZE_MIN), 0);
	setting->options = (struct collector_options){
		.rings = setting->rings,
		.ring_count = RINGS,
		.view = &setting->guest.view,
		.registers = no_registers,
		.output = { .path = setting->path,
			    .frequency = 1000,
			    .callchains = true,
			    .vcpus = RINGS,
			    .vmm_pid = 77 },
		.buildid_cache = true,
	};
}

static void clean_up(struct setting *setting)
{
	char command[128];

	for (int i = 0; i < RINGS; i++)
		ring_destroy(setting->rings[i]);
	fake_guest_free(&setting->guest);
	setenv("HOME", setting->former_home, 1);
	snprintf(command, sizeof(command), "rm -rf %s", setting->directory);
	CHECK_EQUAL(system(command), 0);
}

TEST(collector, every_sample_is_written_or_counted_as_lost)
{
	struct collector_statistics statistics;
	struct collector *collector;
	struct setting setting;
	struct counts counts;

	prepare(&setting);
	REQUIRE_EQUAL(collector_start(&collector, &setting.options), 0);
	push_from_threads(setting.rings);
	CHECK_EQUAL(collector_stop(collector, &statistics), 0);
	read_counts(setting.path, &counts);
	CHECK_EQUAL(statistics.samples + statistics.lost, RINGS * PUSHES);
	CHECK_EQUAL(statistics.readable, statistics.samples);
	CHECK(!statistics.ended);
	CHECK_EQUAL(statistics.kernel, statistics.samples);
	CHECK_EQUAL(statistics.cost, 7 * statistics.samples);
	CHECK_EQUAL(statistics.weight, 1000 * statistics.samples);
	CHECK(!statistics.kernel_found);
	CHECK_EQUAL(counts.samples, statistics.samples);
	CHECK_EQUAL(counts.lost, statistics.lost);
	CHECK_EQUAL(counts.comms, RINGS);
	CHECK_EQUAL(counts.kernel_maps, 0);
	CHECK(!counts.out_of_order);
	clean_up(&setting);
}

static void write_kallsyms(const struct fake_guest *guest, const char *path)
{
	FILE *file = fopen(path, "w");
	struct symbol symbol;

	for (size_t i = 0; i < symbols_count(guest->symbols); i++) {
		symbols_at(guest->symbols, i, &symbol);
		if (!symbol.module)
			fprintf(file, "%016llx %c %s\n", (unsigned long long)symbol.start,
				symbol.type, symbol.name);
	}
	fclose(file);
}

TEST(collector, given_names_are_mapped_and_cached)
{
	char kallsyms[128], command[256];
	struct collector_statistics statistics;
	struct collector *collector;
	struct setting setting;
	struct counts counts;

	prepare(&setting);
	snprintf(kallsyms, sizeof(kallsyms), "%s/kallsyms", setting.directory);
	write_kallsyms(&setting.guest, kallsyms);
	setting.options.kallsyms = kallsyms;
	REQUIRE_EQUAL(collector_start(&collector, &setting.options), 0);
	push(setting.rings[0], 0, 1);
	CHECK_EQUAL(collector_stop(collector, &statistics), 0);
	CHECK(statistics.kernel_found);
	read_counts(setting.path, &counts);
	CHECK_EQUAL(counts.kernel_maps, 1);
	CHECK_EQUAL(counts.text, FAKE_TEXT);
	snprintf(
		command, sizeof(command),
		"grep -q 'guest_function_5$' '%s'/.debug/'[kernel.kallsyms]'/*/kallsyms && test -L '%s'/.debug/.build-id/*/*",
		setting.directory, setting.directory);
	CHECK_EQUAL(system(command), 0);
	clean_up(&setting);
}

static void add_line(struct symbols *symbols, uint64_t address, const char *name,
		     const char *module)
{
	REQUIRE_EQUAL(symbols_add(symbols, address, 16, 't', name, module), 0);
}

/* They are of another boot, in which the kernel lay elsewhere: modules do not move with it. */
TEST(collector, given_names_that_are_moved_are_none_of_modules)
{
	const struct collector_options options = { 0 };
	struct collector_kernel kernel = { .options = &options, .given = symbols_new() };
	struct guest_kernel found = { .text_start = FAKE_TEXT + 0x200000 };
	struct symbol symbol;

	add_line(kernel.given, FAKE_TEXT, "_text", NULL);
	add_line(kernel.given, FAKE_TEXT + 0x1000, "_etext", NULL);
	add_line(kernel.given, FAKE_TEXT + 0x10000000, "driver_function", "driver");
	symbols_finish(kernel.given);
	REQUIRE_EQUAL(collector_image_describe(&kernel, &found), 0);
	CHECK(symbols_find_name(kernel.boot.image.symbols, "_text", &symbol));
	CHECK_EQUAL(symbol.start, found.text_start);
	CHECK_EQUAL(symbols_count(kernel.boot.image.symbols), 2);
	collector_kernel_free(&kernel);
}

TEST(collector, a_program_is_mapped_for_user_space_too)
{
	struct collector *collector;
	struct setting setting;
	struct counts counts;

	prepare(&setting);
	setting.options.vmlinux = "/proc/self/exe";
	setting.options.buildid_cache = false;
	REQUIRE_EQUAL(collector_start(&collector, &setting.options), 0);
	CHECK_EQUAL(collector_stop(collector, NULL), 0);
	read_counts(setting.path, &counts);
	CHECK_EQUAL(counts.kernel_maps, 1);
	CHECK(counts.program_maps > 0);
	clean_up(&setting);
}

#define SPACES (FILE_ROOTS_MAX + 10)

static void push_space(struct ring *ring, unsigned int number, uint64_t cr3)
{
	struct sample *sample;

	while (!(sample = ring_reserve(ring, RECORD_SAMPLE,
				       sample_size(1)))) /* until some were read */
		usleep(1000);
	*sample = (struct sample){ .time = 1000 + number,
				   .period = 1000,
				   .host_tid = 100,
				   .pid = SAMPLE_TASK_UNKNOWN,
				   .tid = SAMPLE_TASK_UNKNOWN,
				   .cpl = 3,
				   .rip = (uintptr_t)push_space,
				   .cr3 = cr3,
				   .user_depth = 1 };
	sample->callchain[0] = sample->rip;
	ring_commit(ring, sample);
	ring_publish(ring);
}

struct spaces {
	uint32_t pids[SPACES]; /* by the number of the sample */
	unsigned int samples, named, of_vcpu;
};

static int see_space(void *context, const struct perf_data_sample *sample)
{
	struct spaces *spaces = context;

	if (spaces->samples < SPACES)
		spaces->pids[spaces->samples] = sample->pid;
	spaces->samples++;
	return 0;
}

static int see_name(void *context, uint32_t pid, uint32_t tid, const char *comm, uint64_t time)
{
	struct spaces *spaces = context;

	spaces->named += !strncmp(comm, "cr3 ", 4);
	spaces->of_vcpu += !strcmp(comm, "vcpu 0");
	return 0;
}

static void read_spaces(const char *path, struct spaces *spaces, struct losses *losses)
{
	struct perf_data_events events = { .sample = see_space,
					   .comm = see_name,
					   .context = spaces };
	struct perf_data_reader *reader;

	*spaces = (struct spaces){ 0 };
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	*losses = perf_data_reader_summary(reader)->losses;
	perf_data_reader_close(reader);
}

/* Page tables distinguish the programs of a guest that is not Linux, up to a limit. */
TEST(collector, page_tables_of_a_program_are_its_processes)
{
	struct collector *collector;
	struct setting setting;
	struct losses losses = { 0 };
	struct spaces spaces;

	prepare(&setting);
	setting.options.vmlinux = "/proc/self/exe";
	setting.options.buildid_cache = false;
	REQUIRE_EQUAL(collector_start(&collector, &setting.options), 0);
	push_space(setting.rings[0], 0, 0x1ff000);
	push_space(setting.rings[0], 1, 0x200000);
	push_space(setting.rings[0], 2,
		   0x1ff000 | 0x18 | 1ull << 61); /* the same, used otherwise */
	push_space(setting.rings[0], 3, 0);       /* not known */
	push_space(setting.rings[0], 4, 5ull << 40);
	for (unsigned int i = 5; i < SPACES; i++)
		push_space(setting.rings[0], i, 0x10000000ull + i * 0x1000);
	ring_flush(setting.rings[0]);
	CHECK_EQUAL(collector_stop(collector, NULL), 0);
	read_spaces(setting.path, &spaces, &losses);
	REQUIRE_EQUAL(spaces.samples, SPACES);
	CHECK(spaces.pids[0] > SAMPLE_TASK_LIMIT);
	CHECK(spaces.pids[0] != spaces.pids[1]);
	CHECK_EQUAL(spaces.pids[2], spaces.pids[0]);
	CHECK_EQUAL(spaces.pids[3], SAMPLE_TASK_LIMIT);
	CHECK_EQUAL(spaces.pids[4], SAMPLE_TASK_LIMIT);
	CHECK_EQUAL(spaces.pids[SPACES - 1], SAMPLE_TASK_LIMIT);
	CHECK_EQUAL(spaces.named, FILE_ROOTS_MAX);
	CHECK_EQUAL(spaces.of_vcpu, 1);
	CHECK_EQUAL(losses.counts[LOSS_CR3_UNKNOWN], 1 + SPACES - 5 - (FILE_ROOTS_MAX - 2));
	clean_up(&setting);
}

/* It may be a Linux whose tasks are unknown: CR3 does not name a process then. */
TEST(collector, page_tables_are_no_processes_of_what_may_be_a_Linux)
{
	struct collector *collector;
	struct setting setting;
	struct losses losses = { 0 };
	struct spaces spaces;

	prepare(&setting);
	REQUIRE_EQUAL(collector_start(&collector, &setting.options), 0);
	push_space(setting.rings[0], 0, 0x1ff000);
	ring_flush(setting.rings[0]);
	CHECK_EQUAL(collector_stop(collector, NULL), 0);
	read_spaces(setting.path, &spaces, &losses);
	REQUIRE_EQUAL(spaces.samples, 1);
	CHECK_EQUAL(spaces.pids[0], SAMPLE_TASK_LIMIT);
	CHECK_EQUAL(spaces.named, 0);
	CHECK_EQUAL(losses.counts[LOSS_CR3_UNKNOWN], 0);
	clean_up(&setting);
}

TEST(collector, no_buildid_cache_leaves_it_alone)
{
	char kallsyms[128], cache[128];
	struct collector *collector;
	struct setting setting;

	prepare(&setting);
	snprintf(kallsyms, sizeof(kallsyms), "%s/kallsyms", setting.directory);
	snprintf(cache, sizeof(cache), "%s/.debug", setting.directory);
	write_kallsyms(&setting.guest, kallsyms);
	setting.options.kallsyms = kallsyms;
	setting.options.buildid_cache = false;
	REQUIRE_EQUAL(collector_start(&collector, &setting.options), 0);
	CHECK_EQUAL(collector_stop(collector, NULL), 0);
	CHECK(access(cache, F_OK) < 0);
	clean_up(&setting);
}

static void push_guest_lost(struct ring *ring, uint32_t vcpu, uint32_t count)
{
	struct sample_guest_breakpoint_lost *record =
		ring_reserve(ring, RECORD_GUEST_BREAKPOINT_LOST, sizeof(*record));

	REQUIRE(record);
	*record =
		(struct sample_guest_breakpoint_lost){ .time = 1000, .vcpu = vcpu, .count = count };
	ring_commit(ring, record);
	ring_publish(ring);
}

TEST(collector, breakpoints_that_the_guest_lost_are_counted)
{
	struct collector_statistics statistics;
	struct perf_data_reader *reader;
	struct collector *collector;
	struct setting setting;

	prepare(&setting);
	REQUIRE_EQUAL(collector_start(&collector, &setting.options), 0);
	push_guest_lost(setting.rings[0], 0, 1);
	push_guest_lost(setting.rings[1], 1, 2);
	push_guest_lost(setting.rings[1], RINGS, 50); /* a vCPU that there is not */
	CHECK_EQUAL(collector_stop(collector, &statistics), 0);
	CHECK_EQUAL(statistics.losses.counts[LOSS_GUEST_BREAKPOINT], 3);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, setting.path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &(struct perf_data_events){ 0 }), 0);
	CHECK_EQUAL(perf_data_reader_summary(reader)->losses.counts[LOSS_GUEST_BREAKPOINT], 3);
	perf_data_reader_close(reader);
	clean_up(&setting);
}

TEST(collector, errors_report_what_failed)
{
	struct collector *collector;
	struct setting setting;

	prepare(&setting);
	setting.options.kallsyms = "/nonexistent/kallsyms";
	CHECK_EQUAL(collector_start(&collector, &setting.options), -ENOENT);
	CHECK(strstr(error_message(), "/nonexistent/kallsyms"));
	setting.options.kallsyms = NULL;
	setting.options.output.path = "/nonexistent/perf.data";
	CHECK_EQUAL(collector_start(&collector, &setting.options), -ENOENT);
	CHECK(strstr(error_message(), "/nonexistent/perf.data"));
	clean_up(&setting);
}

/* In a process whose files may not grow beyond 64 KiB; gives 0 if all is as it should be. WRITTEN:
 * samples that are said to be in the file. */
static int record_too_much(struct setting *setting, uint64_t *written)
{
	const struct rlimit limit = { 65536, 65536 };
	struct collector_statistics statistics;
	struct collector *collector;

	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &limit);
	log_quiet(true);
	if (collector_start(&collector, &setting->options))
		return 1;
	push_from_threads(setting->rings);
	if (collector_stop(collector, &statistics) != -EFBIG ||
	    !strstr(error_message(), setting->path))
		return 2;
	*written = statistics.readable;
	if (!statistics.ended)
		return 5;
	return statistics.samples + statistics.lost == RINGS * PUSHES ? 0 : 3;
}

TEST(collector, a_full_disk_is_reported_and_the_rings_are_drained)
{
	struct counts counts = { 0 };
	struct perf_data_reader *reader;
	struct setting setting;
	uint64_t *written;
	int status;
	pid_t child;

	written = mmap(NULL, sizeof(*written), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	REQUIRE(written != MAP_FAILED);
	prepare(&setting);
	setting.options.output.path = "/dev/full";
	CHECK_EQUAL(collector_start(&(struct collector *){ NULL }, &setting.options), -ENOSPC);
	setting.options.output.path = setting.path;
	child = fork();
	if (!child) {
		if (!freopen("/dev/null", "w", stderr))
			_exit(4);
		_exit(record_too_much(&setting, written));
	}
	waitpid(child, &status, 0);
	CHECK_EQUAL(status, 0);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, setting.path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &(struct perf_data_events){ .sample = count_sample,
									     .context = &counts }),
		    0);
	CHECK(perf_data_reader_summary(reader)->cut_off);
	if (counts.samples < *written)
		FAIL_TEST("%llu of %llu samples are in the file",
			  (unsigned long long)counts.samples, (unsigned long long)*written);
	perf_data_reader_close(reader);
	munmap(written, sizeof(*written));
	clean_up(&setting);
}

/* A kernel of which only the modules and their symbols matter; a module starts at START, 0: it is
 * not loaded.
 */
static struct guest_kernel *kernel_with(uint64_t first, uint64_t second)
{
	static const char *const names[] = { "first", "second" };
	const uint64_t starts[] = { first, second };
	struct guest_kernel *kernel = calloc(1, sizeof(*kernel));

	kernel->modules = calloc(2, sizeof(*kernel->modules));
	kernel->symbols = symbols_new();
	for (int i = 0; i < 2; i++) {
		char name[16];

		if (!starts[i])
			continue;
		snprintf(name, sizeof(name), "%s_function", names[i]);
		symbols_add(kernel->symbols, starts[i], 16, 't', name, names[i]);
		strcpy(kernel->modules[kernel->module_count].name, names[i]);
		kernel->modules[kernel->module_count].start = starts[i];
		kernel->modules[kernel->module_count++].size = 4096;
	}
	symbols_finish(kernel->symbols);
	return kernel;
}

static int update_modules(struct collector_modules *modules, const struct guest_kernel *older,
			  const struct guest_kernel *newer)
{
	const struct collector_scan none = { 0 };
	int error =
		collector_modules_scan(modules, newer->modules, newer->module_count, &none, &none);

	return error ? error : collector_modules_update(modules, older, newer);
}

static void free_kernel(struct guest_kernel *kernel)
{
	symbols_free(kernel->symbols);
	free(kernel->modules);
	free(kernel);
}

TEST(collector, unloaded_modules_keep_their_names)
{
	struct guest_kernel *both = kernel_with(0x1000, 0x2000), *one = kernel_with(0x1000, 0);
	struct guest_kernel *none = kernel_with(0, 0), *back = kernel_with(0x1000, 0x9000);
	struct collector_modules modules = { 0 };
	struct symbol symbol;

	CHECK_EQUAL(update_modules(&modules, NULL, both), 0);
	CHECK_EQUAL(modules.count, 2);
	CHECK(!modules.unloaded);
	CHECK_EQUAL(update_modules(&modules, both, one), 0);
	CHECK_EQUAL(modules.count, 2);
	CHECK_EQUAL(update_modules(&modules, one, none), 0);
	CHECK_EQUAL(modules.count, 2);
	REQUIRE(modules.unloaded);
	CHECK_EQUAL(symbols_count(modules.unloaded), 2);
	CHECK(symbols_find(modules.unloaded, 0x2004, &symbol) &&
	      !strcmp(symbol.name, "second_function"));
	CHECK(symbols_find(modules.unloaded, 0x1004, &symbol) && !strcmp(symbol.module, "first"));
	CHECK_EQUAL(update_modules(&modules, none, both), 0);
	CHECK_EQUAL(update_modules(&modules, both, none), 0);
	CHECK_EQUAL(symbols_count(modules.unloaded), 2);
	CHECK_EQUAL(update_modules(&modules, none, back), 0);
	CHECK_EQUAL(modules.count, 2);
	CHECK_EQUAL(modules.modules[1].start, 0x2000);
	CHECK(!modules.gone[0] && modules.gone[1]);
	collector_modules_free(&modules);
	free_kernel(both);
	free_kernel(one);
	free_kernel(none);
	free_kernel(back);
}

/* A reference count, then sysname, nodename, release, as in Linux 5.10. */
static void write_utsname(struct fake_guest *guest, const char *nodename)
{
	char *place = (char *)fake_guest_code(guest) + 0x9000;

	memset(place, 0, 512);
	strcpy(place + 4, "Linux");
	strcpy(place + 4 + 65, nodename);
	strcpy(place + 4 + 130, "6.1.0-test");
}

TEST(collector, finds_the_guest_s_hostname)
{
	char hostname[COLLECTOR_HOSTNAME_SIZE];
	struct guest_kernel kernel = { .release = "6.1.0-test", .symbols = symbols_new() };
	struct fake_guest guest;

	fake_guest_make(&guest, 0x11, 0, FAKE_MODULE);
	kernel.paging = guest.paging;
	symbols_add(kernel.symbols, FAKE_TEXT + 0x9000, 0, 'D', "init_uts_ns", NULL);
	symbols_finish(kernel.symbols);
	write_utsname(&guest, "web-1.example");
	CHECK_EQUAL(collector_hostname(&kernel, &guest.view, hostname), 0);
	CHECK_STRING(hostname, "web-1.example");
	write_utsname(&guest, "(none)");
	CHECK_EQUAL(collector_hostname(&kernel, &guest.view, hostname), -ENOENT);
	write_utsname(&guest, "a\nb");
	CHECK_EQUAL(collector_hostname(&kernel, &guest.view, hostname), -ENOENT);
	strcpy(kernel.release, "6.2.0");
	write_utsname(&guest, "web-1");
	CHECK_EQUAL(collector_hostname(&kernel, &guest.view, hostname), -ENOENT);
	symbols_free(kernel.symbols);
	fake_guest_free(&guest);
}
