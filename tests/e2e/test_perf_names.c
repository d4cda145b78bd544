/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's symbols and code in Debian's perf, through the build-id cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/named_guest.h"
#include "tests/e2e/perf_home.h"
#include "tests/e2e/perf_recording.h"
#include "tests/unit/shim/test.h"

/*
 * The number of samples in the kernel, one in each function; then the same number in the module,
 * called by init_function.
 */
static void record_functions(const struct named_guest *named, enum perspective perspective)
{
	const struct fake_guest *guest = &named->guest;
	struct recording recording = { .path = named->path, .perspective = perspective };
	struct sample *sample = calloc(1, sample_size(2));
	struct perf_data_writer *writer;

	REQUIRE_EQUAL(recording_open(&writer, &recording), 0);
	recording_name_vcpus(writer);
	for (unsigned int i = 0; i < 2 * FAKE_FUNCTIONS; i++) {
		uint64_t start = i < FAKE_FUNCTIONS ? guest->image.start : guest->module.start;

		*sample = (struct sample){
			.time = 1000000000ull + i * 1000000,
			.period = 1000000,
			.host_tid = FIRST_TID,
			.pid = SAMPLE_TASK_UNKNOWN,
			.tid = SAMPLE_TASK_UNKNOWN,
			.rip = start + i % FAKE_FUNCTIONS * FAKE_FUNCTION_SIZE + 4,
			.kernel_depth = 2,
		};
		sample->callchain[0] = sample->rip;
		sample->callchain[1] = guest->image.start + FAKE_INIT + 8;
		CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
		if (i == 3)
			recording_map_guest(writer, guest, perspective == PERSPECTIVE_HOST);
	}
	CHECK_EQUAL(perf_data_writer_flush(writer, UINT64_MAX), 0);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
	free(sample);
}

static void check_symbolized(const struct named_guest *named)
{
	char *script = perf_output("perf script -i %s -F ip,sym 2>&1", named->path), name[64];

	for (unsigned int i = 0; i < FAKE_FUNCTIONS; i++) {
		snprintf(name, sizeof(name), "guest_function_%u\n", i);
		CHECK(strstr(script, name));
		snprintf(name, sizeof(name), "module_function_%u\n", i);
		CHECK(strstr(script, name));
	}
	CHECK(strstr(script, "init_function\n"));
	CHECK(!strstr(script, "[unknown]"));
	free(script);
}

static void check_symbols(bool code, uint64_t slide)
{
	struct named_guest named;

	named_guest_begin(&named, 0x5a, slide);
	named_guest_cache(&named, code);
	record_functions(&named, PERSPECTIVE_GUEST);
	check_symbolized(&named);
	named_guest_end(&named);
}

TEST(perf_data, perf_symbolizes_kernel_and_modules_without_flags)
{
	NEED_PERF;
	check_symbols(true, 0);
	check_symbols(true, 0x4000000);
}

TEST(perf_data, perf_symbolizes_kernel_and_modules_without_their_code)
{
	NEED_PERF;
	check_symbols(false, 0x200000);
}

TEST(perf_data, perf_annotate_shows_the_guest_code)
{
	struct named_guest named;
	char *text;

	NEED_PERF;
	named_guest_begin(&named, 0x5b, 0);
	named_guest_cache(&named, true);
	record_functions(&named, PERSPECTIVE_GUEST);
	text = perf_output("perf annotate --stdio -i %s guest_function_3 2>&1", named.path);
	CHECK(strstr(text, "push"));
	CHECK(strstr(text, "ret"));
	CHECK(strstr(text, "100.00"));
	free(text);
	text = perf_output("perf annotate --stdio -i %s module_function_2 2>&1", named.path);
	CHECK(strstr(text, "push"));
	CHECK(strstr(text, "ret"));
	free(text);
	named_guest_end(&named);
}

TEST(perf_data, another_boot_of_the_kernel_causes_no_wrong_module_symbols)
{
	struct named_guest named;
	struct fake_guest other;
	char *script;

	NEED_PERF;
	named_guest_begin(&named, 0x5c, 0x200000);
	named_guest_cache(&named, true);
	other = named.guest;
	fake_guest_make(&named.guest, 0x5c, 0x600000, FAKE_MODULE + FAKE_FUNCTION_SIZE * 16);
	record_functions(&named, PERSPECTIVE_GUEST);
	script = perf_output("perf script -i %s -F ip,sym 2>&1", named.path);
	CHECK(strstr(script, "guest_function_3\n"));
	CHECK(!strstr(script, "module_function"));
	free(script);
	fake_guest_free(&other);
	named_guest_end(&named);
}

static void map_module(struct perf_data_writer *writer, const struct guest_module *module,
		       uint64_t time, bool end)
{
	char name[sizeof(module->name) + 2];
	const struct perf_data_mapping mapping = {
		.time = time,
		.pid = -1,
		.tid = -1,
		.start = module->start,
		.size = module->size,
		.name = name,
		.build_id = module->build_id,
		.build_id_size = module->build_id_size,
		.kernel = true,
		.is_code = module->program,
	};

	snprintf(name, sizeof(name), module->program ? "%s" : "[%s]", module->name);
	CHECK_EQUAL(end ? perf_data_writer_mapping_end(writer, &mapping)
			: perf_data_writer_mapping(writer, &mapping),
		    0);
}

/*
 * One sample per ms: first the kernel's samples, then all at the same address: three of the module
 * FIRST, one without a module, three of the module OTHER, and one of the first module again.
 */
static void record_two_modules(const struct named_guest *named, const struct guest_module *first,
			       const struct guest_module *other)
{
	struct recording recording = { .path = named->path };
	struct sample *sample = calloc(1, sample_size(1));
	struct perf_data_writer *writer;

	REQUIRE_EQUAL(recording_open(&writer, &recording), 0);
	recording_map_guest(writer, &named->guest, false);
	if (first->program)
		map_module(writer, first, 0, false);
	for (unsigned int i = 0; i < 13; i++) {
		*sample = (struct sample){
			.time = 1000000000ull + i * 1000000,
			.period = 1000000,
			.host_tid = FIRST_TID,
			.pid = SAMPLE_TASK_UNKNOWN,
			.tid = SAMPLE_TASK_UNKNOWN,
			.rip = i ? first->start + 4 : named->guest.image.start + 4,
			.kernel_depth = 1,
		};
		sample->callchain[0] = sample->rip;
		CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
	}
	map_module(writer, first, 1003500000, true);
	map_module(writer, other, 1006500000, false);
	map_module(writer, other, 1009500000, true);
	map_module(writer, first, 1009500000, false);
	CHECK_EQUAL(perf_data_writer_flush(writer, UINT64_MAX), 0);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
	free(sample);
}

static unsigned int count(const char *text, const char *part)
{
	unsigned int count = 0;

	for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
		count++;
	return count;
}

static struct guest_module other_module(void)
{
	return (struct guest_module){ .name = "other", .start = FAKE_MODULE, .size = 0x1000 };
}

/* In the part of SCRIPT between two times in ms, all symbols are NAME and the module's. */
static void check_part(const char *script, const char *from, const char *to, const char *name)
{
	const char *begin = strstr(script, from), *end = strstr(script, to);
	char *part;

	REQUIRE(begin);
	part = strndup(begin, end ? (size_t)(end - begin) : strlen(begin));
	CHECK_EQUAL(count(part, "23004 "), 3); /* addresses in FAKE_MODULE or PROGRAM */
	CHECK_EQUAL(count(part, name), 3);
	CHECK_EQUAL(count(part, "_function_"), strstr(name, "_function_") ? 3 : 0);
	free(part);
}

static void check_modules_apart(const char *script, const char *first, const char *second,
				const char *again)
{
	check_part(script, "1.001000:", "1.004000:", first);
	check_part(script, "1.004000:", "1.007000:", "([unknown])");
	check_part(script, "1.007000:", "1.010000:", second);
	check_part(script, "1.010000:", "1.013000:", again);
}

static char *script_of(const char *program, const char *path)
{
	return perf_output("%s -i %s 2>&1 | sed 's/+0x4//'", program, path);
}

#define PERF_SCRIPT "perf script -F time,ip,sym,dso"
#define OUR_SCRIPT  "build/kvmscope export --format script"

/*
 * If perf has the code it takes the addresses of modules from there, and later modules have no
 * image.
 */
static void check_modules_of_perf(bool code)
{
	const struct guest_module other = other_module();
	const char *module = "module_function_0 ([fake_module])", *image = "[unknown] ([other])";
	struct named_guest named;
	char *script;

	named_guest_begin(&named, 0x5f, 0);
	named_guest_cache(&named, code);
	record_two_modules(&named, &named.guest.module, &other);
	script = script_of(PERF_SCRIPT, named.path);
	if (code)
		check_modules_apart(script, "module_function_0 ([kernel.kallsyms])", "([unknown])",
				    "([unknown])");
	else
		check_modules_apart(script, module, image, module);
	free(script);
	script = script_of(OUR_SCRIPT, named.path);
	check_modules_apart(script, module, image, module);
	free(script);
	named_guest_end(&named);
}

TEST(perf_data, modules_at_the_same_address_are_distinguished_by_time)
{
	NEED_PERF;
	check_modules_of_perf(false);
	check_modules_of_perf(true);
}

#define PROGRAM   (FAKE_MODULE + 0x100000)
#define BPF(name) "bpf_prog_0123456789abcdef_" name

/* BPF programs have no file: the name in KSYMBOL is all that is known. */
static void check_programs(bool code)
{
	static const struct guest_module first = {
		.name = BPF("one"), .start = PROGRAM, .size = 0x800, .program = 1
	};
	static const struct guest_module other = {
		.name = BPF("two"), .start = PROGRAM, .size = 0x1000, .program = 2
	};
	const char *one = BPF("one") " (" BPF("one") ")", *two = BPF("two") " (" BPF("two") ")";
	struct named_guest named;
	char *script;

	named_guest_begin(&named, 0x5e, 0);
	named_guest_cache(&named, code);
	record_two_modules(&named, &first, &other);
	script = script_of(PERF_SCRIPT, named.path);
	check_modules_apart(script, one, two, one);
	free(script);
	script = script_of(OUR_SCRIPT, named.path);
	check_modules_apart(script, one, two, one);
	free(script);
	named_guest_end(&named);
}

TEST(perf_data, bpf_programs_have_symbols_while_they_are_loaded)
{
	NEED_PERF;
	check_programs(false);
	check_programs(true);
}

/*
 * As the collector does it: both share an address, so each has its own file, and there is no code.
 */
static void cache_modules(struct named_guest *named, const struct guest_module *modules,
			  struct symbols *unloaded)
{
	static const bool shared[] = { true, true };
	struct kernel_image *image = &named->guest.image;
	char cache[4096];

	symbols_add(unloaded, FAKE_MODULE, FAKE_FUNCTION_SIZE, 't', "other_function_0", "other");
	symbols_finish(unloaded);
	image->modules = modules;
	image->module_count = 2;
	image->shared = shared;
	image->unloaded = unloaded;
	CHECK_EQUAL(build_id_cache_directory(cache, sizeof(cache)), 0);
	named_guest_cache(named, true);
	CHECK_EQUAL(build_id_cache_add_modules(cache, image), 0);
}

TEST(perf_data, modules_at_the_same_address_have_their_own_functions)
{
	const char *module = "module_function_0 ([fake_module])",
		   *other = "other_function_0 ([other])";
	struct guest_module modules[2];
	struct symbols *unloaded;
	struct named_guest named;
	char *script;

	NEED_PERF;
	named_guest_begin(&named, 0x5f, 0);
	modules[1] = other_module();
	memset(named.guest.module.build_id, 0xa1, sizeof(named.guest.module.build_id));
	memset(modules[1].build_id, 0xa2, sizeof(modules[1].build_id));
	named.guest.module.build_id_size = modules[1].build_id_size = sizeof(modules[1].build_id);
	modules[0] = named.guest.module;
	unloaded = symbols_new();
	cache_modules(&named, modules, unloaded);
	record_two_modules(&named, &named.guest.module, &modules[1]);
	script = script_of(PERF_SCRIPT, named.path);
	check_modules_apart(script, module, other, module);
	free(script);
	script = script_of(OUR_SCRIPT, named.path);
	check_modules_apart(script, module, other, module);
	free(script);
	symbols_free(unloaded);
	named_guest_end(&named);
}

/*
 * Samples at the module's address while its owner is uncertain: called by the kernel, and calling
 * it. Between them samples of the module itself. The kernel comes first, because perf creates
 * modules when it creates the kernel.
 */
static void record_uncertain(const struct named_guest *named)
{
	const uint64_t module = FAKE_MODULE + 4, kernel = named->guest.image.start + 4;
	const uint64_t chains[][3] = { { kernel, module & ~SAMPLE_ADDRESS_CERTAIN, kernel },
				       { module, kernel, kernel },
				       { module & ~SAMPLE_ADDRESS_CERTAIN, kernel, kernel } };
	struct recording recording = { .path = named->path };
	struct sample *sample = calloc(1, sample_size(3));
	struct perf_data_writer *writer;

	REQUIRE_EQUAL(recording_open(&writer, &recording), 0);
	recording_map_guest(writer, &named->guest, false);
	for (unsigned int i = 0; i < 3; i++) {
		*sample = (struct sample){
			.time = 1000000000ull + i * 1000000,
			.period = 1000000,
			.host_tid = FIRST_TID,
			.pid = SAMPLE_TASK_UNKNOWN,
			.tid = SAMPLE_TASK_UNKNOWN,
			.rip = chains[i][0] | SAMPLE_ADDRESS_CERTAIN,
			.flags = chains[i][0] & SAMPLE_ADDRESS_CERTAIN ? 0 : SAMPLE_UNCERTAIN,
			.kernel_depth = 3,
		};
		memcpy(sample->callchain, chains[i], sizeof(chains[i]));
		CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
	}
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
	free(sample);
}

/* One is named after the module; no caller is missing. */
static void check_uncertain(const char *command, const char *path)
{
	char *script = perf_output(command, path);

	CHECK_EQUAL(count(script, "ffffffffc0123004"), 3);
	CHECK_EQUAL(count(script, "module_function_0"), 1);
	CHECK_EQUAL(count(script, "guest_function_0"), 6);
	free(script);
}

TEST(perf_data, uncertain_code_is_unsymbolized)
{
	struct named_guest named;

	NEED_PERF;
	named_guest_begin(&named, 0x5f, 0);
	named_guest_cache(&named, true);
	record_uncertain(&named);
	check_uncertain("perf script -i %s -F ip,sym,dso 2>&1", named.path);
	check_uncertain("build/kvmscope export -i %s --format script 2>&1", named.path);
	named_guest_end(&named);
}

/*
 * Includes guest chains, machine and vCPU; without guestmount the guest is unsymbolized, and in
 * particular has no symbols of the host.
 */
TEST(perf_data, perf_symbolizes_the_guest_in_the_host_perspective)
{
	struct named_guest named;
	char mount[160], *script;

	NEED_PERF;
	named_guest_begin(&named, 0x5e, 0x600000);
	named_guest_cache(&named, true);
	snprintf(mount, sizeof(mount), "%s.guestmount", named.path);
	CHECK_EQUAL(build_id_cache_link_guest(mount, VMM_PID, &named.boot), 0);
	record_functions(&named, PERSPECTIVE_HOST);
	script = perf_output(
		"perf script -i %s --guestmount %s -F machine_pid,vcpu,comm,ip,sym 2>&1",
		named.path, mount);
	CHECK(strstr(script, "guest_function_3\n"));
	CHECK(strstr(script, "module_function_3\n"));
	CHECK(strstr(script, "init_function\n"));
	CHECK(strstr(script, "VM: 4242 VCPU:000"));
	CHECK(strstr(script, "vcpu 0"));
	CHECK(!strstr(script, "[unknown]"));
	free(script);
	script = perf_output(
		"perf kvm --host --guest --guestmount=%s report --stdio --no-children -g none -i %s 2>/dev/null | "
		"grep -c '\\[g\\] .*_function_'",
		mount, named.path);
	CHECK_EQUAL(atoi(script), 2 * FAKE_FUNCTIONS);
	free(script);
	script = perf_output("perf script -i %s -F ip,sym 2>/dev/null | grep -c '[^ ] [^[]'",
			     named.path);
	CHECK_EQUAL(atoi(script), 0);
	free(script);
	named_guest_end(&named);
}

TEST(perf_data, perf_report_shows_the_written_shares)
{
	struct named_guest named;
	char *report;

	NEED_PERF;
	named_guest_begin(&named, 0x5d, 0);
	named_guest_cache(&named, true);
	record_functions(&named, PERSPECTIVE_GUEST);
	report = perf_output(
		"perf report -i %s --stdio --no-children -g none -s sym -F overhead,sample,sym 2>/dev/null | "
		"grep -c '6.25%% *1  .k. .*function_'",
		named.path);
	CHECK_EQUAL(atoi(report), 2 * FAKE_FUNCTIONS);
	free(report);
	named_guest_end(&named);
}
