/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope-agent install with each supported init system as process 1 of a guest:
 * tests/rig/guest-service.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rig/rig.h"

#define DIRECTORY "build/rig/service"

/* Out of some hundreds of a program that runs for 2 s; a busy machine has fewer. */
#define ENOUGH 10

static const char *const systems[] = { "systemd", "openrc", "busybox" };
#define SYSTEMS (sizeof(systems) / sizeof(systems[0]))

/* False if an init system is unavailable, which is recorded. */
static bool make_initrd(const char *system)
{
	struct rig_result result;
	bool made;

	rig_run_here(&result, 120,
		     "mkdir -p " DIRECTORY "/%s && tests/rig/init-system %s > " DIRECTORY
		     "/%s/initrd",
		     system, system, system);
	made = !result.status;
	if (!made)
		FAIL_TEST("tests/rig/init-system %s: %s", system, result.errors);
	rig_result_free(&result);
	return made;
}

/*
 * Each guest begins when its kernel is located, without which there are no symbols; process $run is
 * kvmscope. norandmaps: the emulator translates a program again at each new address, and these
 * systems start hundreds of programs. BPF is the default sampler here.
 */
#define RECORD                                                                                                                   \
	"for system in systemd openrc busybox; do d=$PWD/" DIRECTORY                                                             \
	"/$system; rm -rf $d/.debug; mkfifo /tmp/$system; "                                                                      \
	"HOME=$d build/kvmscope run -v --pmu off --agent=guest --timeout 200 --mem 256M -F 499 --no-call-graph -o $d/perf.data " \
	"--kernel %s --initrd $(cat $d/initrd) --name $system --stack-time 100ms "                                               \
	"--append \"console=ttyS0 quiet panic=-1 mitigations=off norandmaps " QUICK_BOOT                                         \
	" service.init=$system\" < /tmp/$system > $d/output 2> $d/log & run=$!; "                                                \
	"exec 3> /tmp/$system; until build/kvmscope ctl --name $system status 2>&1 | grep -q Linux && "                          \
	"grep -q 'service: up' $d/output; do kill -0 $run || break; sleep 1; done; echo >&3; "                                   \
	"wait $run && grep -q \"sampled by bpf\" $d/log || { cat $d/output $d/log; exit 1; }; done"

static bool record(const char *kernel)
{
	struct rig_result result;
	bool made;

	rig_run_on(&result, RIG_TRUSTED_TSC, 900, RECORD, kernel);
	made = !result.status;
	if (!made)
		FAIL_TEST("%s%s", result.output, result.errors);
	rig_result_free(&result);
	return made;
}

/* The number of agent sessions, from kvmscope's log in SAYS. */
static unsigned long sessions_of(const char *says)
{
	const char *line = strstr(says, "guest agent: version");
	unsigned long number = 0;

	if (line)
		(void)sscanf(line, "guest agent: version %*u, features %*[^,], %lu", &number);
	return number;
}

/*
 * Samples in a program's own function with its symbol, and those with the symbol of another
 * program.
 */
static void check_symbols(const char *system)
{
	/* In a session after each of the agent's three starts. */
	static const char *const programs[] = { "booted", "again", "installed" };
	unsigned long right, wrong;
	struct rig_result result;

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		rig_run_here(
			&result, 300,
			"HOME=$PWD/" DIRECTORY "/%s build/kvmscope report -i " DIRECTORY
			"/%s/perf.data --sort comm,symbol | "
			"awk '$(NF - 1) == \"%s\" && $NF ~ /^spin_/ { gsub(\",\", \"\", $2); "
			"if ($NF == \"spin_%s\") right += $2; else wrong += $2 } END { print right + 0, wrong + 0 }'",
			system, system, programs[i], programs[i]);
		REQUIRE_EQUAL(sscanf(result.output, "%lu %lu", &right, &wrong), 2);
		printf("%s: %s: %lu samples with its symbol, %lu with another's\n", system,
		       programs[i], right, wrong);
		CHECK(right >= ENOUGH);
		CHECK_EQUAL(wrong, 0);
		rig_result_free(&result);
	}
}

static void check_system(const char *system)
{
	struct rig_result result;

	rig_run_here(&result, 300, "cd " DIRECTORY "/%s && cat output && cat log", system);
	printf("%s: %s\n", system, result.output);
	if (!strstr(result.output, "service: end") || strstr(result.output, "service: wrong"))
		FAIL_TEST("%s: wrong state of the service", system);
	/*
	 * After each of its three starts; a reply that is too late belongs to an earlier session.
	 */
	CHECK(sessions_of(result.output) >= 3);
	rig_result_free(&result);
	check_symbols(system);
}

TEST(agent_service, each_init_system_installs_starts_restarts_and_stops_the_agent)
{
	const char *kernel;

	RIG_REQUIRED();
	kernel = rig_kernel("6.1");
	for (size_t i = 0; i < SYSTEMS; i++)
		if (!kernel || !make_initrd(systems[i]))
			return;
	if (!record(kernel))
		return;
	for (size_t i = 0; i < SYSTEMS; i++)
		check_system(systems[i]);
}
