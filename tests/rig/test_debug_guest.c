// SPDX-License-Identifier: Apache-2.0
/* Guests of our own and their debug registers, beside watches of the host, on a standard KVM. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/rig.h"
#include "vmm/profile/elf_symbols.h"

#define GUEST   "build/guests/guest.elf"
#define DIVIDER "===== beside watches\n"

static unsigned long long address_of(const char *name)
{
	struct symbols *symbols;
	struct symbol symbol = { 0 };

	if (elf_symbols_load(&symbols, GUEST, ELF_VIRTUAL_ADDRESSES, NULL, 0)) {
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

/* What the processor does (SDM vol. 3B 18.2 and 18.3), so that it is not the same nonsense twice. */
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

/* "host: code N, data N" is how often the host had to see what. */
static void check_hits(const char *text, const char *summary)
{
	unsigned int code = 0, data = 0;
	const char *truth = strstr(text, "host: ");
	char line[64];

	if (!truth || sscanf(truth, "host: code %u, data %u", &code, &data) != 2 || !code || !data) {
		FAIL_TEST("the guest did not come to its end: %s", text);
		return;
	}
	snprintf(line, sizeof(line), "mem:0x%llx:x: %u hits", address_of("debug_code_here"), code);
	if (!strstr(summary, line))
		FAIL_TEST("the summary does not say '%s': %s", line, summary);
	snprintf(line, sizeof(line), "mem:0x%llx:w: %u hits", address_of("debug_data"), data);
	if (!strstr(summary, line))
		FAIL_TEST("the summary does not say '%s': %s", line, summary);
}

/* Random registers on two vCPUs for so long, then calls of a function that is watched. */
static const char *hostile_command(unsigned int seconds)
{
	static char command[256];

	snprintf(
		command, sizeof(command),
		"build/kvmscope run --timeout 240 --pmu emulated --cpus 2 --kernel " GUEST
		" --append 'program=hostile cpus=2 seconds=%u' -o build/rig/hostile.data --watch 0x%llx:x,pinned",
		seconds, address_of("hostile_call"));
	return command;
}

/* No event that can not be counted is told of twice, and none above so many (PMU_TOLD_MAX). */
static void check_warnings(const char *errors)
{
	static const char warning[] = "warning: the guest's PMU can not count ";
	unsigned int count = 0;

	for (const char *at = errors; (at = strstr(at, warning)); at += sizeof(warning), count++) {
		char line[200];

		snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
		if (strstr(at + sizeof(warning), line))
			FAIL_TEST("said twice: %s", line);
	}
	CHECK(count <= 16);
}

static void check_hostile(const char *text, const char *errors)
{
	char line[64];

	CHECK(strstr(text, "hostile: each CPU has called"));
	snprintf(line, sizeof(line), "mem:0x%llx:x: %u hits", address_of("hostile_call"), 2 * 1000);
	if (!strstr(errors, line))
		FAIL_TEST("the summary does not say '%s': %s", line, errors);
	check_warnings(errors);
}

#define SKIPPED_ROUNDS 50

/* Each instruction that KVM steps over by itself and the one behind it, two pairs at a time: there are four
 * registers. */
static const char *const skipped[] = { "skipped_cpuid", "skipped_out", "skipped_wrmsr", "skipped_hlt" };

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
			"&& build/kvmscope run --pmu off --timeout 100 --kernel " GUEST
			" -o build/rig/skipped.data --append 'program=skipped rounds=%d' "
			"--watch 0x%llx:x,pinned --watch 0x%llx:x,pinned --watch 0x%llx:x,pinned --watch 0x%llx:x,pinned >&2 ",
			SKIPPED_ROUNDS, skipped_at(pair, "here"), skipped_at(pair, "behind"),
			skipped_at(pair + 1, "here"), skipped_at(pair + 1, "behind"));
	return command;
}

static void check_hits_of(const char *errors, const char *what, unsigned long long address)
{
	char line[64];

	snprintf(line, sizeof(line), "mem:0x%llx:x: %d hits", address, SKIPPED_ROUNDS);
	if (!strstr(errors, line))
		FAIL_TEST("the summary does not say '%s' of %s: %s", line, what, errors);
}

static void check_skipped(const char *errors)
{
	for (int i = 0; i < 4; i++) {
		check_hits_of(errors, skipped[i], skipped_at(i, "here"));
		check_hits_of(errors, skipped[i], skipped_at(i, "behind"));
	}
}

/*
 * The same guest without watches and with them prints the same, and they have all their hits. THEN
 * is what else is run in the same rig. Traps of RDPMC would let it see bits of DR6 for breakpoints that it
 * has not enabled, in both (docs/guest-pmu.md).
 */
static void check_guest(struct rig_result *result, enum rig_kind kind, const char *more, const char *sampler,
			const char *then)
{
	char *beside;

	rig_run_on(
		result, kind, 400,
		"mkdir -p build/rig; guest='build/kvmscope run --pmu off --timeout 180 --kernel " GUEST
		" -o build/rig/debug-guest.data'; "
		"$guest --append 'program=debug %s' && echo '" DIVIDER "' && "
		"$guest --append 'program=debug %s' --sampler %s --watch 0x%llx:x,pinned --watch 0x%llx:8:w,pinned %s",
		more, more, sampler, address_of("debug_code_here"), address_of("debug_data"), then);
	remove_returns(result->output);
	beside = strstr(result->output, DIVIDER);
	if (result->status || !beside) {
		FAIL_TEST("the guest did not run: %s%s", result->output, result->errors);
	} else {
		*beside = '\0';
		beside += sizeof(DIVIDER);
		check_cases(result->output);
		CHECK_STRING(beside, result->output);
		check_hits(beside, result->errors);
	}
}

TEST(debug_guest_rig, registers_are_as_without_watches)
{
	struct rig_result result;

	RIG_DEBUG_REGISTERS_REQUIRED();
	check_guest(&result, RIG_AMD, "", "kick", skipped_command());
	check_skipped(result.errors);
	rig_result_free(&result);
}

/* The hits come by the vCPU's thread, which nothing else stops then. */
TEST(debug_guest_rig, registers_are_as_without_watches_while_bpf_samples)
{
	struct rig_result result;

	RIG_DEBUG_REGISTERS_REQUIRED();
	check_guest(&result, RIG_AMD, "", "bpf", "");
	CHECK(strstr(result.errors, "sampled by bpf"));
	rig_result_free(&result);
}

/* In one rig, which takes some ten seconds to start. */
TEST(debug_guest_rig, registers_are_as_without_watches_and_watch_is_right_after_random_ones_on_kvm_intel)
{
	struct rig_result result;
	char then[2000];

	RIG_INTEL_REQUIRED();
	snprintf(then, sizeof(then), "&& %s >&2 %s", hostile_command(5), skipped_command());
	check_guest(&result, RIG_INTEL, "shared=1", "kick", then);
	check_hostile(result.errors, result.errors);
	check_skipped(result.errors);
	rig_result_free(&result);
}

/* Its time is the guest's, by its clock; one processor is enough for it. */
TEST(debug_guest_rig, watch_is_right_after_a_minute_of_random_registers)
{
	struct rig_result result;

	RIG_DEBUG_REGISTERS_REQUIRED();
	rig_run(&result, 300, "%s", hostile_command(60));
	CHECK_EQUAL(result.status, 0);
	check_hostile(result.output, result.errors);
	rig_result_free(&result);
}
