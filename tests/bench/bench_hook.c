/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long libvirt waits for the hook, with and without kvmscoped, compared with a program that
 * does nothing (/bin/true, started the same way). Each run has its own /run/kvmscope in a mount
 * namespace, which requires root.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

#define HOOK    "build/hook/kvmscope-hook"
#define DAEMON  "build/kvmscoped"
#define NOTHING "/bin/true"
#define RUN     "/run/kvmscope"
#define SOCKET  RUN "/hook.socket"

#define RUNS_MAX  200
#define RUNS      bench_size(RUNS_MAX, 10)
#define XML_SIZE  6000 /* bytes, as for a domain with some devices; fits into a pipe */
#define LIMIT_MS  20
#define LATE_MORE 3   /* late runs that are allowed in addition to those of NOTHING */
#define TRIES     200 /* intervals of 50 ms */

/* Mounts below a private namespace, which ends with this process. */
static int make_namespace(void)
{
	return unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	       mount("none", "/run", "tmpfs", 0, "mode=0755") || mkdir(RUN, 0755);
}

static pid_t start(const char *program, int input)
{
	pid_t child = fork();

	if (!child) {
		dup2(input, STDIN_FILENO);
		execl(program, "kvmscope", "web", "started", "begin", "-", NULL);
		_exit(127);
	}
	return child;
}

/* The duration of a run in ms, up to the end of the process; negative: it could not be run. */
static double run_once(const char *program)
{
	static char xml[XML_SIZE];
	int input[2], status;
	uint64_t begun;
	ssize_t written;
	pid_t child;

	memset(xml, ' ', sizeof(xml));
	if (pipe2(input, O_CLOEXEC))
		return -1;
	begun = bench_time(CLOCK_MONOTONIC);
	child = start(program, input[0]);
	close(input[0]);
	written = write(input[1], xml, sizeof(xml));
	close(input[1]);
	if (waitpid(child, &status, 0) != child || status || (written < 0 && errno != EPIPE))
		return -1;
	return (double)(bench_time(CLOCK_MONOTONIC) - begun) / 1e6;
}

/* Alternates between the hook and the program that does nothing. */
static int run_all(double hook[RUNS_MAX], double nothing[RUNS_MAX])
{
	for (int i = 0; i < RUNS; i++) {
		hook[i] = run_once(HOOK);
		nothing[i] = run_once(NOTHING);
		if (hook[i] < 0 || nothing[i] < 0)
			return -1;
	}
	qsort(hook, RUNS, sizeof(*hook), bench_compare);
	qsort(nothing, RUNS, sizeof(*nothing), bench_compare);
	return 0;
}

static void print_percentile(const char *state, const char *part, double hook, double nothing)
{
	char what[96];

	snprintf(what, sizeof(what), "libvirt's hook, %s: %s percentile of %d runs", state, part,
		 RUNS);
	bench_print_relative(what, hook, "ms", NOTHING, nothing);
}

static unsigned int count_late(const double times[RUNS_MAX])
{
	unsigned int late = 0;

	while (late < RUNS && times[RUNS_MAX - 1 - late] > LIMIT_MS)
		late++;
	return late;
}

/* On a busy machine the program that does nothing is late as well, because it waits for a CPU. */
static void print_late(const char *state, unsigned int hook, unsigned int nothing)
{
	const struct bench_bound bound = { BENCH_MOST, nothing + LATE_MORE };
	char what[96];

	snprintf(what, sizeof(what), NOTHING ", %s: longer than %d ms out of %d runs", state,
		 LIMIT_MS, RUNS);
	bench_print(what, nothing, "runs");
	snprintf(what, sizeof(what), "libvirt's hook, %s: longer than %d ms out of %d runs", state,
		 LIMIT_MS, RUNS);
	bench_print_bound(what, hook, "runs", bound);
}

static void measure(const char *state)
{
	double hook[RUNS_MAX], nothing[RUNS_MAX];

	if (run_all(hook, nothing)) {
		bench_skip("libvirt's hook", "it could not be run");
		return;
	}
	print_percentile(state, "median", hook[RUNS_MAX / 2], nothing[RUNS_MAX / 2]);
	print_percentile(state, "90th", hook[RUNS_MAX * 9 / 10], nothing[RUNS_MAX * 9 / 10]);
	print_percentile(state, "99th", hook[RUNS_MAX * 99 / 100], nothing[RUNS_MAX * 99 / 100]);
	print_percentile(state, "longest", hook[RUNS_MAX - 1], nothing[RUNS_MAX - 1]);
	print_late(state, count_late(hook), count_late(nothing));
}

/* The child process: kvmscoped with an empty directory of domains. */
static _Noreturn void become_daemon(void)
{
	static const char conf[] =
		"[recordings]\ndirectory = " RUN "/recordings\n[metrics]\nlisten = off\n";
	FILE *file = fopen(RUN "/kvmscope.conf", "we");

	if (!file || fputs(conf, file) < 0 || fclose(file) || mkdir(RUN "/libvirt", 0755))
		_exit(126);
	execl(DAEMON, DAEMON, "--config", RUN "/kvmscope.conf", "--run-directory", RUN,
	      "--libvirt-directory", RUN "/libvirt", "--connect", "test:///default", NULL);
	_exit(127);
}

/* The process of kvmscoped; 0: it does not start. */
static pid_t start_daemon(void)
{
	pid_t child = fork();

	if (!child)
		become_daemon();
	for (int i = 0; i < TRIES && access(SOCKET, F_OK); i++)
		usleep(50000);
	return access(SOCKET, F_OK) ? 0 : child;
}

int main(void)
{
	pid_t daemon;

	signal(SIGPIPE, SIG_IGN);
	if (make_namespace()) {
		bench_skip("libvirt's hook", "no mount namespace, which requires root");
		return 0;
	}
	measure("without kvmscoped");
	daemon = start_daemon();
	if (!daemon) {
		bench_skip("libvirt's hook, with kvmscoped", "kvmscoped does not start");
		return 1;
	}
	measure("with kvmscoped");
	kill(daemon, SIGTERM);
	waitpid(daemon, NULL, 0);
	return bench_status();
}
