/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seconds for a report with inlined functions, compared with one without, on a million samples
 * spread over a C++ program.
 */
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/sample_record.h"
#include "tests/bench/bench.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/symbols/elf_symbols.h"

#define SAMPLES bench_size(1000000u, 20000)
#define DEPTH   4u
#define TASK    7
#define START   0x555555000000ull
#define PROGRAM "build/inlines/gcc"
#define OUTPUT  "build/bench/inlines.data"

static uint64_t state = 1;

static uint32_t next_random(uint32_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33) % below;
}

/* A random address in a random function of the program. */
static uint64_t address(const struct symbols *symbols)
{
	struct symbol symbol;

	do
		symbols_at(symbols, next_random((uint32_t)symbols_count(symbols)), &symbol);
	while ((symbol.type != 't' && symbol.type != 'T') || symbol.end <= symbol.start);
	return START + symbol.start + next_random((uint32_t)(symbol.end - symbol.start));
}

static int write_samples(struct perf_data_writer *writer, const struct symbols *symbols)
{
	struct sample *sample = calloc(1, sample_size(DEPTH));
	int error = sample ? 0 : -1;

	for (unsigned int i = 0; !error && i < SAMPLES; i++) {
		*sample = (struct sample){ .time = 1000000ull * (i + 1),
					   .period = 1000000,
					   .cpl = 3,
					   .pid = TASK,
					   .tid = TASK,
					   .user_depth = DEPTH };
		for (unsigned int j = 0; j < DEPTH; j++)
			sample->callchain[j] = address(symbols);
		sample->rip = sample->callchain[0];
		error = perf_data_writer_sample(writer, sample);
		if (!error && i % 4096 == 4095)
			error = perf_data_writer_flush(writer, UINT64_MAX);
	}
	free(sample);
	return error;
}

static int write_recording(void)
{
	const struct perf_data_options options = { .path = OUTPUT,
						   .frequency = 1000,
						   .callchains = true,
						   .vcpus = 1,
						   .command_line = "bench" };
	uint8_t build_id[ELF_BUILD_ID_MAX];
	int size = elf_build_id(PROGRAM, build_id), error;
	struct perf_data_mapping mapping = {
		.pid = TASK, .tid = TASK, .start = START, .size = 1 << 20, .build_id = build_id
	};
	struct perf_data_writer *writer;
	struct symbols *symbols;
	char path[PATH_MAX];

	unlink(OUTPUT);
	if (size <= 0 || !realpath(PROGRAM, path) ||
	    elf_symbols_load(&symbols, PROGRAM, ELF_FILE_OFFSETS, (struct span){ 0 }) ||
	    perf_data_writer_open(&writer, &options))
		return -1;
	mapping.name = path;
	mapping.build_id_size = (size_t)size;
	error = perf_data_writer_mapping(writer, &mapping);
	if (!error)
		error = write_samples(writer, symbols);
	symbols_free(symbols);
	return perf_data_writer_close(writer) || error;
}

/* Seconds that COMMAND takes, the best of three; negative: it failed. */
static double seconds(const char *command)
{
	double best = -1;

	for (int i = 0; i < 3; i++) {
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

int main(void)
{
	double with, without;

	if (write_recording()) {
		fprintf(stderr, "bench_inlines: %s\n", error_message());
		return 1;
	}
	with = seconds("build/kvmscope report --children --inline -i " OUTPUT " > /dev/null");
	without = seconds("build/kvmscope report --children -i " OUTPUT " > /dev/null");
	if (with < 0 || without < 0)
		bench_skip("report --inline on 1 M samples", "kvmscope report failed");
	else
		bench_print_relative("report --inline on 1 M samples", with, "s",
				     "without --inline", without);
	unlink(OUTPUT);
	return 0;
}
