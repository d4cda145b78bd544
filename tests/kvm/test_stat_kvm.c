/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope stat on this machine's KVM, which may report no exits: a vCPU that computes, and one
 * that the guest never starts. tests/rig/test_wall_times.c has the states that need exits.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/kvm/sampled_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/exit_counter.h"

/* Percent of STATE in the table of VCPU in TEXT; -1: it is not there. */
static double percent_of(const char *text, const char *vcpu, const char *state)
{
	const char *table = strstr(text, vcpu), *titles = table ? strstr(table, "wall time") : NULL,
		   *values = titles ? strstr(titles, "\n%") : NULL,
		   *title = titles ? strstr(titles, state) : NULL;
	double percent = -1;

	if (!values || !title || title > values)
		return -1;
	/* A column has ten characters and ends with its title. */
	sscanf(values + 1 + (title + strlen(state) - titles) - 9, "%lf", &percent);
	return percent;
}

/* The number after NAME in TEXT; -1: it is not there. */
static double number_of(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? strtod(at + strlen(name), NULL) : -1;
}

TEST(stat_kvm, attach_sums_the_wall_time)
{
	struct program vm, attach;
	char arguments[128], output[64];
	double running, waiting, asleep, seconds, wall;

	GUEST_REQUIRED();
	program_start(&vm, "run --no-profile --no-control --kernel " GUEST_IMAGE
			   " --timeout 300 --cpus 2 --append program=spin");
	CHECK(program_wait_for(&vm, "spinning"));
	snprintf(output, sizeof(output), "build/test-stat-%d.data", getpid());
	snprintf(arguments, sizeof(arguments),
		 "attach --pid %d --time 3 --json -o %s --no-buildid-cache", vm.pid, output);
	program_run(&attach, arguments);
	unlink(output);
	kill(vm.pid, SIGTERM);
	program_wait(&vm);
	seconds = number_of(attach.text, "\"seconds\": ");
	running = number_of(attach.text, "\"running_ns\": ") / 1e9;
	waiting = number_of(attach.text, "\"waiting_ns\": ") / 1e9;
	asleep = number_of(attach.text, "\"asleep_ns\": ") / 1e9;
	if (attach.status == 4)
		SKIP("no backend works here:\n%s", attach.text);
	/* One vCPU computes, the other one is never started: it sleeps half of the sum, which
	 * begins with the attachment, before the seconds that are reported. */
	wall = running + waiting + asleep;
	if (running <= 0 || wall < seconds * 1.8 || asleep < wall * 0.4 || asleep > wall * 0.7)
		FAIL_TEST("the times are wrong:\n%s", attach.text);
	CHECK(strstr(attach.text, "the vCPUs were "));
}

TEST(stat_kvm, states_are_measured_without_exits)
{
	struct exit_counter *counter;
	struct program vm, stat;
	char arguments[64];
	double running, waiting;

	GUEST_REQUIRED();
	if (exit_counter_open(&counter, getpid(), true))
		SKIP("no BPF: %s", error_message());
	exit_counter_close(counter);
	program_start(&vm, "run --no-profile --no-control --kernel " GUEST_IMAGE
			   " --timeout 300 --cpus 2 --append program=spin");
	CHECK(program_wait_for(&vm, "spinning"));
	snprintf(arguments, sizeof(arguments), "stat --pid %d --time 1 --per-vcpu", vm.pid);
	program_run(&stat, arguments);
	kill(vm.pid, SIGTERM);
	program_wait(&vm);
	CHECK_EQUAL(stat.status, 0);
	running = percent_of(stat.text, "vCPU 0:", "on CPU");
	if (running < 0) /* KVM reports exits */
		running = percent_of(stat.text, "vCPU 0:", "guest") +
			  percent_of(stat.text, "vCPU 0:", "KVM") +
			  percent_of(stat.text, "vCPU 0:", "VMM");
	waiting = percent_of(stat.text, "vCPU 0:", "waiting");
	if (running <= 0 || waiting < 0 || running + waiting < 99 || running + waiting > 101 ||
	    percent_of(stat.text, "vCPU 1:", "halted") < 99)
		FAIL_TEST("the states are wrong:\n%s", stat.text);
}

/* A guest that ends by an exit to user space. */
TEST(stat_kvm, run_prints_exits_at_its_end)
{
	struct program run;
	double exits;

	GUEST_REQUIRED();
	program_run(&run,
		    "run --stat --no-profile --no-control --kernel " GUEST_IMAGE " --timeout 300");
	exits = number_of(run.text, "\nio ");
	if (exits < 1 || (!strstr(run.text, "\nexit reason ") &&
			  (!strstr(run.text, "\nexit to kvmscope ") ||
			   !strstr(run.text, "exits that KVM handles are not included: "))))
		FAIL_TEST("no exits:\n%s", run.text);
}

#define DISTINGUISHED 8192 /* man page */
#define TRIES         600  /* of 100 ms */

/* A guest that writes to all ports, one after the other. The rig runs this test where KVM reports
 * accesses. */
TEST(stat_kvm, other_accesses_than_the_first_addresses_are_counted_together)
{
	/* mov dx, 0x1000: beyond our devices; 1: inc dx; out dx, al; jmp 1b */
	static const uint8_t code[] = {
		0x66, 0xba, 0x00, 0x10, 0x66, 0xff, 0xc2, 0xee, 0xeb, 0xfa
	};
	const struct sampled_guest_options options = { .code = code,
						       .size = sizeof(code),
						       .cpus = 1 };
	struct access_rows rows = { 0 };
	struct exit_counter *counter;
	struct sampled_guest guest;

	BARE_GUEST_REQUIRED();
	if (exit_counter_open(&counter, getpid(), true))
		SKIP("no BPF: %s", error_message());
	if (exit_counter_missing(counter)) {
		exit_counter_close(counter);
		SKIP("this KVM reports no accesses");
	}
	REQUIRE(!sampled_guest_start(&guest, &options));
	for (int i = 0; i < TRIES && !rows.lost; i++) {
		usleep(100000);
		free(rows.rows);
		REQUIRE(!exit_counter_accesses(counter, &rows));
	}
	sampled_guest_stop(&guest);
	sampled_guest_free(&guest);
	exit_counter_close(counter);
	CHECK(rows.lost > 0);
	CHECK_EQUAL(rows.count, DISTINGUISHED);
	free(rows.rows);
}
