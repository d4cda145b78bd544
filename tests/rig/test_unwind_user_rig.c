/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call chains of a program without frame pointers in Debian's kernels, with nothing in the guest:
 * its calls are known.
 */
#include <stdio.h>

#include "tests/rig/debian_recording.h"
#include "tests/rig/rig.h"
#include "vmm/guest/symbol_table.h"
#include "vmm/report/profile_stacks.h"
#include "vmm/symbols/elf_symbols.h"

#define FRAMES_START 0x28000000ull
#define FRAMES_END   0x29000000ull
#define CHAIN_MAX    16

/* Innermost first; "*" stands for any number of functions of the C library. */
static const char *const chains[][CHAIN_MAX] = {
	{ "spin_below_frames", "large_frame", "variable_frame", "aligned_frame", "recursive",
	  "recursive", "recursive", "recursive", "main", "*", "_start", NULL },
	{ "spin_in_comparison", "compare", "*", "sort", "main", "*", "_start", NULL },
	{ "spin_in_handler", "handle", "*", "interrupt", "main", "*", "_start", NULL },
};
#define CHAINS (sizeof(chains) / sizeof(chains[0]))

struct counts {
	uint64_t whole[CHAINS]; /* samples with exactly this chain */
	uint64_t cut, wrong;
};

static bool is_library(const char *name)
{
	for (size_t i = 0; i < CHAINS; i++)
		for (size_t j = 0; chains[i][j]; j++)
			if (!strcmp(chains[i][j], name))
				return false;
	return true;
}

/* WHOLE: the chain reaches its end. False: it is a different one. */
static bool fits(const char *const *names, size_t count, const char *const *chain, bool *whole)
{
	size_t at = 0;

	for (size_t i = 0; i < count; i++) {
		if (chain[at] && !strcmp(chain[at], "*")) {
			if (is_library(names[i]))
				continue;
			at++;
		}
		if (!chain[at] || strcmp(chain[at], names[i]) != 0)
			return false;
		at++;
	}
	*whole = !chain[at];
	return true;
}

static void count_chain(const struct profile_stack *stack, const char *const *names, size_t count,
			struct counts *counts)
{
	bool whole;

	for (size_t i = 0; i < CHAINS; i++) {
		if (strcmp(names[0], chains[i][0]) != 0)
			continue;
		if (!fits(names, count, chains[i], &whole)) {
			counts->wrong += stack->samples;
			for (size_t j = 0; j < count; j++)
				printf("%s%s", j ? " <- " : "  wrong: ", names[j]);
			printf("\n");
		} else if (whole) {
			counts->whole[i] += stack->samples;
		} else {
			counts->cut += stack->samples;
		}
	}
}

/* Only chains of this program: nothing else is at its addresses. */
static void count_stack(const struct profile_stack *stack, const struct symbols *symbols,
			struct counts *counts)
{
	const char *names[128];
	size_t count = 0;

	for (size_t i = 0; i < stack->depth && count < 128; i++) {
		uint64_t address = stack->frames[i]->address;
		struct symbol symbol;

		if (stack->frames[i]->kernel)
			continue;
		if (address < FRAMES_START || address >= FRAMES_END ||
		    !symbols_find(symbols, address, &symbol))
			return;
		names[count++] = symbol.name;
	}
	if (count)
		count_chain(stack, names, count, counts);
}

static void check_recording(const char *version, const char *directory,
			    const struct symbols *symbols)
{
	char input[256], cache[256];
	struct profile_options options = {
		.input = input, .sources.buildid_dir = cache, .event = "0", .vcpu = -1
	};
	struct counts counts = { 0 };
	struct profile *profile;
	uint64_t whole = 0;

	snprintf(input, sizeof(input), "%s/perf.data", directory);
	snprintf(cache, sizeof(cache), "%s/.debug", directory);
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	for (size_t i = 0; i < profile_stack_count(profile); i++)
		count_stack(profile_stack(profile, i), symbols, &counts);
	profile_free(profile);
	for (size_t i = 0; i < CHAINS; i++) {
		printf("%s: %llu whole chains of %s\n", version,
		       (unsigned long long)counts.whole[i], chains[i][0]);
		CHECK(counts.whole[i] > 10);
		whole += counts.whole[i];
	}
	printf("%s: %llu are truncated, %llu wrong\n", version, (unsigned long long)counts.cut,
	       (unsigned long long)counts.wrong);
	CHECK_EQUAL(counts.wrong, 0);
	/* Samples before the program's unwind table was compiled have truncated chains. */
	CHECK(counts.cut * 10 <= whole);
}

static void unwinds(const char *version)
{
	const char *directory;
	struct symbols *symbols;

	RIG_REQUIRED();
	directory = debian_recording(version, "on");
	if (!directory)
		return;
	REQUIRE_EQUAL(elf_symbols_load(&symbols, FRAMES_PROGRAM, ELF_VIRTUAL_ADDRESSES,
				       (struct span){ 0 }),
		      0);
	check_recording(version, directory, symbols);
	symbols_free(symbols);
}

TEST(unwind, user_chains_in_debian_5_10_match_the_known_calls)
{
	unwinds("5.10");
}

TEST(unwind, user_chains_in_debian_6_1_match_the_known_calls)
{
	unwinds("6.1");
}

TEST(unwind, user_chains_in_debian_6_12_match_the_known_calls)
{
	unwinds("6.12");
}

TEST(unwind, user_chains_in_debian_7_2_match_the_known_calls)
{
	unwinds("7.2");
}
