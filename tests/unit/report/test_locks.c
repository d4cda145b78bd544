/* SPDX-License-Identifier: Apache-2.0 */
/* Which vCPU without a CPU others wait for, of samples whose every time is known. */
#include "vmm/report/locks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/sample_record.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_writer.h"

#define PERIOD    1000000ull
#define TEXT      0xffffffff81000000ull
#define USER      0x401000ull
#define FUNCTIONS 6

enum { CLOCK, EXIT, OFF_CPU };

static const char *const functions[FUNCTIONS] = {
	"holds",
	"native_queued_spin_lock_slowpath",
	"asm_sysvec_apic_timer_interrupt",
	"handler",
	"default_idle",
	"end",
};
#define HOLDS   TEXT
#define SPINS   (TEXT + 0x100)
#define ENTRY   (TEXT + 0x200)
#define HANDLER (TEXT + 0x300)
#define IDLE    (TEXT + 0x400)

struct fixture {
	char path[64], kallsyms[64];
	struct perf_data_watches events;
	struct perf_data_writer *writer;
	struct profile *profile;
	struct locks locks;
};

static void open_recording(struct fixture *fixture, bool with_off_cpu)
{
	const struct perf_data_options options = { .path = fixture->path,
						   .frequency = 1000,
						   .callchains = true,
						   .vcpus = 4,
						   .vmm_pid = 100,
						   .command_line = "test",
						   .release = "6.1.0",
						   .watches = &fixture->events };
	FILE *file;

	*fixture = (struct fixture){ 0 };
	snprintf(fixture->path, sizeof(fixture->path), "build/locks-%d.data", getpid());
	snprintf(fixture->kallsyms, sizeof(fixture->kallsyms), "build/locks-%d.kallsyms", getpid());
	file = fopen(fixture->kallsyms, "we");
	REQUIRE(file);
	for (unsigned int i = 0; i < FUNCTIONS; i++)
		fprintf(file, "%llx T %s\n", TEXT + 0x100 * i, functions[i]);
	fclose(file);
	perf_data_watches_add(&fixture->events,
			      &(struct perf_data_watch){ .outside = true, .name = "kvm:exit" });
	if (with_off_cpu)
		perf_data_watches_add(
			&fixture->events,
			&(struct perf_data_watch){ .outside = true, .name = "kvm:off-cpu" });
	REQUIRE_EQUAL(perf_data_writer_open(&fixture->writer, &options), 0);
}

/* A sample that stands for PERIODS periods until TIME, which is in periods. */
static void add(struct fixture *fixture, uint16_t event, uint32_t vcpu, uint64_t time,
		uint64_t periods, const char *reason, const uint64_t *chain, size_t depth)
{
	struct sample *sample = calloc(1, SAMPLE_LENGTH_MAX);

	REQUIRE(sample);
	sample->time = time * PERIOD;
	sample->period = periods * PERIOD;
	sample->event = event;
	sample->flags = event ? SAMPLE_OUTSIDE : 0;
	sample->vcpu = vcpu;
	sample->pid = sample->tid = 100;
	sample->rip = chain[0];
	sample->cpl = chain[0] == USER ? 3 : 0;
	*(chain[0] == USER ? &sample->user_depth : &sample->kernel_depth) = (uint16_t)depth;
	memcpy(sample->callchain, chain, depth * sizeof(*chain));
	if (event)
		snprintf(sample_write_outside(sample)->reason, sizeof(struct sample_outside), "%s",
			 reason);
	CHECK_EQUAL(perf_data_writer_sample(fixture->writer, sample), 0);
	free(sample);
}

#define ADD(event, vcpu, time, periods, reason, ...)                                               \
	add(&fixture, event, vcpu, time, periods, reason, (const uint64_t[]){ __VA_ARGS__ },       \
	    sizeof((const uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t))
#define SPIN(vcpu, time) ADD(CLOCK, vcpu, time, 1, NULL, SPINS + 4, HOLDS + 8)

static void find_locks(struct fixture *fixture, int expected)
{
	struct profile_options options = {
		.input = fixture->path, .kallsyms = fixture->kallsyms, .vcpu = -1, .samples = true
	};

	CHECK_EQUAL(perf_data_writer_flush(fixture->writer, UINT64_MAX), 0);
	CHECK_EQUAL(perf_data_writer_close(fixture->writer), 0);
	REQUIRE_EQUAL(profile_load(&fixture->profile, &options), 0);
	unlink(fixture->path);
	unlink(fixture->kallsyms);
	REQUIRE_EQUAL(locks_find(&fixture->locks, fixture->profile), expected);
}

static void check_times(const struct locks *locks, uint64_t one, uint64_t several, uint64_t queued,
			uint64_t none)
{
	CHECK_EQUAL(locks->one, one * PERIOD);
	CHECK_EQUAL(locks->several, several * PERIOD);
	CHECK_EQUAL(locks->queued, queued * PERIOD);
	CHECK_EQUAL(locks->none, none * PERIOD);
}

static void end(struct fixture *fixture)
{
	locks_free(&fixture->locks);
	profile_free(fixture->profile);
}

TEST(locks, waiting_belongs_to_the_vcpu_that_has_no_cpu)
{
	struct fixture fixture;

	open_recording(&fixture, true);
	/* vCPU 0 has no CPU from 10 to 14, and vCPU 3 from 12 to 13. */
	ADD(OFF_CPU, 0, 14, 4, "off-cpu preempted", HOLDS + 4, USER);
	ADD(OFF_CPU, 3, 13, 1, "off-cpu blocked", HOLDS + 4, USER);
	SPIN(1, 10); /* not yet: the gap begins there */
	SPIN(1, 11);
	SPIN(2, 11);
	SPIN(1, 13);
	SPIN(1, 14);
	SPIN(1, 15);
	find_locks(&fixture, 0);
	check_times(&fixture.locks, 3, 1, 0, 2);
	CHECK_EQUAL(fixture.locks.cpu_time, 6 * PERIOD);
	/* The code is the same, and it is shown once. */
	REQUIRE_EQUAL(fixture.locks.count, 1);
	CHECK_EQUAL(fixture.locks.rows[0]->waited, 3 * PERIOD);
	CHECK_EQUAL(fixture.locks.rows[0]->off_cpu, 5 * PERIOD);
	CHECK_EQUAL(fixture.locks.rows[0]->times, 2);
	end(&fixture);
}

TEST(locks, only_code_that_may_hold_a_lock_counts)
{
	struct fixture fixture;

	open_recording(&fixture, true);
	ADD(OFF_CPU, 0, 14, 4, "off-cpu preempted", USER);
	ADD(OFF_CPU, 2, 14, 4, "off-cpu halted", HOLDS + 4);
	ADD(OFF_CPU, 3, 14, 4, "off-cpu preempted", IDLE + 4);
	SPIN(1, 12);
	/* A waiter that was interrupted, and the code that an interrupt handler interrupted. */
	ADD(OFF_CPU, 0, 24, 4, "off-cpu preempted", HANDLER + 4, ENTRY + 4, SPINS + 4, HOLDS + 4);
	SPIN(1, 22);
	ADD(OFF_CPU, 0, 34, 4, "off-cpu preempted", HANDLER + 4, ENTRY + 4, HOLDS + 4, USER);
	SPIN(1, 32);
	find_locks(&fixture, 0);
	check_times(&fixture.locks, 1, 0, 1, 1);
	REQUIRE_EQUAL(fixture.locks.count, 1);
	CHECK_STRING(fixture.locks.rows[0]->stack->frames[fixture.locks.rows[0]->first]->function,
		     "holds");
	end(&fixture);
}

/* vCPU 1 leaves the guest by PAUSE from 12 to 18; others have no CPU from 10 to 14 and 14 to 16. */
TEST(locks, exits_are_divided_at_their_sample_points)
{
	struct fixture fixture;

	open_recording(&fixture, true);
	ADD(OFF_CPU, 0, 14, 4, "off-cpu preempted", HOLDS + 4, USER);
	ADD(OFF_CPU, 2, 16, 2, "off-cpu preempted", HANDLER + 4, USER);
	ADD(EXIT, 1, 18, 6, "exit pause", SPINS + 4, HOLDS + 8);
	/* Preempted: it waits for its own CPU. */
	ADD(EXIT, 1, 28, 6, "exit interrupt", SPINS + 4, HOLDS + 8);
	find_locks(&fixture, 0);
	check_times(&fixture.locks, 4, 0, 0, 2);
	REQUIRE_EQUAL(fixture.locks.count, 2);
	CHECK_EQUAL(fixture.locks.rows[0]->waited, 2 * PERIOD);
	CHECK_EQUAL(fixture.locks.rows[1]->waited, 2 * PERIOD);
	end(&fixture);
}

/* The file chooses the weight; time is bounded. */
TEST(locks, a_sample_of_a_million_years_is_no_loop_without_end)
{
	struct fixture fixture;

	open_recording(&fixture, true);
	ADD(EXIT, 1, 1ull << 43, 1ull << 43, "exit pause", SPINS + 4, HOLDS + 8);
	find_locks(&fixture, 0);
	CHECK(fixture.locks.none > 0);
	CHECK_EQUAL(fixture.locks.count, 0);
	end(&fixture);
}

TEST(locks, time_without_a_cpu_must_be_recorded)
{
	struct fixture fixture;

	open_recording(&fixture, false);
	SPIN(1, 12);
	find_locks(&fixture, -ENODATA);
	end(&fixture);
}
