/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_selector.h"

#include <limits.h>

#include "vmm/cli/option_number.h"
#include "vmm/control/client.h"
#include "vmm/control/run_directory.h"

enum key { KEY_PID = 'p', KEY_NAME = 0x500, KEY_SOCKET };

static const struct argp_option options[] = {
	{ "pid", KEY_PID, "PID", 0, "The run with this process id", 0 },
	{ "name", KEY_NAME, "NAME", 0, "The run that was started with --name NAME", 0 },
	{ "socket", KEY_SOCKET, "PATH", 0, "The run that was started with --control PATH", 0 },
	{ 0 },
};

static error_t parse(int key, char *value, struct argp_state *state)
{
	struct run_selector *selector = state->input;

	switch (key) {
	case KEY_PID:
		selector->pid = (pid_t)option_number(state, "--pid", value, 1, INT_MAX);
		return 0;
	case KEY_NAME:
		selector->name = value;
		return 0;
	case KEY_SOCKET:
		selector->socket = value;
		return 0;
	case ARGP_KEY_END:
		if (!!selector->pid + !!selector->name + !!selector->socket > 1)
			argp_error(state, "--pid, --name and --socket: one of them says which run");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

const struct argp run_selector_argp = { .options = options, .parser = parse };

int run_selector_connect(const struct run_selector *selector)
{
	return selector->socket ? control_connect(selector->socket)
				: control_runs_connect(selector->pid, selector->name);
}
