/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog's view of vCPUs and the resulting triggers, with guests of our own. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/kvm/sampled_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/sample/vcpu_load.h"

#define SECOND 1000000000ull

/* 1: jmp 1b */
static const uint8_t spin[] = { 0xeb, 0xfe };
/* 1: out 0x80, al; jmp 1b */
static const uint8_t access_port[] = { 0xe6, 0x80, 0xeb, 0xfc };

/*
 * A guest that is kicked a thousand times a second, and the activity of its vCPU while it used some
 * CPU time. The kicks also allow the counters to be opened.
 */
static void measure(const void *code, size_t size, int cpl, struct vcpu_reading *difference)
{
	struct sampled_guest_options options = { .code = code,
						 .size = size,
						 .cpl = cpl,
						 .cpus = 1,
						 .clock = SAMPLING_CLOCK_CPU,
						 .frequency = 1000 };
	struct vcpu_reading before = { 0 }, after = { 0 };
	struct sampler_statistics statistics;
	struct sampled_guest guest;
	struct vcpu_load load;

	memset(difference, 0, sizeof(*difference));
	REQUIRE_EQUAL(sampled_guest_start(&guest, &options), 0);
	CHECK_EQUAL(vcpu_load_open(&load, guest.vm.vcpus[0], true), 0);
	sampled_guest_use(&guest, SECOND / 5);
	CHECK(vcpu_load_read(&load, &before));
	sampled_guest_use(&guest, 3 * SECOND / 5);
	CHECK(vcpu_load_read(&load, &after));
	sampler_statistics(guest.sampler, &statistics);
	CHECK(statistics.samples > 100);
	sampled_guest_stop(&guest);
	vcpu_load_close(&load);
	sampled_guest_free(&guest);
	*difference = (struct vcpu_reading){ .time = after.time - before.time,
					     .ran = after.ran - before.ran,
					     .waited = after.waited - before.waited,
					     .exits = after.exits - before.exits };
}

TEST(watchdog, kicks_are_not_exits_of_the_guest)
{
	struct vcpu_reading seen;

	GUEST_REQUIRED();
	measure(spin, sizeof(spin), 3, &seen);
	/* The host's NMIs are counted as the guest's exits; there are few. */
	CHECK(seen.exits < 10);
	/* One tick more or less at both ends. */
	CHECK(seen.ran > SECOND * 3 / 10);
	CHECK(seen.ran <= seen.time + SECOND / 20);
	CHECK(seen.waited <= seen.time);
}

TEST(watchdog, accesses_to_ports_are_exits_of_the_guest)
{
	struct vcpu_reading seen;

	GUEST_REQUIRED();
	measure(access_port, sizeof(access_port), 0, &seen);
	CHECK(seen.exits > 1000);
}

/* Runs a guest with a flight recorder until TEXT is reported, or for 3 s if it is NULL. */
static void run(const char *program, const char *options, const char *text)
{
	char arguments[512], directory[] = "/tmp/kvmscope-test-XXXXXX", command[128];
	struct program recorder;

	REQUIRE(mkdtemp(directory));
	snprintf(arguments, sizeof(arguments),
		 "run --kernel " GUEST_IMAGE
		 " --mem 64M --timeout 250 --no-buildid-cache --no-control --flight 500ms "
		 "-o %s/perf.data --append program=%s %s %s",
		 directory, program, options, text ? "" : "--duration 3");
	program_start(&recorder, arguments);
	if (text && !program_wait_for(&recorder, text))
		FAIL_TEST("the output of kvmscope %s does not contain '%s'", arguments, text);
	if (text)
		kill(recorder.pid, SIGTERM);
	program_wait(&recorder);
	CHECK_EQUAL(recorder.status, 0);
	if (strstr(recorder.text, ": 0 samples before stuck"))
		FAIL_TEST("kvmscope %s has no samples:\n%s", arguments, recorder.text);
	if (!text && strstr(recorder.text, "flight recording /"))
		FAIL_TEST("nothing triggers kvmscope %s:\n%s", arguments, recorder.text);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	CHECK_EQUAL(system(command), 0);
}

TEST(watchdog, a_stuck_vcpu_triggers_a_recording)
{
	GUEST_REQUIRED();
	run("spin", "--trigger stuck=200", "before stuck vCPU");
}

/* A vCPU that is interrupted is not stuck, nor is one that gets no CPU time. */
TEST(watchdog, a_vcpu_that_exits_triggers_no_recording)
{
	GUEST_REQUIRED();
	run("spin_timer=100", "--trigger stuck=1000", NULL);
}

/*
 * A small kernel may report a panic by one byte to one port. Tests both values; the guest may
 * continue.
 */
TEST(watchdog, a_panic_triggers_a_recording)
{
	struct program program;

	GUEST_REQUIRED();
	run("hello_panic=1_exit=0", "", "before guest panic");
	program_run(&program, "run --no-profile --kernel " GUEST_IMAGE " --timeout 250 --append "
			      "program=hello_panic=2_exit=7");
	CHECK_EQUAL(program.status, 7);
	CHECK(strstr(program.text,
		     "warning: the guest's kernel panicked; it continues with its crash kernel\n"));
}

TEST(watchdog, a_console_line_triggers_a_recording)
{
	GUEST_REQUIRED();
	run("spin", "--trigger console=^nothing --trigger console=^spin+ing$",
	    "before console line");
	run("spin", "--trigger console=^pinning", NULL);
}

/* Combined with --from-line, which takes the same patterns. */
TEST(watchdog, a_line_can_start_the_sampling_and_be_a_trigger)
{
	GUEST_REQUIRED();
	run("spin", "--from-line spin --trigger stuck=200 --trigger console=none",
	    "before stuck vCPU");
}

TEST(watchdog, exits_over_the_limit_trigger_a_recording)
{
	GUEST_REQUIRED();
	run("spin_timer=1000", "--trigger exits=20/s", "before exit rate");
	run("spin", "--trigger exits=2000/s", NULL);
}

/* Another program on the same CPU takes half of it. */
TEST(watchdog, steal_over_the_limit_triggers_a_recording)
{
	cpu_set_t before, one;
	pid_t other;

	GUEST_REQUIRED();
	REQUIRE_EQUAL(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
		if (CPU_ISSET(i, &before))
			CPU_SET(i, &one);
	REQUIRE_EQUAL(sched_setaffinity(0, sizeof(one), &one), 0);
	fflush(NULL);
	other = fork();
	if (!other)
		for (;;)
			__asm__ volatile("");
	run("spin", "--trigger steal=10%", "before steal");
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	sched_setaffinity(0, sizeof(before), &before);
}

TEST(watchdog, wrong_triggers_are_refused_with_a_list_of_valid_ones)
{
	program_refuses("run --kernel x --flight 1s --trigger stuck",
			"a number from 20 to 3600000");
	program_refuses("run --kernel x --flight 1s --trigger never", "there are stuck=MS");
	program_refuses("run --kernel x --trigger stuck=500", "give --flight, too");
}
