/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that a guest's process created at run time: in perf and in kvmscope, each address has
 * the symbol that was valid at the sample's time, and no other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/e2e/perf_home.h"
#include "tests/unit/shim/test.h"
#include "vmm/record/collector.h"
#include "vmm/report/symbolizer.h"

#define PROCESS 4242u
#define CODE    0x7f0000000000ull
#define MS      1000000ull

/* Expected symbol of an address, in ms from the start; in the order of the samples. */
static const struct {
	uint64_t time, address, caller;
	const char *symbol, *caller_symbol;
} samples[] = {
	{ 50, CODE + 0x10, 0, "first", NULL },
	{ 60, CODE + 0x110, CODE + 0x20, "second", "first" },
	/* It is uncertain whether this is still the old function. */
	{ 350, CODE + 0x110, CODE + 0x20, "[unknown]", "first" },
	{ 450, CODE + 0x118, CODE + 0x20, "third", "first" },
	{ 460, CODE + 0x110, 0, "third", NULL },
	{ 470, CODE + 0x800, CODE + 0x110, "[unknown]", "third" },
	{ 480, CODE + 0x10, CODE + 0x180, "first", "third" },
};
#define SAMPLES (sizeof(samples) / sizeof(samples[0]))

static uint64_t start;

static void push(struct ring *ring, uint16_t type, const void *payload, size_t size)
{
	void *to = ring_reserve(ring, type, size);

	REQUIRE(to);
	memcpy(to, payload, size);
	ring_commit(ring, to);
}

static struct sideband head(uint16_t type, size_t size, uint64_t time)
{
	return (struct sideband){ .size = (uint32_t)size,
				  .type = type,
				  .time = start + time * MS,
				  .pid = PROCESS,
				  .tid = PROCESS };
}

static void push_memory(struct ring *ring)
{
	uint64_t bytes[32] = { 0 };
	struct sideband_mmap *mmap = (struct sideband_mmap *)bytes;
	struct sideband_comm comm = { .head = head(SIDEBAND_COMM, sizeof(comm), 1),
				      .comm = "node" };

	mmap->head = head(SIDEBAND_MMAP, sideband_size(sizeof(*mmap), "//anon"), 1);
	mmap->start = CODE;
	mmap->length = 0x10000;
	mmap->prot = PROT_READ | PROT_EXEC;
	strcpy(mmap->name, "//anon");
	push(ring, RECORD_SIDEBAND, &comm, sizeof(comm));
	push(ring, RECORD_SIDEBAND, mmap, mmap->head.size);
}

static void push_scan(struct ring *ring, uint16_t flags, uint64_t since, uint64_t time)
{
	struct sideband_jit_map map = { .head = head(SIDEBAND_JIT_MAP, sizeof(map), time),
					.since = start + since * MS };

	map.head.flags = flags;
	push(ring, RECORD_SIDEBAND, &map, sizeof(map));
}

static void push_line(struct ring *ring, uint64_t address, const char *name, uint64_t since,
		      uint64_t time)
{
	uint64_t bytes[32] = { 0 };
	struct sideband_jit_code *code = (struct sideband_jit_code *)bytes;

	code->head = head(SIDEBAND_JIT_CODE, sideband_size(sizeof(*code), name), time);
	code->start = address;
	code->length = 0x100;
	code->since = start + since * MS;
	strcpy(code->name, name);
	push(ring, RECORD_SIDEBAND, code, code->head.size);
}

static void push_round(struct ring *ring, uint64_t time)
{
	struct sideband round = head(SIDEBAND_ROUND, sizeof(round), time);

	round.pid = round.tid = 0;
	push(ring, RECORD_SIDEBAND, &round, sizeof(round));
}

static void push_events(struct ring *ring)
{
	push_memory(ring);
	push_scan(ring, SIDEBAND_JIT_BEGIN, 2, 100);
	push_line(ring, CODE, "first", 2, 100);
	push_line(ring, CODE + 0x100, "second", 2, 100);
	push_round(ring, 100);
	push_scan(ring, 0, 300, 400);
	push_line(ring, CODE + 0x100, "third", 300, 400);
	push_round(ring, 400);
	push_round(ring, 1000);
	ring_flush(ring);
}

static void push_samples(struct ring *ring)
{
	for (size_t i = 0; i < SAMPLES; i++) {
		uint64_t bytes[(sizeof(struct sample) + 3 * 8) / 8 + 1] = { 0 };
		struct sample *sample = (struct sample *)bytes;

		*sample = (struct sample){ .time = start + samples[i].time * MS,
					   .period = 1,
					   .rip = samples[i].address,
					   .cpl = 3,
					   .pid = PROCESS,
					   .tid = PROCESS,
					   .user_depth = 1 };
		sample->callchain[0] = samples[i].address;
		if (samples[i].caller)
			sample->callchain[sample->user_depth++] = samples[i].caller;
		push(ring, RECORD_SAMPLE, sample, sample_length(sample));
	}
	ring_flush(ring);
}

static bool no_registers(void *context, struct guest_registers *registers)
{
	return false;
}

static void record(const char *path)
{
	struct ring *vcpu = NULL, *sideband = NULL;
	struct guest_view nothing = { 0 };
	struct collector_options options = {
		.rings = &vcpu,
		.ring_count = 1,
		.sideband_rings = &sideband,
		.sideband_ring_count = 1,
		.view = &nothing,
		.registers = no_registers,
		.output = { .path = path,
			    .frequency = 1000,
			    .callchains = true,
			    .vcpus = 1,
			    .vmm_pid = 77 },
		.buildid_cache = true,
	};
	struct collector *collector;
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	start = (uint64_t)time.tv_sec * 1000 * MS + (uint64_t)time.tv_nsec - 2000 * MS;
	REQUIRE_EQUAL(ring_create(&vcpu, RING_SIZE_MIN), 0);
	REQUIRE_EQUAL(ring_create(&sideband, RING_SIZE_MIN), 0);
	REQUIRE_EQUAL(collector_start(&collector, &options), 0);
	push_events(sideband);
	push_samples(vcpu);
	CHECK_EQUAL(collector_stop(collector, NULL), 0);
	ring_destroy(vcpu);
	ring_destroy(sideband);
}

static const char *name_of(const struct profile_frame *frame)
{
	return frame->symbol ? frame->symbol : "[unknown]";
}

static int check_kvmscope(void *context, const struct symbolized_sample *sample)
{
	size_t i = (*(size_t *)context)++;

	if (i >= SAMPLES)
		return 0;
	CHECK_STRING(name_of(sample->frames[0].frame), samples[i].symbol);
	CHECK_EQUAL(sample->depth, samples[i].caller ? 2 : 1);
	if (samples[i].caller)
		CHECK_STRING(name_of(sample->frames[1].frame), samples[i].caller_symbol);
	return 0;
}

static void check_line(char *line, const char *symbol)
{
	char shown[64];

	snprintf(shown, sizeof(shown), " %s (%s)", symbol,
		 strcmp(symbol, "[unknown]") ? "jitted-4242.so" : "[anon]");
	if (!strstr(line, shown))
		FAIL_TEST("\"%s\" is not%s", line, shown);
}

static void check_perf(const char *path)
{
	char *script = perf_output("perf script -i %s -F ip,sym,dso 2>&1", path), *rest = script,
	     *line;
	size_t i = 0;

	while ((line = strsep(&rest, "\n"))) {
		if (!*line)
			continue;
		REQUIRE(i < SAMPLES);
		check_line(line, samples[i].symbol);
		if (samples[i].caller)
			check_line(strsep(&rest, "\n"), samples[i].caller_symbol);
		i++;
	}
	CHECK_EQUAL(i, SAMPLES);
	free(script);
}

TEST(perf_jit, jit_functions_have_symbols_in_perf_and_in_kvmscope)
{
	struct symbolizer *resolver;
	char home[64], path[128];
	size_t count = 0;

	NEED_PERF;
	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	record(path);
	REQUIRE_EQUAL(
		symbolizer_open(&resolver, &(struct profile_options){ .input = path, .vcpu = -1 }),
		0);
	CHECK_EQUAL(symbolizer_run(resolver, check_kvmscope, &count), 0);
	CHECK_EQUAL(count, SAMPLES);
	symbolizer_close(resolver);
	check_perf(path);
	perf_home_leave(home);
}

/* perf would take it for the map file of the guest's process with the same number. */
TEST(perf_jit, map_file_of_the_host_is_not_used_for_the_guest)
{
	char home[64], path[128], map[64], *script;
	FILE *file;

	NEED_PERF;
	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	snprintf(map, sizeof(map), "/tmp/perf-%u.map", PROCESS);
	file = fopen(map, "wx");
	REQUIRE(file);
	fprintf(file, "%llx 10000 function_of_the_host\n", CODE);
	fclose(file);
	record(path);
	script = perf_output("perf script -i %s -F ip,sym,dso 2>&1", path);
	CHECK(!strstr(script, "function_of_the_host"));
	free(script);
	unlink(map);
	perf_home_leave(home);
}
