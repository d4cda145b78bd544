/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples per second through the resolver on one core, mixed with the events of busy processes, and
 * the size of a sample in the file compared with perf's own records of the same content.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/bench/bench.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/resolve/resolver.h"

#define VCPUS     4u
#define SAMPLES   bench_size(3000000u, 100000)
#define PROCESSES 200u
#define MAPPINGS  24u
#define DEPTH     8u
#define REUSED    4096u /* samples that are reused in turn */
#define LIBRARY   0x7f0000000000ull
#define OUTPUT    "build/bench/resolver.data"
#define PERF_DATA "build/bench/resolver-perf.data"

static uint64_t state = 1;

static uint32_t next_random(uint32_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33) % below;
}

/* Sum of the results, so that the compiler cannot drop anything as unused. */
struct sum {
	uint64_t samples, mapped;
};

static void count(void *context, const struct attributed_sample *sample)
{
	struct sum *sum = context;

	sum->samples++;
	sum->mapped += sample->mapping.image != NULL;
}

static uint32_t time_error; /* ns, of all events */

static void map(struct resolver *resolver, uint64_t time, uint32_t pid, uint32_t number)
{
	struct {
		struct sideband_mmap mmap;
		char name[40];
	} record = { 0 };

	record.mmap.head = (struct sideband){ .size = sizeof(record),
					      .type = SIDEBAND_MMAP,
					      .time = time,
					      .time_error = time_error,
					      .pid = pid,
					      .tid = pid };
	record.mmap.start = LIBRARY + number * 0x400000ull;
	record.mmap.length = 0x300000;
	record.mmap.prot = PROT_READ | PROT_EXEC;
	snprintf(record.name, sizeof(record.name), "/usr/lib/lib%u.so", number);
	resolver_sideband(resolver, VCPUS, &record.mmap.head);
}

static void exec(struct resolver *resolver, uint64_t time, uint32_t pid)
{
	struct sideband_comm comm = { .head = { .size = sizeof(comm),
						.type = SIDEBAND_COMM,
						.flags = SIDEBAND_COMM_EXEC,
						.time = time,
						.time_error = time_error,
						.pid = pid,
						.tid = pid },
				      .comm = "program" };

	resolver_sideband(resolver, VCPUS, &comm.head);
	for (uint32_t i = 0; i < MAPPINGS; i++)
		map(resolver, time, pid, i);
}

static uint64_t code_in(uint32_t mapping)
{
	return LIBRARY + mapping * 0x400000ull + next_random(0x300000);
}

/* As a ring delivers them; created before the clock starts. */
static struct samples {
	struct sample sample;
	uint64_t chain[DEPTH];
} reused[REUSED];

/* All addresses differ. A chain passes through a library, its caller and a program. */
static void make_samples(uint16_t depth)
{
	for (size_t i = 0; i < REUSED; i++) {
		struct sample *sample = &reused[i].sample;

		*sample =
			(struct sample){ .period = 1000000, .vcpu = next_random(VCPUS), .cpl = 3 };
		sample->pid = sample->tid = 1 + next_random(PROCESSES);
		strcpy(sample->comm, "program");
		sample->user_depth = depth;
		for (uint32_t j = 0, mapping = 0; j < depth; j++) {
			if (j % 3 == 0)
				mapping = next_random(MAPPINGS);
			reused[i].chain[j] = code_in(mapping);
		}
		sample->rip = reused[i].chain[0];
	}
}

static void push(struct resolver *resolver, uint32_t number, uint64_t time)
{
	struct sample *sample = &reused[number % REUSED].sample;

	sample->time = time;
	resolver_sample(resolver, sample->vcpu, sample);
}

static void end_pass(struct resolver *resolver)
{
	for (uint32_t ring = 0; ring <= VCPUS; ring++)
		resolver_pass_end(resolver, ring);
	resolver_flush(resolver);
}

/*
 * One pass for each 1000 samples of 100 us; in every 500th sample a process executes a new program.
 */
static double samples_per_second(uint16_t depth)
{
	struct sum sum = { 0 };
	struct resolver *resolver;
	uint64_t begin, time = 1000000;

	make_samples(depth);
	if (resolver_create(&resolver, &(struct resolver_options){ .rings = VCPUS + 1,
								   .window = 50000000,
								   .sample = count,
								   .context = &sum }))
		return 0;
	for (uint32_t pid = 1; pid <= PROCESSES; pid++)
		exec(resolver, time, pid);
	begin = bench_time(CLOCK_THREAD_CPUTIME_ID);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		time += 100000;
		if (i % 1000 == 0)
			resolver_begin_pass(resolver, time + 100000000);
		if (i % 500 == 0)
			exec(resolver, time, 1 + next_random(PROCESSES));
		push(resolver, i, time);
		if (i % 1000 == 999)
			end_pass(resolver);
	}
	resolver_finish(resolver);
	begin = bench_time(CLOCK_THREAD_CPUTIME_ID) - begin;
	resolver_free(resolver);
	return sum.samples == SAMPLES && sum.mapped == SAMPLES
		       ? (double)SAMPLES * 1e9 / (double)begin
		       : 0;
}

static int report_speed(void)
{
	static const struct {
		uint16_t depth;
		uint32_t time_error;
		const char *what;
		struct bench_bound bound; /* M/s */
	} kinds[] = {
		{ 1, 0, "resolver: samples without call chains", { BENCH_LEAST, 3 } },
		{ DEPTH, 0, "resolver: samples with 7 callers in 3 images, all looked up", { 0 } },
		{ DEPTH, 20000, "resolver: the same, event times accurate to 20 us", { 0 } }
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		double speeds[5];

		time_error = kinds[i].time_error;
		for (size_t run = 0; run < 5; run++)
			speeds[run] = samples_per_second(kinds[i].depth) / 1e6;
		if (speeds[0] == 0)
			return -1;
		bench_print_bound(kinds[i].what, bench_median(speeds, 5), "M/s", kinds[i].bound);
	}
	return 0;
}

/* Bytes of samples without their callchain entries, which take 8 bytes each in any file. */
struct content {
	uint64_t samples, entries;
};

static int count_content(void *context, const struct perf_data_sample *read)
{
	struct content *content = context;

	content->samples++;
	content->entries += read->callchain_size;
	return 0;
}

static int read_content(const char *path, struct content *content)
{
	struct perf_data_events events = { .sample = count_content, .context = content };
	struct perf_data_reader *reader;
	int error = perf_data_reader_open(&reader, path);

	if (error)
		return error;
	error = perf_data_reader_run(reader, &events);
	perf_data_reader_close(reader);
	return error;
}

static double file_size(const char *path)
{
	struct stat status;

	return stat(path, &status) ? 0 : (double)status.st_size;
}

/* COUNT samples that alternate between kernel, user space and processes. */
static int write_file(unsigned int samples)
{
	struct perf_data_options options = {
		.path = OUTPUT, .frequency = 1000, .callchains = true, .vcpus = VCPUS, .vmm_pid = 1
	};
	struct {
		struct sample sample;
		uint64_t chain[8];
	} record = { 0 };
	struct perf_data_writer *writer;
	int error;

	unlink(OUTPUT);
	error = perf_data_writer_open(&writer, &options);
	for (unsigned int i = 0; i < samples && !error; i++) {
		record.sample.time = 1000ull * i;
		record.sample.vcpu = i % VCPUS;
		record.sample.pid = record.sample.tid = i % PROCESSES;
		record.sample.cpl = i % 2 ? 3 : 0;
		record.sample.kernel_depth = i % 2 ? 0 : 4;
		record.sample.user_depth = 4;
		error = perf_data_writer_sample(writer, &record.sample);
	}
	return error ? error : perf_data_writer_close(writer);
}

/*
 * Size of samples in a file: the difference between a long and a short file, less the callchains.
 */
static double kvmscope_bytes(void)
{
	struct content few = { 0 }, many = { 0 };
	double size;

	if (write_file(10) || read_content(OUTPUT, &few))
		return 0;
	size = file_size(OUTPUT);
	if (write_file(10010) || read_content(OUTPUT, &many))
		return 0;
	size = file_size(OUTPUT) - size;
	return (size - 8.0 * (double)(many.entries - few.entries)) /
	       (double)(many.samples - few.samples);
}

/* perf prints the size of its records; callchains are subtracted. */
static double perf_bytes(void)
{
	struct content content = { 0 };
	unsigned long long bytes = 0;
	char line[256];
	FILE *pipe;

	if (system("perf record -a -g --all-cgroups -e cpu-clock -F 500 -o " PERF_DATA
		   " -- timeout 1 sh -c 'while :; do :; done' > /dev/null 2>&1") < 0 ||
	    read_content(PERF_DATA, &content) || !content.samples)
		return 0;
	/* "0 0 0x1d0 [0x60]: PERF_RECORD_SAMPLE(IP, 0x1): ..." */
	pipe = popen("perf script -D -i " PERF_DATA
		     " 2>/dev/null | grep -a -o '\\[0x[0-9a-f]*\\]: PERF_RECORD_SAMPLE'",
		     "re");
	if (!pipe)
		return 0;
	while (fgets(line, sizeof(line), pipe))
		bytes += strtoull(line + 1, NULL, 16);
	pclose(pipe);
	return ((double)bytes - 8.0 * (double)content.entries) / (double)content.samples;
}

static int report_bytes(void)
{
	double own = kvmscope_bytes(), perf = perf_bytes();

	if (own <= 0)
		return -1;
	if (perf > 0)
		bench_print_relative_bound("file: a sample without its callchain's entries", own,
					   "bytes", "perf record -a -g --all-cgroups -e cpu-clock",
					   perf, (struct bench_bound){ BENCH_MOST, perf });
	else
		bench_skip("file: a sample without its callchain's entries",
			   "perf (package linux-perf) cannot record here");
	return 0;
}

int main(void)
{
	if (report_speed() || report_bytes()) {
		fprintf(stderr, "bench_resolver: %s\n", error_message());
		return 1;
	}
	return bench_status();
}
