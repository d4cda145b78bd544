/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/userland_run.h"

#include <stdio.h>
#include <string.h>

#include "tests/rig/debian_recording.h"
#include "tests/unit/shim/test.h"

const struct userland_function userland_functions[USERLAND_FUNCTIONS] = {
	{ "plain", "plain_add", "plain" },
	{ "plain", "plain_count", "plain" },
	{ "bare", "bare_spin", "bare" },
	{ "bare", "bare_compare_spin", "bare" },
	{ "shapes", "shapes::polygon<3>::draw", "shapes" },
	{ "shapes", "shapes::polygon<4>::draw", "shapes" },
	{ "shapes", "shapes::doubt", "shapes" },
	{ "linked", "library_twist", "liblibrary.so" },
	{ "linked", "library_fold", "liblibrary.so" },
	{ "plugins", "left_spin", "left.so" },
	{ "plugins", "right_spin", "right.so" },
	{ "storm", "storm_spin", "storm" },
	{ "brief", "brief_spin", "brief" },
};

const char *const userland_processes[USERLAND_PROCESSES] = { "plain",  "bare",     "shapes",
							     "linked", "stripped", "plugins",
							     "storm",  "brief",    "hashed" };

bool userland_run_open(struct userland_run *run, const char *version, bool with_agent)
{
	const char *directory = debian_recording(version, "off");
	const char *agent;

	if (!directory)
		return false;
	*run = (struct userland_run){ .what = with_agent ? "agent" : "nothing",
				      .output = debian_recording_output(version),
				      .with_agent = with_agent };
	snprintf(run->directory, sizeof(run->directory), "%s", directory);
	snprintf(run->file, sizeof(run->file), "%s/perf.data", directory);
	agent = strstr(run->output, "userland: agent from ");
	if (!agent || sscanf(agent, "userland: agent from %u", &run->agent_from) != 1)
		FAIL_TEST("the guest had no agent: %s", run->output);
	return agent != NULL;
}

bool userland_run_has(const struct userland_run *run, const char *comm, unsigned int tid)
{
	return !strncmp(comm, "vcpu", 4) || (tid >= run->agent_from) == run->with_agent;
}

bool userland_is_process(const char *comm)
{
	for (size_t i = 0; i < USERLAND_PROCESSES; i++)
		if (!strcmp(comm, userland_processes[i]))
			return true;
	return false;
}

int userland_function_of(const char *symbol)
{
	for (size_t i = 0; i < USERLAND_FUNCTIONS; i++)
		if (!strcmp(symbol, userland_functions[i].symbol))
			return (int)i;
	return -1;
}
