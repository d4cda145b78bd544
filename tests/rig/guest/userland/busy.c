/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/guest/userland/busy.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static unsigned int calls_of_round(const struct busy *tasks)
{
	unsigned int calls = 0;

	for (const struct busy *task = tasks; task->name; task++)
		calls += task->times * task->calls;
	return calls;
}

/* A single write, because processes share the console. */
static void print_truth(const char *process, const struct busy *tasks)
{
	unsigned int total = calls_of_round(tasks);
	char line[256];
	int length = snprintf(line, sizeof(line), "userland: truth %s", process);

	for (const struct busy *task = tasks; task->name; task++)
		length += snprintf(line + length, sizeof(line) - (size_t)length, " %s=%.4f",
				   task->name, (double)(task->times * task->calls) / total);
	line[length++] = '\n';
	if (write(STDOUT_FILENO, line, (size_t)length) != length)
		exit(1);
}

static long children_spent_ms(void)
{
	struct rusage usage;

	getrusage(RUSAGE_CHILDREN, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
	       (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

static long spent_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return time.tv_sec * 1000 + time.tv_nsec / 1000000 + children_spent_ms();
}

static void run_round(const struct busy *tasks)
{
	for (const struct busy *task = tasks; task->name; task++)
		for (unsigned int i = 0; i < task->times; i++)
			task->run();
}

void busy_run(const char *process, const struct busy *tasks, int argc, char **argv)
{
	long calls = argc == 3 ? strtol(argv[1], NULL, 10) : 0, made = 0;
	long least_ms = argc == 3 ? strtol(argv[2], NULL, 10) : 0;

	if (calls <= 0) {
		fprintf(stderr, "usage: %s CALLS MILLISECONDS\n", process);
		exit(2);
	}
	do {
		run_round(tasks);
		made += calls_of_round(tasks);
	} while (made < calls || spent_ms() < least_ms);
	print_truth(process, tasks);
}
