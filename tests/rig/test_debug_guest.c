/* SPDX-License-Identifier: Apache-2.0 */
/* Guests of ours that use debug registers while the host watches, on a standard KVM. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/rig.h"
#include "vmm/symbols/elf_symbols.h"

#define GUEST "build/guests/guest.elf"

static unsigned long long address_of(const char *name)
{
	struct symbols *symbols;
	struct symbol symbol = { 0 };

	if (elf_symbols_load(&symbols, GUEST, ELF_VIRTUAL_ADDRESSES, (struct span){ 0 })) {
		FAIL_TEST("%s has no symbols", GUEST);
		return 0;
	}
	if (!symbols_find_name(symbols, name, &symbol))
		FAIL_TEST("%s has no symbol %s", GUEST, name);
	symbols_free(symbols);
	return symbol.start;
}

static void remove_returns(char *text)
{
	char *to = text;

	for (; *text; text++)
		if (*text != '\r')
			*to++ = *text;
	*to = '\0';
}

/*
 * The behaviour of the processor (SDM vol. 3B 18.2 and 18.3), so that both runs cannot be wrong in
 * the same way.
 */
static void check_cases(const char *text)
{
	static const char *const cases[] = {
		"case breakpoint at the same instruction: 3\n  code+0 dr6=ffff0ff1 dr7=401 rflags=0\n",
		"case single steps over the host's: 8\n  code+0 dr6=ffff4ff0 dr7=400 rflags=100\n",
		"  code+2 dr6=ffff4ff0 dr7=400 rflags=100\n",
		"case general detect: 1\n  detected+0 dr6=ffff2ff0 dr7=400 rflags=0\n  dr0=123456789a\n",
		"case DR6 is not cleared: 1\n  code+0 dr6=ffff4ff1 dr7=401 rflags=0\n",
		"case RF of the guest's own: 0\n",
		"faults: 2, single-stepped 0\ncase faults: 0\n",
		"own: 1000 2000 3000 4000 ffff0ff0 700\n",
		"aliases: ffff0ff0 400, undefined with DE: 1\n",
		"case four registers: 2\n  code+0 dr6=ffff0ff4",
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (!strstr(text, cases[i]))
			FAIL_TEST("the guest did not print:\n%sbut:\n%s", cases[i], text);
}

/* "host: code N, data N" is the expected number of the host's hits. */
static void check_hits(const char *text, const char *summary)
{
	unsigned int code = 0, data = 0;
	const char *truth = strstr(text, "host: ");
	char line[64];

	if (!truth || sscanf(truth, "host: code %u, data %u", &code, &data) != 2 || !code ||
	    !data) {
		FAIL_TEST("the guest did not finish: %s", text);
		return;
	}
	snprintf(line, sizeof(line), "mem:0x%llx:x: %u hits", address_of("debug_code_here"), code);
	if (!strstr(summary, line))
		FAIL_TEST("the summary has no '%s': %s", line, summary);
	snprintf(line, sizeof(line), "mem:0x%llx:w: %u hits", address_of("debug_data"), data);
	if (!strstr(summary, line))
		FAIL_TEST("the summary has no '%s': %s", line, summary);
}

/* Random registers on two vCPUs for this long, then calls of a watched function. */
static const char *hostile_command(unsigned int seconds)
{
	static char command[256];

	snprintf(
		command, sizeof(command),
		"build/kvmscope run --sampler kick --timeout 240 --pmu emulated --cpus 2 --kernel " GUEST
		" --append 'program=hostile cpus=2 seconds=%u' -o build/rig/hostile.data --watch 0x%llx:x,pinned",
		seconds, address_of("hostile_call"));
	return command;
}

/* Each unavailable event is reported once, and at most PMU_REPORTED_MAX of them. */
static void check_warnings(const char *errors)
{
	static const char warning[] = "warning: the guest's PMU cannot count ";
	unsigned int count = 0;

	for (const char *at = errors; (at = strstr(at, warning)); at += sizeof(warning), count++) {
		char line[200];

		snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
		if (strstr(at + sizeof(warning), line))
			FAIL_TEST("reported twice: %s", line);
	}
	CHECK(count <= 16);
}

static void check_hostile(const char *text, const char *errors)
{
	char line[64];

	CHECK(strstr(text, "hostile: each CPU has called"));
	snprintf(line, sizeof(line), "mem:0x%llx:x: %u hits", address_of("hostile_call"), 2 * 1000);
	if (!strstr(errors, line))
		FAIL_TEST("the summary has no '%s': %s", line, errors);
	check_warnings(errors);
}

#define SKIPPED_ROUNDS 50

/*
 * Each instruction that KVM steps over by itself and the one after it, two pairs at a time because
 * there are four registers.
 */
static const char *const skipped[] = { "skipped_cpuid", "skipped_out", "skipped_wrmsr",
				       "skipped_hlt" };

static unsigned long long skipped_at(int number, const char *where)
{
	char name[64];

	snprintf(name, sizeof(name), "%s_%s", skipped[number], where);
	return address_of(name);
}

static const char *skipped_command(void)
{
	static char command[1500];
	size_t at = 0;

	for (int pair = 0; pair < 4; pair += 2)
		at += (size_t)snprintf(
			command + at, sizeof(command) - at,
			"%srun_guest skipped%d 'program=skipped rounds=%d' "
			"--watch 0x%llx:x,pinned --watch 0x%llx:x,pinned --watch 0x%llx:x,pinned --watch 0x%llx:x,pinned",
			pair ? "; " : "", pair / 2, SKIPPED_ROUNDS, skipped_at(pair, "here"),
			skipped_at(pair, "behind"), skipped_at(pair + 1, "here"),
			skipped_at(pair + 1, "behind"));
	return command;
}

static void check_hits_of(const char *errors, const char *what, unsigned long long address)
{
	char line[64];

	snprintf(line, sizeof(line), "mem:0x%llx:x: %d hits", address, SKIPPED_ROUNDS);
	if (!strstr(errors, line))
		FAIL_TEST("the summary has no '%s' for %s: %s", line, what, errors);
}

static void check_skipped(const char *errors, int pair)
{
	for (int i = pair; i < pair + 2; i++) {
		check_hits_of(errors, skipped[i], skipped_at(i, "here"));
		check_hits_of(errors, skipped[i], skipped_at(i, "behind"));
	}
}

/*
 * The directory where each run of the rig leaves NAME.output, the guest's output, and NAME.errors.
 */
#define ON_AMD   "build/rig/debug-guest"
#define ON_INTEL "build/rig/debug-guest-intel"

/* run NAME COMMAND..., which has to succeed; run_guest NAME COMMAND-LINE OPTION... of kvmscope. */
#define BEGIN(directory)                                                                                     \
	"rm -rf " directory "; mkdir -p " directory "; "                                                     \
	"run() { local to=" directory "/$1; \"${@:2}\" > $to.output 2> $to.errors || "                       \
	"{ echo \"$1 failed with status $?:\"; cat $to.output $to.errors; }; }; "                            \
	"run_guest() { run \"$1\" build/kvmscope run --sampler kick --pmu off --timeout 180 --kernel " GUEST \
	" -o build/rig/debug-guest.data --append \"$2\" \"${@:3}\"; }; "

/* The watches of program=debug. */
static const char *watches(void)
{
	static char options[128];

	snprintf(options, sizeof(options), "--watch 0x%llx:x,pinned --watch 0x%llx:8:w,pinned",
		 address_of("debug_code_here"), address_of("debug_data"));
	return options;
}

static bool succeeded(const struct rig_result *result)
{
	if (result->status || *result->output)
		FAIL_TEST("in the rig: status %d: %s%s", result->status, result->output,
			  result->errors);
	return !result->status && !*result->output;
}

/* To be freed by rig_result_free(). */
static struct rig_result read_run(const char *directory, const char *name)
{
	struct rig_result run;

	rig_run_here(&run, 60, "cat %s/%s.output; cat %s/%s.errors >&2", directory, name, directory,
		     name);
	CHECK_EQUAL(run.status, 0);
	remove_returns(run.output);
	return run;
}

/*
 * The same guest prints the same output with and without watches, and the watches have all their
 * hits. Traps of RDPMC would let the guest see bits of DR6 for breakpoints that it has not enabled,
 * in both cases (docs/guest-pmu.md).
 */
static void check_guest(const char *directory, const char *name)
{
	struct rig_result alone = read_run(directory, "alone"), watched = read_run(directory, name);

	check_cases(alone.output);
	CHECK_STRING(watched.output, alone.output);
	check_hits(watched.output, watched.errors);
	if (!strcmp(name, "bpf"))
		CHECK(strstr(watched.errors, "sampled by bpf"));
	rig_result_free(&alone);
	rig_result_free(&watched);
}

static void check_skipped_runs(const char *directory)
{
	for (int pair = 0; pair < 4; pair += 2) {
		struct rig_result run = read_run(directory, pair ? "skipped1" : "skipped0");

		check_skipped(run.errors, pair);
		rig_result_free(&run);
	}
}

static void check_hostile_run(const char *directory)
{
	struct rig_result run = read_run(directory, "hostile");

	check_hostile(run.output, run.errors);
	rig_result_free(&run);
}

/*
 * Once for all tests; false: it failed, which fails each of them. The minute of the hostile guest
 * is wall-clock time: the others run at the same time.
 */
static bool run_on_amd(void)
{
	static struct rig_result result;

	if (!result.output)
		rig_run(&result, 400,
			BEGIN(ON_AMD) "run hostile %s & run_guest alone program=debug; "
				      "run_guest kick program=debug --sampler kick %s; "
				      "run_guest bpf program=debug --sampler bpf %s; %s; wait",
			hostile_command(60), watches(), watches(), skipped_command());
	return succeeded(&result);
}

TEST(debug_guest_rig, debug_registers_behave_as_without_watches)
{
	RIG_DEBUG_REGISTERS_REQUIRED();
	REQUIRE(run_on_amd());
	check_guest(ON_AMD, "kick");
	check_skipped_runs(ON_AMD);
}

/* The vCPU's thread handles the hits; nothing else stops it in this case. */
TEST(debug_guest_rig, debug_registers_behave_as_without_watches_while_bpf_samples)
{
	RIG_DEBUG_REGISTERS_REQUIRED();
	REQUIRE(run_on_amd());
	check_guest(ON_AMD, "bpf");
}

/* Its time is the guest's clock; a part of one CPU is enough for it. */
TEST(debug_guest_rig, watch_counts_correctly_after_a_minute_of_random_registers)
{
	RIG_DEBUG_REGISTERS_REQUIRED();
	REQUIRE(run_on_amd());
	check_hostile_run(ON_AMD);
}

TEST(debug_guest_rig,
     registers_are_as_without_watches_and_watch_is_right_after_random_ones_on_kvm_intel)
{
	struct rig_result result;

	RIG_INTEL_REQUIRED();
	rig_run_on(
		&result, RIG_INTEL, 400,
		BEGIN(ON_INTEL) "run_guest alone 'program=debug shared=1'; "
				"run_guest kick 'program=debug shared=1' --sampler kick %s; run hostile %s; %s",
		watches(), hostile_command(5), skipped_command());
	if (succeeded(&result)) {
		check_guest(ON_INTEL, "kick");
		check_hostile_run(ON_INTEL);
		check_skipped_runs(ON_INTEL);
	}
	rig_result_free(&result);
}
