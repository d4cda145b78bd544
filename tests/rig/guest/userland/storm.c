/* SPDX-License-Identifier: Apache-2.0 */
/* storm COUNT: forks and executes brief so many times, one process behind the other. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int status, count = argc > 1 ? atoi(argv[1]) : 1;

	for (int i = 0; i < count; i++) {
		pid_t child = fork();

		if (!child) {
			execl("/mnt/bin/brief", "brief", (char *)NULL);
			_exit(127);
		}
		if (waitpid(child, &status, 0) != child || status)
			return 1;
	}
	printf("userland: storm %d\n", count);
	return 0;
}
