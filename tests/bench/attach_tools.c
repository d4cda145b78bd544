/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/attach_tools.h"

#include <errno.h>
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

#define WAIT_S       20
#define MESSAGES_MAX 16384

extern char **environ;

char tools_perf_data[64];
static char perf_messages[64], control[64], answer[64];
static int control_fd = -1, answer_fd = -1;

static void set_path(char path[64], const char *suffix)
{
	snprintf(path, 64, "build/bench/%s.%s", program_invocation_short_name, suffix);
}

bool tools_open(void)
{
	set_path(tools_perf_data, "perf.data");
	set_path(perf_messages, "perf.log");
	set_path(control, "control");
	set_path(answer, "answer");
	unlink(control);
	unlink(answer);
	if (mkfifo(control, 0600) || mkfifo(answer, 0600))
		return false;
	control_fd = open(control, O_RDWR | O_CLOEXEC);
	answer_fd = open(answer, O_RDWR | O_CLOEXEC);
	return control_fd >= 0 && answer_fd >= 0;
}

void tools_close(void)
{
	unlink(tools_perf_data);
	unlink(perf_messages);
	unlink(control);
	unlink(answer);
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
	char pid[16], hz[16], fifos[160];
	const char *const arguments[] = { "perf",
					  "kvm",
					  "--guest",
					  "record",
					  "-e",
					  "cpu-clock",
					  "-F",
					  hz,
					  "-p",
					  pid,
					  "-k",
					  "CLOCK_MONOTONIC_RAW",
					  "-D",
					  "-1",
					  fifos,
					  "-o",
					  tools_perf_data,
					  NULL };

	snprintf(fifos, sizeof(fifos), "--control=fifo:%s,%s", control, answer);
	snprintf(pid, sizeof(pid), "%d", vm);
	snprintf(hz, sizeof(hz), "%u", frequency);
	return spawn(arguments, perf_messages);
}

bool tools_enable_perf(void)
{
	struct pollfd confirmed = { .fd = answer_fd, .events = POLLIN };
	char ignored[64];

	return write(control_fd, "enable\n", 7) == 7 && poll(&confirmed, 1, WAIT_S * 1000) == 1 &&
	       read(answer_fd, ignored, sizeof(ignored)) > 0;
}

void tools_end(pid_t tool)
{
	if (!tool)
		return;
	kill(tool, SIGINT);
	for (unsigned int i = 0; i < WAIT_S * 100; i++) {
		if (waitpid(tool, NULL, WNOHANG))
			return;
		usleep(10000);
	}
	kill(tool, SIGKILL);
	waitpid(tool, NULL, 0);
	bench_fail("attach", "a tool did not exit within 20 s of SIGINT");
	exit(1);
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
