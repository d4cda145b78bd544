/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/attach_tools.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/unconst.h"
#include "tests/bench/bench.h"

#define PERFS_MESSAGES "build/bench/attach.perf.log"
#define CONTROL        "build/bench/attach.control"
#define ANSWER         "build/bench/attach.answer"
#define WAIT_S         20
#define MESSAGES_MAX   16384

extern char **environ;

static int control_fd = -1, answer_fd = -1;

bool tools_open(void)
{
	unlink(CONTROL);
	unlink(ANSWER);
	if (mkfifo(CONTROL, 0600) || mkfifo(ANSWER, 0600))
		return false;
	control_fd = open(CONTROL, O_RDWR | O_CLOEXEC);
	answer_fd = open(ANSWER, O_RDWR | O_CLOEXEC);
	return control_fd >= 0 && answer_fd >= 0;
}

void tools_close(void)
{
	unlink(PERFS);
	unlink(PERFS_MESSAGES);
	unlink(CONTROL);
	unlink(ANSWER);
}

/* Starts ARGUMENTS with all output in the file MESSAGES. 0: the program cannot be started. */
static pid_t spawn(const char *const *arguments, const char *messages)
{
	posix_spawn_file_actions_t actions;
	pid_t tool = 0;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, messages, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	posix_spawn_file_actions_adddup2(&actions, 1, 2);
	if (posix_spawnp(&tool, arguments[0], &actions, NULL, unconst(arguments), environ))
		tool = 0;
	posix_spawn_file_actions_destroy(&actions);
	return tool;
}

pid_t tools_start_kvmscope(pid_t vm, const struct way *way, unsigned int frequency)
{
	char pid[16], hz[16];
	const char *const arguments[] = { "build/kvmscope",
					  "attach",
					  "--pid",
					  pid,
					  "--backend",
					  way->name,
					  "-F",
					  hz,
					  "-o",
					  way->output,
					  "--no-buildid-cache",
					  "-v",
					  "--json",
					  way->stop_limit ? "--stop-limit" : NULL,
					  way->stop_limit,
					  NULL };

	snprintf(pid, sizeof(pid), "%d", vm);
	snprintf(hz, sizeof(hz), "%u", frequency);
	return spawn(arguments, way->messages);
}

pid_t tools_start_perf(pid_t vm, unsigned int frequency)
{
	char pid[16], hz[16];
	const char *const arguments[] = { "perf",   "kvm", "--guest",
					  "record", "-e",  "cpu-clock",
					  "-F",     hz,    "-p",
					  pid,      "-k",  "CLOCK_MONOTONIC_RAW",
					  "-D",     "-1",  "--control=fifo:" CONTROL "," ANSWER,
					  "-o",     PERFS, NULL };

	snprintf(pid, sizeof(pid), "%d", vm);
	snprintf(hz, sizeof(hz), "%u", frequency);
	return spawn(arguments, PERFS_MESSAGES);
}

bool tools_enable_perf(void)
{
	struct pollfd answer = { .fd = answer_fd, .events = POLLIN };
	char ignored[64];

	return write(control_fd, "enable\n", 7) == 7 && poll(&answer, 1, WAIT_S * 1000) == 1 &&
	       read(answer_fd, ignored, sizeof(ignored)) > 0;
}

void tools_end(pid_t tool)
{
	if (!tool)
		return;
	kill(tool, SIGINT);
	waitpid(tool, NULL, 0);
}

uint64_t tools_cpu_time(pid_t tool)
{
	clockid_t clock;

	return clock_getcpuclockid(tool, &clock) ? 0 : bench_time(clock);
}

/* The output of kvmscope. */

static void read_messages(const struct way *way, char messages[MESSAGES_MAX])
{
	FILE *file = fopen(way->messages, "r");

	*messages = '\0';
	if (file) {
		messages[fread(messages, 1, MESSAGES_MAX - 1, file)] = '\0';
		fclose(file);
	}
}

static bool has_reported(const struct way *way, const char *text)
{
	char messages[MESSAGES_MAX];

	read_messages(way, messages);
	return strstr(messages, text);
}

bool tools_wait_for_kvmscope(pid_t tool, const struct way *way)
{
	for (unsigned int i = 0; i < WAIT_S * 100; i++) {
		if (has_reported(way, "ms for the guest's kernel"))
			return true;
		if (waitpid(tool, NULL, WNOHANG))
			return false;
		usleep(10000);
	}
	return false;
}

double tools_reported_number(const struct way *way, const char *name)
{
	char messages[MESSAGES_MAX];
	const char *at;

	read_messages(way, messages);
	at = strstr(messages, name);
	return at ? atof(at + strlen(name)) : 0;
}

void tools_last_message(const struct way *way, char line[200])
{
	FILE *file = fopen(way->messages, "r");

	strcpy(line, "it has exited");
	while (file && fgets(line, 200, file))
		line[strcspn(line, "\n")] = '\0';
	if (file)
		fclose(file);
	for (char *byte = line; *byte; byte++)
		if (*byte == '"' || *byte == '\\')
			*byte = '\'';
}
