/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope attach on a host with counters, where it samples by cycles with NMIs. No test machine
 * has counters; so the host is a guest of ours on a standard KVM (kvm_amd), with the counters that
 * kvmscope run emulates and a KVM of its own (--nested), and the attached VM is a guest of that
 * one.
 *
 * Meanwhile kvmscope run samples the host from outside, and has to distinguish the host from its
 * nested guest.
 */
#include <linux/perf_event.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rig/rig.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/symbols/elf_symbols.h"

/*
 * In Linux 5.17 to 6.6, KVM reports to perf the CPL at which the vCPU was last preempted (kernel:
 * 547c91929f43).
 */
#define KERNEL "6.12"

#define DIRECTORY "build/rig/cycles"
#define IMAGE     "build/guests/guest.elf"
#define INITRD    "build/initrd/cycles.cpio"

#define MAKE_INITRD                                                                                \
	"flock build tests/rig/initrd --kernel " KERNEL                                            \
	" --modules 'virtio_mmio virtio_blk kvm-amd' --output " INITRD " build/kvmscope " IMAGE    \
	" tests/rig/guest-cycles > /dev/null"

/* Skips parts of the guest kernel's boot that do not matter here. */
#define COMMAND                                                                                    \
	"rm -rf " DIRECTORY "; mkdir -p " DIRECTORY "; truncate -s 16M " DIRECTORY                 \
	"/results.tar; "                                                                           \
	"build/kvmscope run --sampler kick --nested --timeout %u --mem 320M -F 19 -o " DIRECTORY   \
	"/outside.data "                                                                           \
	"--no-buildid-cache --kernel %s --initrd " INITRD " --disk " DIRECTORY "/results.tar "     \
	"--append 'console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests "                \
	"initcall_blacklist=load_system_certificate_list,digsig_init,init_encrypted "              \
	"kvmscope.run=sh+/bin/guest-cycles+%s' < /dev/null && tar xf " DIRECTORY                   \
	"/results.tar -C " DIRECTORY

#define PARTS 4

/* By the number of iterations, which are identical; percent. */
static const struct part {
	const char *function;
	bool kernel;
	double share;
} parts[PARTS] = {
	{ "share_sixty", false, 30 },
	{ "share_thirty", false, 15 },
	{ "share_ten", false, 5 },
	{ "share_kernel", true, 50 },
};

struct modes {
	uint16_t guest_user, guest_kernel, host_user, host_kernel;
};

static const struct modes guests_view = { PERF_RECORD_MISC_USER, PERF_RECORD_MISC_KERNEL,
					  PERF_RECORD_MISC_HYPERVISOR,
					  PERF_RECORD_MISC_HYPERVISOR };
static const struct modes hosts_view = { PERF_RECORD_MISC_GUEST_USER, PERF_RECORD_MISC_GUEST_KERNEL,
					 PERF_RECORD_MISC_USER, PERF_RECORD_MISC_KERNEL };

struct shares {
	const struct modes *modes;
	struct symbols *image;
	double of[PARTS], all, squares; /* cycles by part, all, sum of the squares */
	double host;                    /* cycles */
	uint64_t samples, called; /* samples in the parts; those at CPL3, called by user_works() */
	uint64_t user_samples, host_samples;
	uint64_t wrong_level, wrong_side; /* samples whose image or address contradicts the part */
};

static int part_of(const struct shares *shares, uint64_t address)
{
	struct symbol symbol;

	if (symbols_find(shares->image, address, &symbol))
		for (int i = 0; i < PARTS; i++)
			if (!strcmp(symbol.name, parts[i].function))
				return i;
	return -1;
}

/* In the chain: a marker of the space, the address itself, the return address. */
static bool is_called(const struct shares *shares, const struct perf_data_sample *sample)
{
	struct symbol symbol;

	return sample->callchain_size >= 3 &&
	       symbols_find(shares->image, sample->callchain[2] - 1, &symbol) &&
	       !strcmp(symbol.name, "user_works");
}

static void add_guest_sample(struct shares *shares, const struct perf_data_sample *sample,
			     bool kernel)
{
	const int part = part_of(shares, sample->ip);
	const double weight = (double)sample->period;

	shares->wrong_side += sample->ip >> 63;
	if (part < 0)
		return;
	shares->wrong_level += parts[part].kernel != kernel;
	shares->of[part] += weight;
	shares->all += weight;
	shares->squares += weight * weight;
	shares->samples++;
	if (!kernel) {
		shares->user_samples++;
		shares->called += is_called(shares, sample);
	}
}

static int add_sample(void *context, const struct perf_data_sample *sample)
{
	struct shares *shares = context;
	const struct modes *modes = shares->modes;

	if (sample->misc == modes->guest_user || sample->misc == modes->guest_kernel) {
		add_guest_sample(shares, sample, sample->misc == modes->guest_kernel);
		return 0;
	}
	CHECK(sample->misc == modes->host_user || sample->misc == modes->host_kernel);
	shares->host_samples++;
	shares->host += (double)sample->period;
	if (modes->host_user != modes->host_kernel)
		shares->wrong_side += (sample->ip >> 63) != (sample->misc == modes->host_kernel);
	return 0;
}

/* Number of samples of equal weight with the same precision (Kish). */
static double effective(const struct shares *shares)
{
	return shares->squares > 0 ? shares->all * shares->all / shares->squares : 0;
}

static double share_of(const struct shares *shares, int part)
{
	return shares->all > 0 ? 100 * shares->of[part] / shares->all : 0;
}

static bool read_file(struct shares *shares, const char *name, uint32_t type, const char *event)
{
	const struct perf_data_events events = { .sample = add_sample, .context = shares };
	struct perf_data_reader *reader;
	char path[64];

	snprintf(path, sizeof(path), DIRECTORY "/%s.data", name);
	if (perf_data_reader_open(&reader, path)) {
		FAIL_TEST("cannot read %s", path);
		return false;
	}
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	CHECK_STRING(perf_data_reader_summary(reader)->event_name, event);
	CHECK_EQUAL(perf_data_reader_event(reader, 0)->type, type);
	perf_data_reader_close(reader);
	return true;
}

static void show(const char *name, const struct shares *shares)
{
	printf("%-5s", name);
	for (int i = 0; i < PARTS; i++)
		printf(" %5.1f %%", share_of(shares, i));
	printf(" of %llu samples, worth %.0f; outside of the guest %.1f %%, %llu samples; "
	       "%llu callers of %llu at CPL3\n",
	       (unsigned long long)shares->samples, effective(shares),
	       100 * shares->host / (shares->host + shares->all),
	       (unsigned long long)shares->host_samples, (unsigned long long)shares->called,
	       (unsigned long long)shares->user_samples);
}

/* Fewer samples prove nothing. */
#define SAMPLES_MIN 30

static void check_seen(const char *name, const struct shares *shares)
{
	CHECK(shares->samples >= SAMPLES_MIN);
	CHECK(shares->host_samples > 0);
	CHECK_EQUAL(shares->wrong_level, 0);
	CHECK_EQUAL(shares->wrong_side, 0);
	for (int i = 0; i < PARTS && effective(shares) > 0; i++) {
		const double share = parts[i].share;
		const double bound = 5 * sqrt(share * (100 - share) / effective(shares));

		if (fabs(share_of(shares, i) - share) > bound)
			FAIL_TEST(
				"%s: %s has %.1f %%, the truth is %.1f, the deviation by chance %.1f",
				name, parts[i].function, share_of(shares, i), share, bound);
	}
}

/* The log of kvmscope attach for NAME, valid until the next call. */
static const char *log_of(const char *name)
{
	static char text[8192];
	char path[64];
	FILE *file;
	size_t size = 0;

	snprintf(path, sizeof(path), DIRECTORY "/%s.log", name);
	file = fopen(path, "re");
	if (file) {
		size = fread(text, 1, sizeof(text) - 1, file);
		fclose(file);
	}
	text[size] = '\0';
	return text;
}

static void check_log(const char *name, const char *text)
{
	if (!strstr(log_of(name), text))
		FAIL_TEST("the log of attach %s has no '%s': %s", name, text, log_of(name));
}

static void check_way(const char *name, const struct modes *modes, uint32_t type, const char *event,
		      struct shares *shares)
{
	*shares = (struct shares){ .modes = modes };
	REQUIRE_EQUAL(
		elf_symbols_load(&shares->image, IMAGE, ELF_VIRTUAL_ADDRESSES, (struct span){ 0 }),
		0);
	if (read_file(shares, name, type, event))
		show(name, shares);
	symbols_free(shares->image);
}

static void check_perf(void)
{
	struct shares shares;

	check_way("perf", &hosts_view, PERF_TYPE_HARDWARE, "cycles", &shares);
	check_seen("perf", &shares);
	check_log("perf", "by perf: ");
	check_log("perf", "sampled by cycles");
}

/* There is no frame at a function's first and last instruction. */
static void check_auto(void)
{
	struct shares shares;

	check_way("auto", &guests_view, PERF_TYPE_HARDWARE, "cycles", &shares);
	check_seen("auto", &shares);
	CHECK(shares.called >= shares.user_samples * 95 / 100);
	check_log("auto", "by bpf: ");
	check_log("auto", "sampled by cycles");
}

/* Cycles are sampled with a frequency, which the kernel limits; the clock has a period. */
static void check_limit(const char *output)
{
	struct shares shares;

	CHECK(strstr(output, "guest-cycles: way slow 4"));
	check_log("slow", "the kernel limits cycle samples to 100 Hz, below 499");
	check_way("clock", &guests_view, PERF_TYPE_SOFTWARE, "cpu-clock", &shares);
	CHECK(shares.samples > 0);
	CHECK_EQUAL(shares.wrong_level, 0);
	check_log("clock", "sampled by cpu-clock");
}

/* Samples of the host by kvmscope run, and those in the loops of the nested guest. */
struct outside {
	struct symbols *image;
	uint64_t samples, nested;
};

static int add_outside_sample(void *context, const struct perf_data_sample *sample)
{
	struct outside *outside = context;
	struct symbol symbol;

	outside->samples++;
	outside->nested += symbols_find(outside->image, sample->ip, &symbol) &&
			   !strncmp(symbol.name, "share_", strlen("share_"));
	return 0;
}

static void check_outside(void)
{
	struct outside outside = { 0 };
	const struct perf_data_events events = { .sample = add_outside_sample,
						 .context = &outside };
	struct perf_data_reader *reader;
	uint64_t marked;

	REQUIRE_EQUAL(
		elf_symbols_load(&outside.image, IMAGE, ELF_VIRTUAL_ADDRESSES, (struct span){ 0 }),
		0);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, DIRECTORY "/outside.data"), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	marked = perf_data_reader_summary(reader)->losses.counts[LOSS_OTHER_KERNEL];
	printf("from outside: %llu samples, %llu in the loops of the nested guest; %llu are marked as another "
	       "kernel's\n",
	       (unsigned long long)outside.samples, (unsigned long long)outside.nested,
	       (unsigned long long)marked);
	CHECK(outside.nested > 0);
	CHECK(marked >= outside.nested);
	perf_data_reader_close(reader);
	symbols_free(outside.image);
}

TEST(attach_cycles, attach_samples_by_cycles_on_a_host_with_counters)
{
	const char *seconds = getenv("KVMSCOPE_ATTACH_SECONDS");
	const char *kernel;
	struct rig_result result;

	RIG_DEBUG_REGISTERS_REQUIRED();
	kernel = rig_kernel(KERNEL);
	if (!kernel)
		return;
	REQUIRE(!system(MAKE_INITRD)); /* NOLINT(cert-env33-c): fixed words */
	rig_run(&result, 600, COMMAND, 560u, kernel, seconds ? seconds : "8");
	printf("%s", result.output);
	if (result.status || !strstr(result.output, "guest-cycles: end")) {
		FAIL_TEST("the host did not finish: %.4000s", result.errors);
	} else {
		CHECK(!strstr(result.output, "guest-cycles: bad"));
		check_perf();
		check_auto();
		check_limit(result.output);
		check_outside();
	}
	rig_result_free(&result);
}
