// SPDX-License-Identifier: Apache-2.0
/*
 * kvmscope attach on kvm_intel, which keeps less of a guest's registers where others can see them than
 * kvm_amd: the shares of our own VMM's guest by each way.
 */
#include <linux/perf_event.h>
#include <math.h>
#include <stdio.h>

#include "tests/rig/rig.h"
#include "vmm/profile/elf_symbols.h"
#include "vmm/profile/perf_data_reader.h"

#define DIRECTORY "build/rig/attach-intel"
#define ATTACH(way)                                                                                          \
	"timeout 100 build/kvmscope attach --pid $own --backend " way                                        \
	" --time 3 -F 999 --stop-limit 20000 -o " DIRECTORY "/" way ".data 2> " DIRECTORY "/" way            \
	".log || { cat " DIRECTORY "/" way ".log >&2; exit 1; }; "

static const char *const functions[] = { "share_sixty", "share_thirty", "share_ten" };
static const double truth[] = { 60, 30, 10 };

#define PARTS 3

struct shares {
	struct symbols *symbols;
	double of[PARTS], weight, squares; /* ns */
	uint64_t guest, lost;              /* samples */
};

static int take_sample(void *context, const struct perf_data_sample *sample)
{
	struct shares *shares = context;
	double period = (double)sample->period;
	struct symbol symbol;

	if (sample->misc != PERF_RECORD_MISC_USER)
		return 0;
	shares->guest++;
	shares->weight += period;
	shares->squares += period * period;
	if (symbols_find(shares->symbols, sample->ip, &symbol))
		for (int i = 0; i < PARTS; i++)
			shares->of[i] += strcmp(symbol.name, functions[i]) ? 0 : period;
	return 0;
}

static int take_lost(void *context, uint64_t count)
{
	struct shares *shares = context;

	shares->lost += count;
	return 0;
}

static void read_shares(const char *way, struct shares *shares)
{
	const struct perf_data_events events = { .sample = take_sample,
						 .lost = take_lost,
						 .context = shares };
	struct perf_data_reader *reader;
	char path[64];

	snprintf(path, sizeof(path), DIRECTORY "/%s.data", way);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
}

/* Within 3 points, or five standard deviations where there are not samples enough for that (Kish). */
static void check_shares(const char *way, const struct shares *shares)
{
	double worth = shares->squares > 0 ? shares->weight * shares->weight / shares->squares : 0;

	printf("%-6s", way);
	for (int i = 0; i < PARTS; i++)
		printf(" %5.1f", 100 * shares->of[i] / shares->weight);
	printf(" %% of %llu samples, %llu lost\n", (unsigned long long)shares->guest,
	       (unsigned long long)shares->lost);
	CHECK(shares->guest > 50);
	CHECK(shares->lost <= shares->guest / 10);
	for (int i = 0; i < PARTS; i++) {
		double share = 100 * shares->of[i] / shares->weight;

		if (!(fabs(share - truth[i]) <= fmax(3, 5 * sqrt(truth[i] * (100 - truth[i]) / worth))))
			FAIL_TEST("by %s %s has %.1f %%, not %.0f %%", way, functions[i], share, truth[i]);
	}
}

TEST(attach_intel, shares_by_each_way)
{
	static const char *const ways[] = { "perf", "bpf", "ptrace" };
	struct rig_result result;
	struct symbols *symbols;

	if (rig_intel_unavailable_reason())
		SKIP("no Intel rig: %s", rig_intel_unavailable_reason());
	rig_run_intel(
		&result, 400,
		"mount -t debugfs debugfs /sys/kernel/debug; rm -rf " DIRECTORY "; mkdir -p " DIRECTORY
		"; export HOME=$PWD/" DIRECTORY "; build/kvmscope run --no-profile --kernel "
		"build/guests/guest.elf --mem 64M --append 'program=shares rounds=1000000 chunk=100000' > " DIRECTORY
		"/own.out 2>&1 & own=$!; until grep -qs working " DIRECTORY
		"/own.out; do sleep 0.2; kill -0 $own || exit 1; done; " ATTACH("perf") ATTACH("bpf")
			ATTACH("ptrace") "kill $own; wait $own");
	if (result.status)
		FAIL_TEST("attaching in the rig failed: %.2000s%.2000s", result.output, result.errors);
	REQUIRE_EQUAL(elf_symbols_load(&symbols, "build/guests/guest.elf", ELF_VIRTUAL_ADDRESSES, NULL, 0),
		      0);
	for (int i = 0; i < 3 && !result.status; i++) {
		struct shares shares = { .symbols = symbols };

		read_shares(ways[i], &shares);
		check_shares(ways[i], &shares);
	}
	symbols_free(symbols);
	rig_result_free(&result);
}
