/* SPDX-License-Identifier: Apache-2.0 */
/* hotspot's parser names the kernel, modules and programs by the directory of export. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/e2e/named_guest.h"
#include "tests/e2e/perf_recording.h"
#include "tests/e2e/perfparser_stream.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "vmm/disk/sandbox.h"
#include "vmm/disk/sandbox_parts.h"
#include "vmm/symbols/elf_symbols.h"

#define PERFPARSER "/usr/lib/x86_64-linux-gnu/libexec/hotspot-perfparser"
/* A program without DWARF, by the path that it has in the guest. */
#define PROGRAM      "build/inlines/plain"
#define PROGRAM_PATH "/opt/program"
#define PROGRAM_CODE 0x555555554000ull
#define SAMPLES      40 /* in each image */

static void write_sample(struct perf_data_writer *writer, unsigned int number, uint64_t address)
{
	struct sample *sample = calloc(1, sample_size(1));
	bool kernel = address >> 63;

	*sample = (struct sample){
		.time = 1000000000ull + number * 1000000,
		.period = 1000000,
		.host_tid = FIRST_TID,
		.pid = 77,
		.tid = 77,
		.rip = address,
		.cpl = kernel ? 0 : 3,
		.kernel_depth = kernel,
		.user_depth = !kernel,
	};
	sample->callchain[0] = address;
	CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
	free(sample);
}

static void map_program(struct perf_data_writer *writer)
{
	uint8_t build_id[ELF_BUILD_ID_MAX];
	int size = elf_build_id(PROGRAM, build_id);
	const struct perf_data_mapping mapping = {
		.pid = 77,
		.tid = 77,
		.start = PROGRAM_CODE,
		.size = 0x10000,
		.name = PROGRAM_PATH,
		.build_id = build_id,
		.build_id_size = (size_t)size,
	};

	REQUIRE(size > 0);
	CHECK_EQUAL(perf_data_writer_mapping(writer, &mapping), 0);
}

/* The offset of main() in the program, which is linked at 0. */
static uint64_t offset_of_main(void)
{
	char *text = command_output(NULL, "nm %s | awk '$3 == \"main\" { print $1 }'", PROGRAM);
	uint64_t offset = strtoull(text, NULL, 16);

	free(text);
	return offset;
}

static void record(const struct named_guest *named)
{
	const struct recording recording = { .path = named->path };
	const uint64_t in_main = PROGRAM_CODE + offset_of_main() + 4;
	const struct fake_guest *guest = &named->guest;
	struct perf_data_writer *writer;

	REQUIRE_EQUAL(recording_open(&writer, &recording), 0);
	recording_map_guest(writer, guest, false);
	map_program(writer);
	for (unsigned int i = 0; i < SAMPLES; i++) {
		write_sample(writer, 4 * i, guest->image.start + FAKE_FUNCTION_SIZE + 4);
		write_sample(writer, 4 * i + 1, guest->module.start + FAKE_FUNCTION_SIZE + 4);
		write_sample(writer, 4 * i + 2, in_main);
		/* Between kernel and module, where nothing is. */
		write_sample(writer, 4 * i + 3, guest->module.start - 0x1000);
	}
	CHECK_EQUAL(perf_data_writer_flush(writer, UINT64_MAX), 0);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
}

struct counts {
	unsigned int kernel, module, program, unknown, other;
};

static void count(void *context, const char *name, const char *binary)
{
	struct counts *counts = context;

	if (!strcmp(name, "guest_function_1"))
		counts->kernel++;
	else if (!strcmp(name, "module_function_1") && !strcmp(binary, "[fake_module]"))
		counts->module++;
	else if (!strcmp(name, "main") && !strcmp(binary, "program"))
		counts->program++;
	else if (!*name || !strcmp(name, "[unknown]"))
		counts->unknown++;
	else
		counts->other++;
}

/* The kernel is at another address than in the build-id cache, which hotspot prefers. */
static void make_symbols(struct named_guest *named)
{
	struct named_guest first;
	int status;

	named_guest_begin(named, 0x21, 0x200000);
	first = *named;
	fake_guest_make(&first.guest, 0x21, 0, FAKE_MODULE + 0x100000);
	named_guest_cache(&first, false);
	fake_guest_free(&first.guest);
	named_guest_cache(named, false);
	record(named);
	free(command_output(
		&status,
		"mkdir -p %s/guest/opt && cp " PROGRAM " %s/guest" PROGRAM_PATH
		" && build/kvmscope export -f sysroot --symfs %s/guest -o %s/symbols %s",
		named->home, named->home, named->home, named->home, named->path));
	CHECK_EQUAL(status, 0);
}

TEST(symfs, a_link_out_of_it_is_not_followed_by_root_and_reported)
{
	struct named_guest named;
	int status;
	char *text;

	if (geteuid() || SANDBOX_SANITIZED || !sandbox_has_landlock())
		SKIP("needs root, whose commands are confined, and Landlock");
	make_symbols(&named);
	free(command_output(&status,
			    "mv %s/guest" PROGRAM_PATH " /var/tmp/kvmscope-symfs && "
			    "ln -s /var/tmp/kvmscope-symfs %s/guest" PROGRAM_PATH,
			    named.home, named.home));
	CHECK_EQUAL(status, 0);
	text = command_output(&status, "build/kvmscope report --no-pager --symfs %s/guest %s 2>&1",
			      named.home, named.path);
	CHECK_EQUAL(status, 0);
	CHECK(strstr(text, "/guest" PROGRAM_PATH ": Permission denied (root follows no links"));
	CHECK(!strstr(text, " main "));
	free(text);
	unlink("/var/tmp/kvmscope-symfs");
	named_guest_end(&named);
}

TEST(hotspot, names_every_image_by_the_exported_directory)
{
	struct counts counts = { 0 };
	struct named_guest named;
	char stream[160];
	int status;

	if (!command_succeeds(PERFPARSER " --version"))
		SKIP("hotspot (package hotspot) is not installed");
	make_symbols(&named);
	snprintf(stream, sizeof(stream), "%s/stream", named.home);
	free(command_output(&status,
			    "cd %s && " PERFPARSER
			    " --input perf.data --sysroot symbols --app symbols/none "
			    "--extra symbols/none --output stream 2>&1",
			    named.home));
	CHECK_EQUAL(status, 0);
	CHECK(perfparser_each_sample(stream, count, &counts));
	CHECK_EQUAL(counts.kernel, SAMPLES);
	CHECK_EQUAL(counts.module, SAMPLES);
	CHECK_EQUAL(counts.program, SAMPLES);
	CHECK_EQUAL(counts.unknown, SAMPLES);
	CHECK_EQUAL(counts.other, 0);
	named_guest_end(&named);
}

TEST(export, fills_only_an_empty_directory)
{
	struct named_guest named;
	int status;
	char *text;

	make_symbols(&named);
	text = command_output(&status, "build/kvmscope export -f sysroot -o %s/symbols %s 2>&1",
			      named.home, named.path);
	CHECK_EQUAL(status, 1);
	CHECK(strstr(text, "must be a new or an empty directory"));
	free(text);
	text = command_output(&status, "build/kvmscope export -f sysroot %s 2>&1", named.path);
	CHECK_EQUAL(status, 2);
	CHECK(strstr(text, "--format sysroot needs -o DIRECTORY"));
	free(text);
	named_guest_end(&named);
}
