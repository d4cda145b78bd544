/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm COUNT MILLISECONDS: forks and executes brief so many times, one process behind the other, and until
 * these took so much time of a processor.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static long spent_ms(void)
{
	struct rusage usage;

	getrusage(RUSAGE_CHILDREN, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
	       (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

int main(int argc, char **argv)
{
	int status, made = 0, count = argc == 3 ? atoi(argv[1]) : 1, least_ms = argc == 3 ? atoi(argv[2]) : 0;

	for (; made < count || spent_ms() < least_ms; made++) {
		pid_t child = fork();

		if (!child) {
			execl("/mnt/bin/brief", "brief", (char *)NULL);
			_exit(127);
		}
		if (waitpid(child, &status, 0) != child || status)
			return 1;
	}
	printf("userland: storm %d\n", made);
	return 0;
}
