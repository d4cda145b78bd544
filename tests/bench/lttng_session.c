/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lttng_session.h"

#if __has_include(<lttng/tracepoint.h>)

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shared/unconst.h"

#define TRACEPOINT_CREATE_PROBES
#define TRACEPOINT_DEFINE
#include "tests/bench/lttng_events.h"

#define NOBODY        65534
#define HOME          "LTTNG_HOME"
#define DAEMON        "KVMSCOPE_BENCH_LTTNG"
#define START_SECONDS 10

static const char *missing = "the session was not started";

static bool set_missing(const char *why)
{
	missing = why;
	return false;
}

static void redirect_output(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int i = 0; i < 3; i++)
		dup2(fd, i);
}

static pid_t start_quietly(const char *const arguments[])
{
	pid_t child = fork();

	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	redirect_output();
	execvp(arguments[0], unconst(arguments));
	_exit(127);
}

/* Runs the lttng command with up to five words. */
static bool lttng(const char *first, const char *second, const char *third, const char *fourth,
		  const char *fifth)
{
	const char *arguments[] = { "lttng", "--no-sessiond", first, second,
				    third,   fourth,          fifth, NULL };
	int status;
	pid_t child = start_quietly(arguments);

	return waitpid(child, &status, 0) == child && !status;
}

static bool start_daemon(pid_t *daemon)
{
	static const char *const arguments[] = { "lttng-sessiond", "--no-kernel", "--sig-parent",
						 NULL };
	struct timespec limit = { .tv_sec = START_SECONDS };
	sigset_t ready;

	sigemptyset(&ready);
	sigaddset(&ready, SIGUSR1);
	sigaddset(&ready, SIGCHLD);
	sigprocmask(SIG_BLOCK, &ready, NULL);
	*daemon = start_quietly(arguments);
	if (sigtimedwait(&ready, NULL, &limit) != SIGUSR1)
		return set_missing("lttng-sessiond of Debian package lttng-tools does not start");
	sigprocmask(SIG_UNBLOCK, &ready, NULL);
	return true;
}

static bool make_home(char *home)
{
	bool root = !geteuid();

	if (!mkdtemp(home))
		return set_missing("cannot create a temporary directory");
	if (root && (chown(home, NOBODY, NOBODY) || setresgid(NOBODY, NOBODY, NOBODY) ||
		     setresuid(NOBODY, NOBODY, NOBODY)))
		return set_missing("cannot drop root privileges");
	return !setenv(HOME, home, 1) && !setenv("HOME", home, 1);
}

static bool make_session(void)
{
	return (lttng("create", "bench", "--snapshot", NULL, NULL) &&
		lttng("enable-channel", "-u", "--num-subbuf=4", "--subbuf-size=256K", "records") &&
		lttng("enable-event", "-u", "--channel=records", "kvmscope_bench:record", NULL) &&
		lttng("start", NULL, NULL, NULL, NULL)) ||
	       set_missing("cannot set up the session");
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *place)
{
	(void)status;
	(void)type;
	(void)place;
	return remove(path);
}

static void end_session(pid_t daemon, const char *home)
{
	if (daemon > 0) {
		kill(daemon, SIGTERM);
		waitpid(daemon, NULL, 0);
	}
	nftw(home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void lttng_session_start(char **arguments)
{
	char home[] = "/tmp/kvmscope-bench-XXXXXX", number[16];
	int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	pid_t daemon = 0;

	if (getenv(DAEMON)) {
		missing = NULL;
		return;
	}
	if (make_home(home) && start_daemon(&daemon) && make_session()) {
		snprintf(number, sizeof(number), "%d", daemon);
		setenv(DAEMON, number, 1);
		fexecve(self, arguments, environ);
		missing = "cannot execute this program again";
	}
	end_session(daemon, home);
}

const char *lttng_session_missing(void)
{
	for (int try = 0; !missing && !tracepoint_enabled(kvmscope_bench, record); try++) {
		if (try == 100 * START_SECONDS)
			missing = "the event is not enabled";
		usleep(10000);
	}
	return missing;
}

void lttng_session_write(const uint8_t *bytes, size_t size, size_t count)
{
	for (size_t i = 0; i < count; i++)
		tracepoint(kvmscope_bench, record, bytes, size);
}

void lttng_session_end(void)
{
	if (getenv(DAEMON))
		end_session(atoi(getenv(DAEMON)), getenv(HOME));
}

#else

void lttng_session_start(char **arguments)
{
	(void)arguments;
}

const char *lttng_session_missing(void)
{
	return "Debian package liblttng-ust-dev is missing";
}

void lttng_session_write(const uint8_t *bytes, size_t size, size_t count)
{
	(void)bytes;
	(void)size;
	(void)count;
}

void lttng_session_end(void)
{
}

#endif
