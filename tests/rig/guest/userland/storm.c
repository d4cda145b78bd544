/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm CALLS MILLISECONDS: forks and executes brief, one process after the other, and makes a
 * tenth of the steps itself in between, so that a temporarily slow machine affects both alike.
 */
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/rig/guest/userland/busy.h"

BUSY_FUNCTION static BUSY_SPIN(storm_spin);

BUSY_FUNCTION static void run_spin(void)
{
	BUSY_CALL(storm_spin());
}

BUSY_FUNCTION static void run_brief(void)
{
	pid_t child = fork();
	int status;

	if (!child) {
		execl("/mnt/bin/brief", "brief", (char *)NULL);
		_exit(127);
	}
	if (waitpid(child, &status, 0) != child || status)
		exit(1);
}

int main(int argc, char **argv)
{
	static const struct busy tasks[] = { { "brief_spin", run_brief, 1, BUSY_BRIEF_CALLS },
					     { "storm_spin", run_spin, BUSY_BRIEF_CALLS / 9, 1 },
					     { NULL, NULL, 0, 0 } };

	BUSY_CALL(busy_run("storm", tasks, argc, argv));
	return 0;
}
