/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_selector.h"

#include <errno.h>
#include <limits.h>

#include "shared/error.h"
#include "vmm/control/control_client.h"
#include "vmm/control/run_directory.h"

#define AT(field) .offset = offsetof(struct run_selector, field)

static const struct option_row rows[] = {
	{ "pid", "PID", "The run with this process id", OPTION_NUMBER, AT(pid), .letter = 'p',
	  .low = 1, .high = INT_MAX },
	{ "name", "NAME", "The run that was started with --name NAME", OPTION_TEXT, AT(name) },
	{ "socket", "PATH", "The run that was started with --control PATH", OPTION_TEXT,
	  AT(socket) },
	{ 0 },
};

static int check(void *target)
{
	const struct run_selector *selector = target;

	return !!selector->pid + !!selector->name + !!selector->socket > 1
		       ? error_set(-EINVAL, "--pid, --name and --socket exclude each other")
		       : 0;
}

struct option_group run_selector_options(struct run_selector *selector)
{
	return (struct option_group){ "Which run:", rows, selector, check };
}

int run_selector_connect(const struct run_selector *selector)
{
	return selector->socket ? control_connect(selector->socket)
				: control_runs_connect((pid_t)selector->pid, selector->name);
}
