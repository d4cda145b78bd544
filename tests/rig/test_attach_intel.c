/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope attach on kvm_intel, which keeps fewer guest registers where other programs can read
 * them than kvm_amd: the shares of a guest of kvmscope run with each backend; and with bpf the
 * processes of Debian's kernel, their functions and call chains. One start of the rig for
 * everything.
 */
#include <linux/perf_event.h>
#include <math.h>
#include <stdio.h>

#include "tests/e2e/perf_recording.h"
#include "tests/rig/rig.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/report/profile_stacks.h"
#include "vmm/symbols/elf_symbols.h"

#define DIRECTORY "build/rig/attach-intel"
#define ATTACH(way)                                                                                \
	"timeout 100 build/kvmscope attach --pid $own --backend " way                              \
	" --time 3 -F 999 --stop-limit 20000 -o " DIRECTORY "/" way ".data 2> " DIRECTORY "/" way  \
	".log || { cat " DIRECTORY "/" way ".log >&2; exit 1; }; "

static const char *const functions[] = { "share_sixty", "share_thirty", "share_ten" };
static const double truth[] = { 60, 30, 10 };

#define PARTS 3

struct shares {
	struct symbols *symbols;
	double of[PARTS], weight, squares; /* ns */
	uint64_t guest, lost;              /* samples */
};

static int add_sample(void *context, const struct perf_data_sample *sample)
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

static int add_lost(void *context, uint64_t count)
{
	struct shares *shares = context;

	shares->lost += count;
	return 0;
}

static void read_shares(const char *way, struct shares *shares)
{
	const struct perf_data_events events = { .sample = add_sample,
						 .lost = add_lost,
						 .context = shares };
	char path[64];

	snprintf(path, sizeof(path), DIRECTORY "/%s.data", way);
	recording_replay(path, &events);
}

/* Within 3 points, or five standard deviations if there are too few samples (Kish). */
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

		if (!(fabs(share - truth[i]) <=
		      fmax(3, 5 * sqrt(truth[i] * (100 - truth[i]) / worth))))
			FAIL_TEST("with %s %s has %.1f %%, not %.0f %%", way, functions[i], share,
				  truth[i]);
	}
}

#define OWN                                                                                                                                            \
	"build/kvmscope run --no-profile --kernel build/guests/guest.elf --mem 64M --append 'program=shares rounds=1000000 chunk=100000' > " DIRECTORY \
	"/own.out 2>&1 & own=$!; until grep -qs working " DIRECTORY                                                                                    \
	"/own.out; do sleep 0.2; kill -0 $own || exit 1; done; " ATTACH("perf") ATTACH("bpf")                                                          \
		ATTACH("ptrace") "kill $own; wait $own; "
/* The kernel's memory, for annotation, is too large to copy out of the rig. */
#define DEBIAN                                                                                                                                                          \
	"build/kvmscope run --no-profile --kernel %s --initrd %s --mem 192M --append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT                                         \
	" kvmscope.run=workload+mixed+1000' > " DIRECTORY                                                                                                               \
	"/debian.out 2>&1 & own=$!; until grep -qs guest-init " DIRECTORY                                                                                               \
	"/debian.out; do sleep 0.2; kill -0 $own || exit 1; done; sleep 2; timeout 200 build/kvmscope attach -v --pid $own --backend bpf --time 6 -F 499 -o " DIRECTORY \
	"/debian.data 2> " DIRECTORY "/debian.log || { cat " DIRECTORY                                                                                                  \
	"/debian.log >&2; exit 1; }; kill $own; wait $own; rm -rf $HOME/.debug/*kcore*"

/* Once for all tests; false: it failed, which fails each of them. */
static bool run_in_rig(void)
{
	static struct rig_result result;
	const char *kernel = rig_kernel("6.1"), *initrd = rig_initrd("6.1");

	if (!kernel || !initrd)
		return false;
	if (!result.output)
		rig_run_on(&result, RIG_INTEL, 500,
			   "mount -t debugfs debugfs /sys/kernel/debug; rm -rf " DIRECTORY
			   "; mkdir -p " DIRECTORY "; export HOME=$PWD/" DIRECTORY "; " OWN DEBIAN,
			   kernel, initrd);
	if (result.status)
		FAIL_TEST("attaching in the rig failed: %.2000s%.2000s", result.output,
			  result.errors);
	return !result.status;
}

TEST(attach_intel, every_backend_measures_correct_shares)
{
	static const char *const ways[] = { "perf", "bpf", "ptrace" };
	struct symbols *symbols;

	RIG_INTEL_REQUIRED();
	REQUIRE(run_in_rig());
	REQUIRE_EQUAL(elf_symbols_load(&symbols, "build/guests/guest.elf", ELF_VIRTUAL_ADDRESSES,
				       (struct span){ 0 }),
		      0);
	for (int i = 0; i < 3; i++) {
		struct shares shares = { .symbols = symbols };

		read_shares(ways[i], &shares);
		check_shares(ways[i], &shares);
	}
	symbols_free(symbols);
}

/*
 * The activity of a process of tests/rig/guest/workload.c (mixed): hashing, sorting, or a system
 * call.
 */
enum place { HASHES, SORTS, CALLS };

static const struct part {
	const char *comm;
	enum place place;
	double truth; /* % */
} parts[] = {
	{ "web", HASHES, 45 },   { "web", SORTS, 35 },   { "web", CALLS, 20 },
	{ "store", SORTS, 15 },  { "store", CALLS, 85 }, { "logger", HASHES, 50 },
	{ "logger", CALLS, 50 },
};
#define MIXED_PARTS (sizeof(parts) / sizeof(parts[0]))

struct mixed {
	double of[MIXED_PARTS], of_process[MIXED_PARTS]; /* ns */
	uint64_t samples[MIXED_PARTS];                   /* of the processes */
	uint64_t in_hash, whole; /* in hash_block(); those with callers up to main() */
	uint64_t unknown, wrong; /* of no known process; of an impossible one */
};

static bool is_symbol(const struct profile_frame *frame, const char *symbol)
{
	return frame->symbol && !strcmp(frame->symbol, symbol);
}

static bool has_frame(const struct profile_stack *stack, const char *symbol)
{
	for (size_t i = 0; i < stack->depth; i++)
		if (is_symbol(stack->frames[i], symbol))
			return true;
	return false;
}

static enum place place_of(const struct profile_stack *stack)
{
	if (stack->frames[0]->kernel)
		return CALLS;
	return is_symbol(stack->frames[0], "hash_block") ? HASHES : SORTS;
}

/*
 * The program is static. hash_block() has no frame, so frame pointers lead from it to run_tasks(),
 * the caller of its only caller; nor has a sample in the first instructions.
 */
static bool is_wrong(const struct profile_stack *stack)
{
	const struct profile_frame *leaf = stack->frames[0];

	if (leaf->kernel)
		return false;
	if (strcmp(leaf->image, "[unknown]") != 0 && !strstr(leaf->image, "workload") &&
	    strcmp(leaf->image, "[vdso]") != 0)
		return true;
	return place_of(stack) == HASHES &&
	       (!strcmp(stack->comm, "store") ||
		(stack->depth > 1 && !is_symbol(stack->frames[1], "run_tasks") &&
		 !is_symbol(stack->frames[1], "start_process")));
}

static void add_to_part(struct mixed *mixed, size_t part, const struct profile_stack *stack)
{
	mixed->of_process[part] += (double)stack->weight;
	mixed->samples[part] += stack->samples;
	if (place_of(stack) == parts[part].place)
		mixed->of[part] += (double)stack->weight;
}

static void add_mixed(struct mixed *mixed, const struct profile_stack *stack)
{
	bool known = false;

	for (size_t i = 0; i < MIXED_PARTS; i++) {
		if (strcmp(stack->comm, parts[i].comm) != 0)
			continue;
		known = true;
		add_to_part(mixed, i, stack);
	}
	if (known && place_of(stack) == HASHES) {
		mixed->in_hash += stack->samples;
		mixed->whole += has_frame(stack, "main") ? stack->samples : 0;
	}
	if (!is_symbol(stack->frames[0], "[host]"))
		*(known ? &mixed->wrong : &mixed->unknown) +=
			!known || is_wrong(stack) ? stack->samples : 0;
}

static bool read_mixed(struct mixed *mixed)
{
	const struct profile_options options = { .input = DIRECTORY "/debian.data",
						 .sources.buildid_dir = DIRECTORY "/.debug",
						 .vcpu = -1 };
	struct profile *profile;

	*mixed = (struct mixed){ 0 };
	if (profile_load(&profile, &options))
		return false;
	for (size_t i = 0; i < profile_stack_count(profile); i++)
		add_mixed(mixed, profile_stack(profile, i));
	profile_free(profile);
	printf("%llu of %llu samples in hash_block() have all callers; %llu have no process, %llu a wrong one\n",
	       (unsigned long long)mixed->whole, (unsigned long long)mixed->in_hash,
	       (unsigned long long)mixed->unknown, (unsigned long long)mixed->wrong);
	return true;
}

/*
 * Nothing of ours runs in that guest, and KVM has neither RSP nor CR3. Its workload has the shares
 * over its whole run: in some seconds of it they may be off by some slices.
 */
TEST(attach_intel, bpf_finds_processes_and_call_chains_of_debian)
{
	struct mixed mixed;

	RIG_INTEL_REQUIRED();
	REQUIRE(run_in_rig());
	REQUIRE(read_mixed(&mixed));
	CHECK_EQUAL(mixed.wrong, 0);
	CHECK(mixed.unknown <= 100);
	CHECK(mixed.in_hash > 50);
	CHECK(mixed.whole >= 0.95 * (double)mixed.in_hash);
	for (size_t i = 0; i < MIXED_PARTS; i++) {
		double share = 100 * mixed.of[i] / mixed.of_process[i], true_share = parts[i].truth;
		double bound = fmax(
			5, 5 * sqrt(true_share * (100 - true_share) / (double)mixed.samples[i]));

		printf("%-6s %5.1f %% of %llu samples, the truth is %.0f %%\n", parts[i].comm,
		       share, (unsigned long long)mixed.samples[i], true_share);
		CHECK(mixed.samples[i] > 100);
		CHECK(fabs(share - true_share) <= bound);
	}
}
