/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BPF programs of the guest have symbols without any code of ours in the guest:
 * tests/rig/guest/load_bpf.c runs programs named like the process that is busy in them, and
 * continuously loads new ones at the addresses of old ones.
 */
#include <stdio.h>
#include <string.h>

#include "tests/rig/debian_recording.h"
#include "tests/rig/kallsyms_truth.h"
#include "tests/rig/perf_script.h"
#include "tests/rig/rig.h"
#include "tests/rig/without_btf.h"
#include "vmm/report/profile_stacks.h"

#define ENOUGH 50

/*
 * Samples of one reader: in code of a BPF program that the sample's process runs; in another one's;
 * and in unknown memory of modules.
 */
struct tally {
	unsigned long right, wrong, unknown;
};

static bool is_process(const char *comm)
{
	return !strcmp(comm, "north") || !strcmp(comm, "south");
}

#define PREFIX "bpf_prog_"
#define TAG    16 /* hexadecimal digits */

/* bpf_prog_TAG_NAME, but not one of the kernel's own functions such as bpf_prog_load(). */
static bool is_program(const char *symbol)
{
	return !strncmp(symbol, PREFIX, strlen(PREFIX)) &&
	       strspn(symbol + strlen(PREFIX), "0123456789abcdef") == TAG &&
	       symbol[strlen(PREFIX) + TAG] == '_';
}

static bool is_of(const char *symbol, const char *comm)
{
	return !strcmp(symbol + strlen(PREFIX) + TAG + 1, comm);
}

static void count(struct tally *tally, const char *comm, const char *symbol,
		  unsigned long long address, unsigned long samples)
{
	if (!is_process(comm))
		return;
	if (symbol && is_program(symbol))
		*(is_of(symbol, comm) ? &tally->right : &tally->wrong) += samples;
	else if (!symbol && address >= 0xffffffffa0000000)
		tally->unknown += samples;
}

static void count_line(void *context, const struct script_sample *sample)
{
	const struct script_frame *leaf = &sample->frames[0];
	const char *symbol = strcmp(leaf->symbol, "[unknown]") ? leaf->symbol : NULL;

	if (sample->depth)
		count(context, sample->comm, symbol, leaf->address, 1);
}

static void check(const char *what, const struct tally *tally)
{
	printf("%s: %lu samples in BPF programs have the right symbol, %lu a wrong one, %lu none\n",
	       what, tally->right + tally->wrong, tally->wrong, tally->unknown);
	CHECK_EQUAL(tally->wrong, 0);
	CHECK(tally->right >= ENOUGH);
	/*
	 * A program runs for a second and is found by the next scan, at most 50 ms later except on
	 * a slow machine.
	 */
	CHECK(tally->right >= tally->unknown);
}

static void check_perf(const char *directory, const char *file)
{
	struct tally tally = { 0 };
	char environment[128];

	snprintf(environment, sizeof(environment), "HOME=$PWD/%s", directory);
	perf_script_read(environment, file, "", count_line, &tally);
	check("perf", &tally);
}

static void check_report(const char *directory, const char *file)
{
	char cache[96];
	struct profile_options options = { .input = file,
					   .sources.buildid_dir = cache,
					   .threads = true,
					   .event = "0",
					   .vcpu = -1 };
	struct tally tally = { 0 };
	struct profile *profile;

	snprintf(cache, sizeof(cache), "%s/.debug", directory);
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	for (size_t i = 0; i < profile_stack_count(profile); i++) {
		const struct profile_stack *stack = profile_stack(profile, i);

		if (stack->depth)
			count(&tally, stack->comm, stack->frames[0]->symbol,
			      stack->frames[0]->address, (unsigned long)stack->samples);
	}
	profile_free(profile);
	check("report", &tally);
}

static void check_recording(const char *directory)
{
	char file[96];

	snprintf(file, sizeof(file), "%s/perf.data", directory);
	check_perf(directory, file);
	check_report(directory, file);
}

static void check_kernel(const char *version)
{
	const char *directory;

	RIG_REQUIRED();
	directory = debian_recording(version, "off");
	if (directory)
		check_recording(directory);
}

TEST(bpf_programs, debian_5_10_bpf_programs_have_symbols)
{
	check_kernel("5.10");
}

TEST(bpf_programs, debian_6_1_bpf_programs_have_symbols)
{
	check_kernel("6.1");
}

TEST(bpf_programs, debian_6_12_bpf_programs_have_symbols)
{
	check_kernel("6.12");
}

TEST(bpf_programs, debian_7_2_bpf_programs_have_symbols)
{
	check_kernel("7.2");
}

#define DIRECTORY "build/rig/bpf-programs"

/* The guest writes its symbols to its disk. */
static bool record_without_btf(const char *initrd)
{
	struct rig_result result;
	bool ran;

	rig_run(&result, 240,
		"d=$PWD/" DIRECTORY
		"; rm -rf $d; mkdir -p $d; truncate -s 32M $d/disk; HOME=$d tests/rig/begin-when-known build/kvmscope "
		"run --pmu off --timeout 200 --mem 256M --cpus 2 -F 499 -o $d/perf.data --kernel " WITHOUT_BTF_NAMES
		" --initrd %s --disk $d/disk --btf " WITHOUT_BTF_RAW
		" --append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT
		" kvmscope.wait kvmscope.run=cat+/proc/kallsyms+>/dev/vda;bpf+6'",
		initrd);
	ran = strstr(result.output, "guest-init: status 0") != NULL;
	if (!ran)
		FAIL_TEST("%s\n%s", result.output, result.errors);
	rig_result_free(&result);
	return ran;
}

/* And its modules, whose symbols are those in its own list. */
TEST(bpf_programs, kernel_without_usable_btf_gets_bpf_symbols_from_a_btf_file)
{
	const char *initrd;

	RIG_REQUIRED();
	initrd = without_btf_make() ? debian_recording_initrd(WITHOUT_BTF_VERSION) : NULL;
	if (!initrd || !record_without_btf(initrd))
		return;
	check_recording(DIRECTORY);
	kallsyms_truth_check(DIRECTORY);
}
