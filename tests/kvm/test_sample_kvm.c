/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of small guests of our own on the local KVM, compared with what is known of them. */
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/kvm/sampled_guest.h"
#include "tests/unit/shim/test.h"

#define SECOND 1000000000ull

/*
 * Three loops of the same instructions with 60, 30 and 10 iterations per round, forever. Each loop
 * starts a 64-byte line, so that all are equally fast.
 */
#define SHARE_TURNS 997
#define SHARE_LINE  64

static size_t put_loop(uint8_t *at, uint32_t turns)
{
	/* mov ecx, iterations; 1: dec ecx; jnz 1b; jmp to the end of the line */
	uint8_t code[] = { 0xb9, 0, 0, 0, 0, 0xff, 0xc9, 0x75, 0xfc, 0xeb, SHARE_LINE - 11 };

	memcpy(code + 1, &turns, sizeof(turns));
	memcpy(at, code, sizeof(code));
	return SHARE_LINE;
}

static size_t put_shares(uint8_t *code)
{
	size_t size = put_loop(code, 60 * SHARE_TURNS);

	size += put_loop(code + size, 30 * SHARE_TURNS);
	size += put_loop(code + size, 10 * SHARE_TURNS);
	code[size] = 0xe9; /* jmp back */
	int32_t back = -(int32_t)(size + 5);
	memcpy(code + size + 1, &back, sizeof(back));
	return size + 5;
}

/* 1: jmp 1b */
static const uint8_t spin[] = { 0xeb, 0xfe };
/* cli; 1: hlt; jmp 1b */
static const uint8_t halt[] = { 0xfa, 0xf4, 0xeb, 0xfd };

#define CODE(bytes) .code = (bytes), .size = sizeof(bytes)

/* Returns false if the test is skipped or has failed. */
static bool start_sampled(struct sampled_guest *guest, const struct sampled_guest_options *options)
{
	int error;

	if (!bare_guest_possible()) {
		test_skip(__FILE__, __LINE__, "/dev/kvm cannot be opened");
		return false;
	}
	error = sampled_guest_start(guest, options);
	CHECK_EQUAL(error, 0);
	return !error;
}

/* The content of the rings of a stopped guest. */
struct found {
	uint64_t samples, period, idle, by_vcpu[SAMPLED_CPUS_MAX];
	uint64_t by_line[4]; /* by 64-byte line of the code; the last is everything else */
	uint64_t out_of_order, bad, lost;
};

static void count_sample(struct found *found, const struct sample *sample, uint64_t *last_time)
{
	uint64_t line = (sample->rip - BARE_GUEST_CODE) / SHARE_LINE;

	found->samples++;
	found->period += sample->period;
	found->idle += !!(sample->flags & SAMPLE_IDLE);
	found->by_line[line < 3 ? line : 3]++;
	if (sample->vcpu < SAMPLED_CPUS_MAX)
		found->by_vcpu[sample->vcpu]++;
	found->out_of_order += sample->time < *last_time;
	*last_time = sample->time;
	if (!sample->host_tid || !sample->cost || !sample->cr3 ||
	    sample->callchain[0] != sample->rip)
		found->bad++;
}

static void read_ring(struct found *found, struct ring *ring)
{
	const struct ring_record *record;
	uint64_t last_time = 0;

	while ((record = ring_read(ring))) {
		if (record->type == RECORD_SAMPLE)
			count_sample(found, (const struct sample *)record->payload, &last_time);
		else
			found->lost++;
	}
	ring_read_done(ring);
}

static struct found read_rings(struct sampled_guest *guest)
{
	struct found found = { 0 };

	for (unsigned int i = 0; i < SAMPLED_CPUS_MAX; i++)
		if (guest->rings[i])
			read_ring(&found, guest->rings[i]);
	CHECK_EQUAL(found.bad, 0);
	CHECK_EQUAL(found.out_of_order, 0);
	CHECK_EQUAL(found.lost, 0);
	return found;
}

static uint64_t total_cpu_time(const struct sampled_guest *guest)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < SAMPLED_CPUS_MAX; i++)
		sum += guest->cpus[i].cpu_time;
	return sum;
}

static void check_within(uint64_t actual, uint64_t expected, double tolerance, const char *what)
{
	double ratio = (double)actual / expected;

	if (fabs(ratio - 1) > tolerance)
		FAIL_TEST("%s: %llu is %.3f of the expected %llu", what, (unsigned long long)actual,
			  ratio, (unsigned long long)expected);
}

/* However slow the machine, the samples' weight is the CPU time used. */
static void weight_is_cpu_time(unsigned int cpus, unsigned int frequency, double tolerance)
{
	const struct sampled_guest_options options = { CODE(spin), .cpl = 3, .cpus = cpus,
						       .frequency = frequency };
	struct sampler_statistics statistics;
	struct sampled_guest guest;
	struct found found;

	if (!start_sampled(&guest, &options))
		return;
	sampled_guest_use(&guest, cpus * SECOND / 2);
	sampled_guest_stop(&guest);
	found = read_rings(&guest);
	check_within(found.period, total_cpu_time(&guest), tolerance,
		     "ns that the samples stand for");
	/* If the host misses periods, there are fewer samples, with larger weights. */
	CHECK(found.samples <= found.period / (SECOND / frequency));
	CHECK(found.samples >= found.period / (SECOND / frequency) / 3);
	for (unsigned int i = 0; i < cpus; i++)
		CHECK(found.by_vcpu[i] > 0);
	sampler_statistics(guest.sampler, &statistics);
	CHECK_EQUAL(statistics.samples, found.samples);
	sampled_guest_free(&guest);
}

TEST(sample, weight_is_cpu_time_at_99_hz)
{
	weight_is_cpu_time(1, 99, 0.15);
}

TEST(sample, weight_is_cpu_time_at_1_khz)
{
	weight_is_cpu_time(1, 1000, 0.1);
}

TEST(sample, weight_is_cpu_time_at_10_khz)
{
	weight_is_cpu_time(1, 10000, 0.15);
}

TEST(sample, weight_is_cpu_time_on_four_vcpus)
{
	weight_is_cpu_time(4, 1000, 0.1);
}

TEST(sample, frequency_changes_and_pauses_while_the_guest_runs)
{
	const struct sampled_guest_options options = { CODE(spin), .cpl = 3, .cpus = 1,
						       .frequency = 1000, .paused = true };
	struct sampled_guest guest;
	struct found found;

	if (!start_sampled(&guest, &options))
		return;
	sampled_guest_use(&guest, SECOND / 10);
	CHECK_EQUAL(read_rings(&guest).samples, 0);

	CHECK_EQUAL(sampled_guest_set_frequency(&guest, 4000), 0);
	sampled_guest_use(&guest, 4 * SECOND / 10);
	found = read_rings(&guest);
	check_within(found.period, 3 * SECOND / 10, 0.35,
		     "ns that the samples at 4000 Hz stand for");
	CHECK_EQUAL(found.period % (SECOND / 4000), 0);

	CHECK_EQUAL(sampled_guest_set_frequency(&guest, 0), 0);
	sampled_guest_use(&guest, 5 * SECOND / 10);
	read_rings(&guest); /* those already in progress */
	sampled_guest_use(&guest, 7 * SECOND / 10);
	CHECK_EQUAL(read_rings(&guest).samples, 0);

	CHECK_EQUAL(sampled_guest_set_frequency(&guest, 1000), 0);
	sampled_guest_use(&guest, 10 * SECOND / 10);
	sampled_guest_stop(&guest);
	found = read_rings(&guest);
	/* The preceding pause is not part of their weight. */
	check_within(found.period, 3 * SECOND / 10, 0.35,
		     "ns that the samples after the pause stand for");
	CHECK_EQUAL(sampler_set_frequency(guest.sampler, SAMPLING_FREQUENCY_MAX + 1), -22);
	sampled_guest_free(&guest);
}

TEST(sample, shares_are_within_3_points_of_the_truth)
{
	static const double truth[] = { 60, 30, 10, 0 };
	uint8_t code[4 * SHARE_LINE] = { 0 };
	struct sampled_guest_options options = {
		.code = code, .size = put_shares(code), .cpl = 3, .cpus = 1, .frequency = 4000
	};
	struct sampled_guest guest;
	struct found found;

	if (!start_sampled(&guest, &options))
		return;
	sampled_guest_use(&guest, SECOND * 3 / 2);
	sampled_guest_stop(&guest);
	found = read_rings(&guest);
	CHECK(found.samples > 2000);
	for (int i = 0; i < 4; i++) {
		double share = 100.0 * found.by_line[i] / found.samples;

		if (fabs(share - truth[i]) > 3)
			FAIL_TEST("loop %d has %.1f %% of the samples, %.0f %% is true", i, share,
				  truth[i]);
	}
	sampled_guest_free(&guest);
}

TEST(sample, an_idle_guest_has_no_samples_by_cpu_time)
{
	const struct sampled_guest_options options = { CODE(halt), .cpl = 0, .cpus = 1,
						       .frequency = 1000 };
	struct sampled_guest guest;
	struct found found;

	if (!start_sampled(&guest, &options))
		return;
	usleep(300 * 1000);
	sampled_guest_stop(&guest);
	found = read_rings(&guest);
	/* The thread's start and end may each have one sample. */
	CHECK(found.period <= guest.cpus[0].cpu_time + SECOND / 1000);
	CHECK(found.samples < 30);
	sampled_guest_free(&guest);
}

static uint64_t wall_time(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

TEST(sample, an_idle_guest_has_idle_samples_by_wall_time)
{
	const struct sampled_guest_options options = { CODE(halt), .cpl = 0, .cpus = 1,
						       .clock = SAMPLING_CLOCK_WALL,
						       .frequency = 1000 };
	struct sampled_guest guest;
	struct found found;
	uint64_t begin;

	begin = wall_time();
	if (!start_sampled(&guest, &options))
		return;
	usleep(1000 * 1000);
	sampled_guest_stop(&guest);
	found = read_rings(&guest);
	CHECK(found.period <= wall_time() - begin);
	CHECK(found.period >= SECOND / 5);
	/* The first samples may be before its HLT. */
	CHECK(found.idle + 5 >= found.samples);
	sampled_guest_free(&guest);
}

TEST(sample, a_busy_guest_is_not_idle_by_wall_time)
{
	const struct sampled_guest_options options = { CODE(spin), .cpl = 0, .cpus = 1,
						       .clock = SAMPLING_CLOCK_WALL,
						       .frequency = 1000 };
	struct sampled_guest guest;
	struct found found;

	if (!start_sampled(&guest, &options))
		return;
	sampled_guest_use(&guest, SECOND / 10);
	sampled_guest_stop(&guest);
	found = read_rings(&guest);
	CHECK(found.samples > 10);
	CHECK_EQUAL(found.idle, 0);
	sampled_guest_free(&guest);
}

TEST(sample, user_callchain_follows_frame_pointers)
{
	static const uint8_t code[] = {
		0x31, 0xed,                         /* 0: xor ebp, ebp */
		0xe8, 0x02, 0,    0,    0,          /* 2: call 9 */
		0xeb, 0xfe,                         /* 7: jmp 7 */
		0x55, 0x48, 0x89, 0xe5,             /* 9: push rbp; mov rbp, rsp */
		0xe8, 0x02, 0,    0,    0,          /* 13: call 20 */
		0xeb, 0xfe,                         /* 18: jmp 18 */
		0x55, 0x48, 0x89, 0xe5, 0xeb, 0xfe, /* 20: push rbp; mov rbp, rsp; 24: jmp 24 */
	};
	const struct sampled_guest_options options = { CODE(code), .cpl = 3, .cpus = 1,
						       .frequency = 1000 };
	struct sampled_guest guest;
	const struct ring_record *record;
	uint64_t whole = 0, samples = 0;

	if (!start_sampled(&guest, &options))
		return;
	sampled_guest_use(&guest, SECOND / 10);
	sampled_guest_stop(&guest);
	while ((record = ring_read(guest.rings[0]))) {
		const struct sample *sample = (const struct sample *)record->payload;

		samples++;
		whole += sample->cpl == 3 && !sample->kernel_depth && sample->user_depth == 3 &&
			 sample->callchain[0] == BARE_GUEST_CODE + 24 &&
			 sample->callchain[1] == BARE_GUEST_CODE + 18 &&
			 sample->callchain[2] == BARE_GUEST_CODE + 7;
	}
	CHECK(samples > 20);
	CHECK(whole + 1 >= samples); /* the first may come at the guest's start */
	sampled_guest_free(&guest);
}

TEST(sample, latest_registers_are_visible_to_other_threads)
{
	const struct sampled_guest_options options = { CODE(spin), .cpl = 3, .cpus = 1,
						       .frequency = 1000 };
	struct guest_registers registers;
	struct sampled_guest guest;
	uint64_t time;

	if (!start_sampled(&guest, &options))
		return;
	while (!sampler_registers(guest.sampler, 0, &registers, &time))
		usleep(1000);
	CHECK_EQUAL(registers.rip, BARE_GUEST_CODE);
	CHECK_EQUAL(registers.cpl, 3);
	CHECK(registers.long_mode);
	CHECK_EQUAL(registers.paging.cr3, 0x1000);
	CHECK(!sampler_registers(guest.sampler, 7, &registers, &time));
	sampled_guest_free(&guest);
}
