/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's tasks with an agent, and a watch that exists only for a while. */
#include <stdio.h>
#include <string.h>

#include "tests/rig/debian_recording.h"
#include "tests/rig/rig.h"
#include "tests/rig/tasks_truth.h"
#include "tests/rig/watched_counters.h"
#include "vmm/report/profile_stacks.h"

/*
 * In a run that begins and ends without a watch; process $run is kvmscope. Its guest begins after a
 * watch is added, and ends after it is removed: each waits for a line from the console.
 */
#define WATCH_FOR_A_WHILE                                                                          \
	"ctl=\"build/kvmscope ctl --name tasks\"; "                                                \
	"until $ctl status 2>&1 | grep -q Linux; do kill -0 $run || break; sleep 1; done; "        \
	"$ctl bp add " DEBIAN_WATCHED "; echo >&3; sleep 5; $ctl bp remove " DEBIAN_WATCHED

/* *HITS: the watch's hits when it was removed. */
static bool record_with_agent(const char *directory, unsigned long long *hits)
{
	const char *kernel = rig_kernel("6.1"), *initrd = debian_recording_initrd("6.1");
	struct rig_result result;
	const char *removed;
	bool recorded;

	if (!kernel || !initrd)
		return false;
	rig_run_on(
		&result, RIG_TRUSTED_TSC, 240,
		"d=$PWD/%s; rm -rf $d; mkdir -p $d; mkfifo /tmp/console; "
		"HOME=$d build/kvmscope run --pmu off --timeout 200 --mem 256M --cpus 2 "
		"-F 499 --stack-time 100ms --agent=initrd -o $d/perf.data --kernel %s --initrd %s --name tasks "
		"--append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT
		" kvmscope.run=read+line;tasks+10;read+line' "
		"< /tmp/console & run=$!; exec 3> /tmp/console; %s; echo >&3; wait $run",
		directory, kernel, initrd,
		rig_debug_registers_unavailable_reason() ? "echo >&3" : WATCH_FOR_A_WHILE);
	recorded = !result.status && strstr(result.output, "guest-init: status 0");
	if (!recorded)
		FAIL_TEST("%s\n%s", result.output, result.errors);
	removed = strstr(result.output, "removed; it had ");
	if (!removed || sscanf(removed, "removed; it had %llu hits", hits) != 1)
		*hits = 0;
	rig_result_free(&result);
	return recorded;
}

/* The name of its file when it was executed. */
static const char *program_of(const char *name)
{
	return !strcmp(name, "deleted") ? "deleted" : strrchr(tasks_truth_image(name), '/') + 1;
}

/*
 * By the symbols that the agent sent while the only programs with these files ran; it gets no
 * requests for programs whose start was MISSED.
 */
static void check_symbols_by_agent(const char *directory, uint64_t missed)
{
	struct tasks_tally tally = { 0 };

	tasks_truth_count_code(directory, &tally);
	tasks_truth_count_symbols(directory, &tally);
	tasks_truth_check_named("with the agent", &tally, !missed);
}

struct charges {
	uint64_t samples;
	uint64_t right;   /* in the program */
	uint64_t unknown; /* its program is unknown */
};

static struct charges count_charges(const struct profile *profile)
{
	struct charges charges = { 0 };
	char name[16];

	for (size_t i = 0; i < profile_stack_count(profile); i++) {
		const struct profile_stack *stack = profile_stack(profile, i);

		if (!tasks_truth_find(stack, name, sizeof(name)))
			continue;
		charges.samples += stack->samples;
		charges.right += !strcmp(stack->app, program_of(name)) ? stack->samples : 0;
		charges.unknown += !strcmp(stack->app, stack->comm) ? stack->samples : 0;
	}
	return charges;
}

/*
 * Events that arrived too late for samples, or never: the programs that started then are unknown.
 */
static uint64_t count_missed(const struct profile *profile)
{
	const struct losses *losses = &profile_summary(profile)->losses;

	return losses->counts[LOSS_SIDEBAND_DROPPED] + losses->counts[LOSS_SIDEBAND_LATE];
}

/*
 * With an agent in the guest the executed file is known, whatever its threads are called. On a busy
 * machine the agent reports some too late; samples of an unknown program have its thread's name.
 */
TEST(tasks, samples_with_an_agent_are_attributed_to_their_program)
{
	static const char directory[] = "build/rig/tasks-agent";
	struct profile_options options = { .input = "build/rig/tasks-agent/perf.data",
					   .sources.buildid_dir = "build/rig/tasks-agent/.debug",
					   .threads = true,
					   .event = "0",
					   .vcpu = -1 };
	unsigned long long hits;
	struct charges charges;
	struct profile *profile;
	uint64_t missed;

	RIG_REQUIRED();
	if (!record_with_agent(directory, &hits))
		return;
	if (!rig_debug_registers_unavailable_reason()) {
		CHECK(hits > 0);
		watched_counters_check("6.1, watched for a while", directory, hits);
	}
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	charges = count_charges(profile);
	missed = count_missed(profile);
	profile_free(profile);
	check_symbols_by_agent(directory, missed);
	printf("%llu of %llu samples are attributed to the program, %llu to an unknown one; %llu events were missed\n",
	       (unsigned long long)charges.right, (unsigned long long)charges.samples,
	       (unsigned long long)charges.unknown, (unsigned long long)missed);
	CHECK(charges.right >= TASKS_ENOUGH);
	/* A program that starts is unknown until the agent has reported it. */
	CHECK(missed || charges.unknown <= charges.samples / 500);
	/*
	 * After a loss, the program before an execve is used until the agent has reported
	 * everything again.
	 */
	CHECK(missed || charges.right + charges.unknown == charges.samples);
}
