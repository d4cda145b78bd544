/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings with inlined functions in report and exports with --inline. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/sample_record.h"
#include "tests/unit/pprof_text.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/report/folded.h"
#include "vmm/report/pprof.h"
#include "vmm/report/profile_stacks.h"
#include "vmm/report/script.h"
#include "vmm/symbols/dwarf_inlines.h"
#include "vmm/symbols/elf_symbols.h"
#include "vmm/symbols/symbol_paths.h"

static const struct symbol_sources nowhere; /* only the default places */

#define PROGRAM   "build/inlines/gcc"
#define START     0x555555000000ull
#define TASK      7
#define KERNEL_AT 0x200000ull /* above its link address */

struct program {
	char path[64]; /* of the recording */
	struct elf_segments segments;
	uint8_t build_id[ELF_BUILD_ID_MAX];
	size_t build_id_size;
	struct perf_data_writer *writer;
};

static bool open_program(struct program *program, const char *path)
{
	struct elf_file file;

	*program = (struct program){ 0 };
	if (elf_file_open(&file, path)) {
		FAIL_TEST("%s", error_message());
		return false;
	}
	elf_file_segments(&file, &program->segments);
	program->build_id_size = elf_file_build_id(&file, program->build_id);
	elf_file_close(&file);
	CHECK(program->build_id_size);
	snprintf(program->path, sizeof(program->path), "build/inlines-%d.data", getpid());
	CHECK_EQUAL(perf_data_writer_open(&program->writer,
					  &(struct perf_data_options){ .path = program->path,
								       .frequency = 1000,
								       .callchains = true,
								       .vcpus = 1 }),
		    0);
	return program->build_id_size && program->writer;
}

static void map(struct program *program, const char *name, bool kernel, uint64_t start,
		uint64_t size, uint64_t offset)
{
	CHECK_EQUAL(perf_data_writer_mapping(
			    program->writer,
			    &(struct perf_data_mapping){ .pid = kernel ? -1 : TASK,
							 .tid = kernel ? -1 : TASK,
							 .start = start,
							 .size = size,
							 .offset = offset,
							 .name = name,
							 .build_id = program->build_id,
							 .build_id_size = program->build_id_size,
							 .kernel = kernel }),
		    0);
}

static void sample(struct program *program, bool kernel, const uint64_t *chain, size_t depth)
{
	struct sample *sample = calloc(1, sample_size(depth));

	REQUIRE(sample);
	sample->time = 1000;
	sample->period = 1000000;
	sample->pid = sample->tid = TASK;
	sample->cpl = kernel ? 0 : 3;
	sample->rip = chain[0];
	*(kernel ? &sample->kernel_depth : &sample->user_depth) = (uint16_t)depth;
	memcpy(sample->callchain, chain, depth * sizeof(*chain));
	CHECK_EQUAL(perf_data_writer_sample(program->writer, sample), 0);
	free(sample);
}

static void end_recording(struct program *program)
{
	CHECK_EQUAL(perf_data_writer_flush(program->writer, UINT64_MAX), 0);
	CHECK_EQUAL(perf_data_writer_close(program->writer), 0);
}

/* The address of the program's file in the process. */
static uint64_t mapped(const struct program *program, uint64_t address)
{
	uint64_t offset = 0;

	CHECK(elf_segments_offset(&program->segments, address, &offset));
	return START + offset;
}

/* An address in hash_block() with fewer inlined functions than the byte before it. */
struct edge {
	uint64_t address;
	char before[2048], at[2048]; /* their functions, the outermost first, ";" before each */
};

static void note_functions(char *text, size_t size, const struct dwarf_function *functions,
			   size_t count)
{
	size_t used = 0;

	for (size_t i = count; i-- > 0;)
		used += (size_t)snprintf(text + used, size - used, ";%s%s", functions[i].name,
					 i + 1 < count ? " (inlined)" : "");
}

static void find_edge(struct edge *edge)
{
	struct dwarf_function functions[DWARF_INLINES_MAX];
	struct dwarf_inlines *inlines;
	struct symbols *symbols;
	struct symbol symbol;
	size_t before = 0, count = 0;

	*edge = (struct edge){ 0 };
	REQUIRE_EQUAL(dwarf_inlines_open(&inlines, PROGRAM, (struct span){ 0 }, &nowhere), 0);
	REQUIRE_EQUAL(
		elf_symbols_load(&symbols, PROGRAM, ELF_VIRTUAL_ADDRESSES, (struct span){ 0 }), 0);
	REQUIRE(symbols_find_name(symbols, "hash_block", &symbol));
	for (uint64_t at = symbol.start; at < symbol.end && !edge->address; at++, before = count) {
		count = dwarf_inlines_find(inlines, at, false, functions);
		note_functions(count < before && before > 3 ? edge->at : edge->before,
			       sizeof(edge->before), functions, count);
		if (*edge->at)
			edge->address = at;
	}
	CHECK(edge->address);
	symbols_free(symbols);
	dwarf_inlines_close(inlines);
}

static char *folded(const struct profile_options *options)
{
	struct profile *profile;
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	CHECK_EQUAL(profile_load(&profile, options), 0);
	CHECK_EQUAL(folded_write(profile, FOLDED_PLAIN, to), 0);
	fclose(to);
	profile_free(profile);
	return text;
}

static void check_folded(const struct profile_options *options, const char *expected)
{
	char *text = folded(options);

	CHECK_STRING(text, expected);
	free(text);
}

/* One sample at the edge, and one before it with the edge as return address; PATH is the file's
 * name. */
static void record_edge(struct program *program, const struct edge *edge, const char *path)
{
	uint64_t at = mapped(program, edge->address);
	char whole[PATH_MAX];

	REQUIRE(realpath(path, whole));
	map(program, whole, false, START, 1 << 20, 0);
	sample(program, false, (uint64_t[]){ at - 1, at }, 2);
	sample(program, false, (uint64_t[]){ at }, 1);
	end_recording(program);
}

/* For a caller its call counts, for the sampled frame the instruction itself. */
static void check_edge(const struct profile_options *options, const struct edge *edge)
{
	char expected[8192];

	REQUIRE(strcmp(edge->at, edge->before) < 0);
	snprintf(expected, sizeof(expected), "pid 7%s 1\npid 7%s%s 1\n", edge->at, edge->before,
		 edge->before);
	check_folded(options, expected);
}

TEST(inlines, are_frames_of_their_own)
{
	struct program program;
	struct profile_options options = { .input = program.path, .vcpu = -1, .inlined = true };
	struct edge edge;

	find_edge(&edge);
	REQUIRE(open_program(&program, PROGRAM));
	record_edge(&program, &edge, PROGRAM);
	CHECK(strstr(edge.before, ";hash_block;"));
	CHECK(strstr(edge.before, " (inlined);"));
	check_edge(&options, &edge);
	options.inlined = false;
	check_folded(&options, "pid 7;hash_block 1\npid 7;hash_block;hash_block 1\n");
	unlink(program.path);
}

/* Links DIRECTORY/.build-id/xx/yyy/KIND to PATH. */
static void link_into_cache(const char *directory, const struct program *program, const char *kind,
			    const char *path)
{
	char command[2 * PATH_MAX], hex[2 * ELF_BUILD_ID_MAX + 1], whole[PATH_MAX];

	for (size_t i = 0; i < program->build_id_size; i++)
		sprintf(hex + 2 * i, "%02x", program->build_id[i]);
	REQUIRE(realpath(path, whole));
	snprintf(command, sizeof(command), "d=%s/.build-id/%.2s/%s; mkdir -p $d && ln -s %s $d/%s",
		 directory, hex, hex + 2, whole, kind);
	CHECK_EQUAL(system(command), 0);
}

TEST(inlines, are_found_in_a_separate_file_of_the_build_id_cache)
{
	struct program program;
	char cache[] = "/tmp/kvmscope-inlines-XXXXXX", command[64];
	struct profile_options options = {
		.input = program.path, .vcpu = -1, .inlined = true, .sources.buildid_dir = cache
	};
	struct edge edge;

	REQUIRE(mkdtemp(cache));
	find_edge(&edge);
	REQUIRE(open_program(&program, "build/inlines/stripped"));
	record_edge(&program, &edge, "build/inlines/stripped");
	check_folded(&options, "pid 7;[stripped] 1\npid 7;[stripped];[stripped] 1\n");
	link_into_cache(cache, &program, "debug", "build/inlines/stripped.debug");
	check_edge(&options, &edge);
	snprintf(command, sizeof(command), "rm -r %s", cache);
	CHECK_EQUAL(system(command), 0);
	unlink(program.path);
}

TEST(inlines, of_another_build_are_not_used)
{
	struct program program;
	struct profile_options options = { .input = program.path, .vcpu = -1, .inlined = true };
	struct edge edge;

	find_edge(&edge);
	REQUIRE(open_program(&program, PROGRAM));
	program.build_id[0] ^= 1;
	record_edge(&program, &edge, PROGRAM);
	check_folded(&options, "pid 7;[gcc] 1\npid 7;[gcc];[gcc] 1\n");
	unlink(program.path);
}

TEST(inlines, are_reported_as_unknown_without_dwarf)
{
	struct program program;
	/* The user's own cache may have the program with its DWARF. */
	struct profile_options options = { .input = program.path,
					   .vcpu = -1,
					   .inlined = true,
					   .sources.buildid_dir = "build/none" };
	struct profile *profile;
	size_t images, unknown;
	struct edge edge;

	find_edge(&edge);
	for (int i = 0; i < 2; i++) {
		const char *path = i ? "build/inlines/plain" : PROGRAM;

		REQUIRE(open_program(&program, path));
		record_edge(&program, &edge, path);
		REQUIRE_EQUAL(profile_load(&profile, &options), 0);
		profile_inlines(profile, &images, &unknown);
		CHECK_EQUAL(images, 1);
		CHECK_EQUAL(unknown, i);
		profile_free(profile);
	}
	check_folded(&options, "pid 7;hash_block 1\npid 7;hash_block;hash_block 1\n");
	unlink(program.path);
}

/* Like perf script. */
TEST(inlines, are_marked_in_the_script)
{
	struct program program;
	struct profile_options options = { .input = program.path, .vcpu = -1, .inlined = true };
	struct edge edge;
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	find_edge(&edge);
	REQUIRE(open_program(&program, PROGRAM));
	record_edge(&program, &edge, PROGRAM);
	CHECK_EQUAL(script_write(&options, to), 0);
	fclose(to);
	CHECK(strstr(text, " mix (inlined)\n"));
	CHECK(strstr(text, " hash_block+0x"));
	CHECK(!strstr(text, "hash_block (inlined)"));
	free(text);
	unlink(program.path);
}

/* One location with a line per function. */
TEST(inlines, are_lines_of_one_location_for_pprof)
{
	struct program program;
	struct profile_options options = {
		.input = program.path, .vcpu = -1, .inlined = true, .lines = true
	};
	char path[] = "/tmp/kvmscope-inlines-XXXXXX", *text;
	FILE *to = fdopen(mkstemp(path), "w");
	struct profile *profile;
	struct edge edge;

	find_edge(&edge);
	REQUIRE(open_program(&program, PROGRAM));
	record_edge(&program, &edge, PROGRAM);
	CHECK_EQUAL(profile_load(&profile, &options), 0);
	CHECK_EQUAL(pprof_write(profile, NULL, to), 0);
	fclose(to);
	profile_free(profile);
	text = pprof_text(path);
	/* The sampled address, and the one at the edge, whose call has the same lines. */
	CHECK_EQUAL(pprof_text_count(text, "location {"), 2);
	CHECK(pprof_text_count(text, "  line {") > 3);
	CHECK_EQUAL(pprof_text_count(text, "    line: "), pprof_text_count(text, "  line {"));
	CHECK(pprof_text_index(text, "mix") > 0);
	CHECK_EQUAL(pprof_text_index(text, "mix (inlined)"), -1);
	CHECK(strstr(text, "inlines/program.cc\""));
	free(text);
	unlink(path);
	unlink(program.path);
}

/* A kernel runs at another address than it is linked at; the difference follows from the symbol
 * that its mapping names. */
TEST(inlines, of_a_kernel_are_found_at_its_address)
{
	struct program program;
	struct profile_options options = { .input = program.path,
					   .vcpu = -1,
					   .inlined = true,
					   .vmlinux = "build/inlines/kernel" };
	struct dwarf_function functions[DWARF_INLINES_MAX];
	struct dwarf_inlines *inlines;
	struct symbols *symbols;
	struct symbol tick, text;
	uint64_t at = 0;

	REQUIRE_EQUAL(elf_symbols_load(&symbols, options.vmlinux, ELF_VIRTUAL_ADDRESSES,
				       (struct span){ 0 }),
		      0);
	REQUIRE(symbols_find_name(symbols, "tick_handle", &tick));
	REQUIRE(symbols_find_name(symbols, "_text", &text));
	REQUIRE_EQUAL(dwarf_inlines_open(&inlines, options.vmlinux, (struct span){ 0 }, &nowhere),
		      0);
	for (at = tick.start;
	     at < tick.end && dwarf_inlines_find(inlines, at, false, functions) < 3;)
		at++;
	REQUIRE(at < tick.end);
	REQUIRE(open_program(&program, options.vmlinux));
	map(&program, "[kernel.kallsyms]_text", true, 0xffffffff81000000ull + KERNEL_AT, 1 << 20,
	    text.start + KERNEL_AT);
	sample(&program, true, (uint64_t[]){ at + KERNEL_AT }, 1);
	end_recording(&program);
	check_folded(&options,
		     "pid 7;tick_handle;account_tick (inlined);read_jiffies (inlined) 1\n");
	dwarf_inlines_close(inlines);
	symbols_free(symbols);
	unlink(program.path);
}
