// SPDX-License-Identifier: Apache-2.0
/* Guests of our own and their debug registers, beside watches of the host, on a standard KVM. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/rig.h"
#include "vmm/profile/elf_symbols.h"

#define GUEST   "build/guests/guest.elf"
#define DIVIDER "===== beside watches\n"

typedef void __attribute__((format(printf, 3, 4)))
run_in_rig(struct rig_result *result, unsigned int timeout, const char *format, ...);

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
		"  code+1 dr6=ffff4ff0 dr7=400 rflags=100\n",
		"case general detect: 1\n  detected+0 dr6=ffff2ff0 dr7=400 rflags=0\n  dr0=123456789a\n",
		"case DR6 is not cleared: 1\n  code+0 dr6=ffff4ff1 dr7=401 rflags=0\n",
		"case RF of the guest's own: 0\n",
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

/* The same guest without watches and with them prints the same, and they have all their hits. */
static void check_guest(run_in_rig *run, const char *more)
{
	struct rig_result result;
	char *beside;

	run(&result, 400,
	    "mkdir -p build/rig; guest='build/kvmscope run --timeout 180 --kernel " GUEST
	    " -o build/rig/debug-guest.data'; "
	    "$guest --append 'program=debug %s' && echo '" DIVIDER "' && "
	    "$guest --append 'program=debug %s' --watch 0x%llx:x,pinned --watch 0x%llx:8:w,pinned",
	    more, more, address_of("debug_code_here"), address_of("debug_data"));
	remove_returns(result.output);
	beside = strstr(result.output, DIVIDER);
	if (result.status || !beside) {
		FAIL_TEST("the guest did not run: %s%s", result.output, result.errors);
	} else {
		*beside = '\0';
		beside += sizeof(DIVIDER);
		check_cases(result.output);
		CHECK_STRING(beside, result.output);
		check_hits(beside, result.errors);
	}
	rig_result_free(&result);
}

TEST(debug_guest_rig, registers_are_as_without_watches)
{
	RIG_DEBUG_REGISTERS_REQUIRED();
	check_guest(rig_run, "");
}

TEST(debug_guest_rig, registers_are_as_without_watches_on_kvm_intel)
{
	if (rig_intel_unavailable_reason())
		SKIP("no Intel rig: %s", rig_intel_unavailable_reason());
	check_guest(rig_run_intel, "shared=1");
}

/* Its time is the guest's, by its clock; one processor is enough for it. */
TEST(debug_guest_rig, watch_is_right_after_a_minute_of_random_registers)
{
	struct rig_result result;
	char line[64];

	RIG_DEBUG_REGISTERS_REQUIRED();
	rig_run(&result, 300,
		"build/kvmscope run --timeout 240 --pmu emulated --cpus 2 --kernel " GUEST
		" --append 'program=hostile cpus=2 seconds=60' -o build/rig/hostile.data --watch 0x%llx:x,pinned",
		address_of("hostile_call"));
	snprintf(line, sizeof(line), "mem:0x%llx:x: %u hits", address_of("hostile_call"), 2 * 1000);
	CHECK_EQUAL(result.status, 0);
	CHECK(strstr(result.output, "hostile: each CPU has called"));
	if (!strstr(result.errors, line))
		FAIL_TEST("the summary does not say '%s': %s", line, result.errors);
	rig_result_free(&result);
}
