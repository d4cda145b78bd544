/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope run with the BPF sampler of kvmscope attach: its samples have the properties of those by
 * kicks.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/kvm/function_shares.h"
#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/symbols/elf_symbols.h"

#define RUN                                                                                        \
	"run --kernel " GUEST_IMAGE " --mem 64M --timeout 250 --no-buildid-cache --console none "

/* The samples of a recording. */
struct seen {
	struct function_shares user;
	uint64_t samples, host;
	uint64_t periods[2]; /* samples of 1/1000 and of 1/100 s */
	uint64_t parts;      /* samples of other than whole 1/1000 s */
	uint64_t other;      /* neither guest nor host */
	uint64_t of_vcpu[3]; /* number of samples; if KVM interprets a guest's kernel, they are
			      * of the host */
};

static int see_sample(void *context, const struct perf_data_sample *sample)
{
	struct seen *seen = context;

	seen->samples++;
	seen->periods[0] += sample->period == 1000000;
	seen->periods[1] += sample->period == 10000000;
	seen->parts += sample->period % 1000000 != 0;
	if (sample->cpu < 3)
		seen->of_vcpu[sample->cpu]++;
	if (sample->misc == PERF_RECORD_MISC_USER)
		function_shares_add(&seen->user, sample);
	else if (sample->misc == PERF_RECORD_MISC_HYPERVISOR)
		seen->host++;
	else if (sample->misc != PERF_RECORD_MISC_KERNEL)
		seen->other++;
	return 0;
}

static void see(const char *path, struct seen *seen)
{
	const struct perf_data_events events = { .sample = see_sample, .context = seen };

	*seen = (struct seen){ 0 };
	function_shares_read(&seen->user, path, GUEST_IMAGE, &events);
}

/* Tests of other builds may run at the same time. No '_', see program.h. */
static const char *output(void)
{
	static char path[64];

	snprintf(path, sizeof(path), "build/test-run-bpf-%d.data", getpid());
	return path;
}

static void start(struct program *program, const char *options)
{
	char arguments[512];

	snprintf(arguments, sizeof(arguments), RUN "--sampler bpf -o %s %s", output(), options);
	program_start(program, arguments);
}

/* Returns false if this machine does not let BPF sample; the message is in PROGRAM. */
static bool has_sampled(const struct program *program)
{
	if (program->status == 1 && strstr(program->text, "BPF"))
		return false;
	CHECK_EQUAL(program->status, 0);
	CHECK(strstr(program->text, "sampled by bpf"));
	return true;
}

#define BPF_REQUIRED(program)                                                                      \
	do {                                                                                       \
		if (!has_sampled(program))                                                         \
			SKIP("BPF cannot be used here: %.200s", (program)->text);                  \
	} while (0)

static void check_shares(const struct seen *seen, const char *text)
{
	const struct function_shares *user = &seen->user;
	double bound = share_bound(effective_samples(user->weight, user->squares), 0.6, 3);

	CHECK_EQUAL(seen->other, 0);
	REQUIRE(user->in_loops > 300);
	for (int i = 0; i < 3; i++) {
		double share = function_shares_of(user, i);

		if (fabs(share - function_shares_truth[i]) > bound)
			FAIL_TEST("function %d has %.1f %%, not %.0f %%: %s", i, share,
				  function_shares_truth[i], text);
	}
}

TEST(run_bpf, shares_and_callers_are_the_guest_s)
{
	struct program program;
	struct seen seen;

	GUEST_REQUIRED();
	start(&program, "-F 4000 --pmu emulated --append program=shares_rounds=500");
	program_wait(&program);
	BPF_REQUIRED(&program);
	see(output(), &seen);
	check_shares(&seen, program.text);
	/* The first and the last instruction of a function have no frame. */
	CHECK(seen.user.called >= seen.user.in_loops * 99 / 100);
	unlink(output());
}

/* Kicks, with WHY; only --verbose reports it. */
static void check_automatic(const char *options, const char *why)
{
	char arguments[512];
	struct program program;

	for (int verbose = 0; verbose < 2; verbose++) {
		snprintf(arguments, sizeof(arguments),
			 RUN "%s -o %s %s --append program=shares_rounds=8", verbose ? "-v" : "",
			 output(), options);
		program_run(&program, arguments);
		CHECK_EQUAL(program.status, 0);
		if (!verbose)
			CHECK(!strstr(program.text, "sampled by"));
		else if (!strstr(program.text, "sampled by kicks, not by bpf: ") ||
			 !strstr(program.text, why))
			FAIL_TEST("not sampled by kicks because %s: %s", why, program.text);
	}
	unlink(output());
}

/* On kvm_amd: the guest is not Linux. */
TEST(run_bpf, auto_uses_kicks_where_something_would_be_lost_and_reports_why)
{
	const char *why = "this KVM may interpret the guest's kernel";

	GUEST_REQUIRED();
	if (!access("/sys/module/kvm_intel", F_OK))
		why = "on kvm_intel it has no kernel call chains";
	else if (!access("/sys/module/kvm_amd", F_OK))
		why = "it has kernel call chains of 64-bit Linux only";
	check_automatic("", why);
	check_automatic("--clock wall", "a halted vCPU gets no interrupts of the clock");
}

TEST(run_bpf, wrong_usage_reports_what_is_right)
{
	program_refuses(RUN "--sampler often", "--sampler often: it must be one of auto");
	program_refuses(RUN "--sampler bpf --clock wall", "needs --clock cpu");
}

TEST(run_bpf, each_boot_of_a_guest_that_resets_is_sampled)
{
	char path[96];
	struct program program;
	struct seen seen;

	GUEST_REQUIRED();
	start(&program,
	      "-F 10000 --cpus 3 --reboot --append program=resets_cpus=3_boots=2_rounds=100000");
	program_wait(&program);
	if (program.status == 1 && strstr(program.text, "BPF"))
		SKIP("BPF cannot be used here: %.200s", program.text);
	CHECK_EQUAL(program.status, 3); /* the number of starts */
	for (int boot = 0; boot < 3; boot++) {
		snprintf(path, sizeof(path), boot ? "%s.%d" : "%s", output(), boot);
		see(path, &seen);
		for (int vcpu = 0; vcpu < 3; vcpu++)
			if (seen.of_vcpu[vcpu] < 10)
				FAIL_TEST("vCPU %d has %llu samples of boot %d", vcpu,
					  (unsigned long long)seen.of_vcpu[vcpu], boot);
		unlink(path);
	}
}

static void control(const struct program *program, const char *words)
{
	char arguments[128];
	struct program ctl;

	snprintf(arguments, sizeof(arguments), "ctl --pid %d %s", program->pid, words);
	program_run(&ctl, arguments);
	if (ctl.status)
		FAIL_TEST("kvmscope %s: %s", arguments, ctl.text);
}

/* The number of samples in the recording, which is written with a short delay. */
static long long count_samples(const struct program *program)
{
	char arguments[128];
	const char *samples;
	struct program ctl;
	long long count = -1;

	snprintf(arguments, sizeof(arguments), "ctl --pid %d --json status", program->pid);
	program_run(&ctl, arguments);
	samples = strstr(ctl.text, "\"samples\":");
	if (!samples || sscanf(samples, "\"samples\": %lld", &count) != 1)
		FAIL_TEST("kvmscope %s: %s", arguments, ctl.text);
	return count;
}

/* Waits until there are some more, which takes long on a busy machine. */
static void wait_for_samples(const struct program *program)
{
	long long before = count_samples(program);

	for (int i = 0; i < 200 && count_samples(program) < before + 10; i++)
		usleep(100000);
}

/* Waits until there are no more. Returns -1 if they do not stop. */
static long long wait_for_last_sample(const struct program *program)
{
	long long before = count_samples(program);

	for (int i = 0; i < 20; i++) {
		long long count;

		usleep(500000);
		count = count_samples(program);
		if (count == before)
			return count;
		before = count;
	}
	return -1;
}

TEST(run_bpf, frequency_and_pauses_are_followed)
{
	long long at_pause;
	struct program program;
	struct seen seen;

	GUEST_REQUIRED();
	start(&program, "-F 1000 --console stdio --from-line spinning --append program=spin");
	if (!program_wait_for(&program, "spinning")) {
		program_wait(&program);
		BPF_REQUIRED(&program);
	}
	wait_for_samples(&program);
	control(&program, "freq 100");
	wait_for_samples(&program);
	control(&program, "pause");
	at_pause = wait_for_last_sample(&program);
	control(&program, "freq 3000");
	usleep(200000);
	kill(program.pid, SIGTERM);
	program_wait(&program);
	BPF_REQUIRED(&program);
	see(output(), &seen);
	CHECK(seen.periods[0] > 0);
	CHECK(seen.periods[1] > 0);
	CHECK_EQUAL(seen.parts, 0);
	CHECK_EQUAL(seen.samples, at_pause);
	unlink(output());
}

TEST(run_bpf, the_flight_recorder_holds_its_samples)
{
	struct program program;
	struct seen seen;

	GUEST_REQUIRED();
	start(&program, "--console stdio --flight 5s --append program=spin");
	if (!program_wait_for(&program, "spinning")) {
		program_wait(&program);
		BPF_REQUIRED(&program);
	}
	wait_for_samples(&program);
	kill(program.pid, SIGUSR2);
	CHECK(program_wait_for(&program, "flight recording"));
	usleep(200000);
	kill(program.pid, SIGTERM);
	program_wait(&program);
	BPF_REQUIRED(&program);
	CHECK(strstr(program.text, "1 flight recording in"));
	see(output(), &seen);
	CHECK(seen.user.weight > 0);
	unlink(output());
}
