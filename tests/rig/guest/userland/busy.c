/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/guest/userland/busy.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static unsigned int calls_of_round(const struct busy *tasks)
{
	unsigned int calls = 0;

	for (const struct busy *task = tasks; task->name; task++)
		calls += task->times * task->calls;
	return calls;
}

/* One write: processes share the console. */
static void print_truth(const char *process, const struct busy *tasks)
{
	unsigned int total = calls_of_round(tasks);
	char line[256];
	int length = snprintf(line, sizeof(line), "userland: truth %s", process);

	for (const struct busy *task = tasks; task->name; task++)
		length += snprintf(line + length, sizeof(line) - (size_t)length, " %s=%.4f", task->name,
				   (double)(task->times * task->calls) / total);
	line[length++] = '\n';
	if (write(STDOUT_FILENO, line, (size_t)length) != length)
		exit(1);
}

void busy_run(const char *process, const struct busy *tasks, int argc, char **argv)
{
	long calls = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
	long rounds = calls / (long)calls_of_round(tasks);

	if (rounds <= 0) {
		fprintf(stderr, "usage: %s CALLS\n", process);
		exit(2);
	}
	while (rounds--)
		for (const struct busy *task = tasks; task->name; task++)
			for (unsigned int i = 0; i < task->times; i++)
				task->run();
	print_truth(process, tasks);
}
