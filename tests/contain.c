/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contain COMMAND [ARGUMENT...]
 *
 * Runs COMMAND, and when it has ended, ends every process that it left behind,
 * whatever session and process group that is in, and names it on standard
 * error. Exit status: COMMAND's, 128 + N if signal N ended it; 125 if it can
 * not be run.
 *
 * Processes whose parent ends become children of the nearest subreaper above
 * them (prctl(2)): here of this one, which so has no others than COMMAND's.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CAN_NOT_RUN = 125, ROUNDS = 1000, ROUND_MILLISECONDS = 10 };

static volatile pid_t command;

/* COMMAND ends by the same signal, and what is left is ended as ever. */
static void forward(int number)
{
	if (command > 0)
		kill(command, number);
}

static pid_t run(char *const arguments[])
{
	pid_t child = fork();

	if (child)
		return child;
	execvp(arguments[0], arguments);
	fprintf(stderr, "contain: cannot run %s: %s\n", arguments[0], strerror(errno));
	_exit(CAN_NOT_RUN);
}

/* Until COMMAND has ended; reaps others, whose parents have ended, as init would. */
static int wait_for_command(void)
{
	int status;
	pid_t ended;

	while ((ended = waitpid(-1, &status, 0)) != command)
		if (ended < 0 && errno != EINTR)
			return CAN_NOT_RUN;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Process PID's parent and, in NAME, its name, which may have any bytes; false: it is gone, or a
 * zombie. */
static bool look_at(pid_t pid, pid_t *parent, char name[64])
{
	char path[64], text[512], state, *begin, *end;
	FILE *file;
	size_t size;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	size = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[size] = '\0';
	begin = strchr(text, '(');
	end = strrchr(text, ')');
	if (!begin || !end)
		return false;
	snprintf(name, 64, "%.*s", (int)(end - begin - 1), begin + 1);
	return sscanf(end + 1, " %c %d", &state, parent) == 2 && state != 'Z';
}

/* The children of those that it kills become ours: for the next round. */
static void kill_children(void)
{
	DIR *directory = opendir("/proc");
	struct dirent *entry;

	while (directory && (entry = readdir(directory))) {
		pid_t pid = atoi(entry->d_name), parent;
		char name[64];

		if (pid <= 0 || !look_at(pid, &parent, name) || parent != getpid())
			continue;
		fprintf(stderr, "contain: process %d (%s) was left behind and is ended\n", pid,
			name);
		kill(pid, SIGKILL);
	}
	if (directory)
		closedir(directory);
}

/* Bounded: a process that hangs in the kernel is not waited for without end. */
static void end_the_rest(void)
{
	const struct timespec round = { .tv_nsec = ROUND_MILLISECONDS * 1000000L };

	for (int i = 0; i < ROUNDS; i++) {
		pid_t ended;

		while ((ended = waitpid(-1, NULL, WNOHANG)) > 0)
			continue;
		if (ended < 0)
			return;
		kill_children();
		nanosleep(&round, NULL);
	}
	fprintf(stderr, "contain: what was left behind does not end\n");
}

int main(int argc, char **argv)
{
	int status;

	if (argc < 2) {
		fprintf(stderr, "usage: contain COMMAND [ARGUMENT...]\n");
		return CAN_NOT_RUN;
	}
	signal(SIGTERM, forward);
	signal(SIGINT, forward);
	/* Who runs this may be killed. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	command = run(argv + 1);
	status = command < 0 ? CAN_NOT_RUN : wait_for_command();
	end_the_rest();
	return status;
}
