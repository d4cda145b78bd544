/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/disk/sandbox_work.h"

#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/disk/sandbox_parts.h"

#define ASK_MS      100 /* how often is_over() is called */
#define GRACE_MS    2000
#define WAIT_FACTOR 30

#define READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)

struct result {
	int error;
	char message[ERROR_MESSAGE_SIZE];
};

/* --- the child ------------------------------------------------------------------------- */

/* Bytes that RLIMIT_DATA counts (proc_pid_statm(5)). */
static uint64_t used_memory(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	uint64_t pages = 0;

	if (file && fscanf(file, "%*s %*s %*s %*s %*s %" SCNu64, &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int set_limits(const struct sandbox_work *work)
{
	/* The signal of the soft limit is distinct. */
	const struct rlimit time = { .rlim_cur = work->seconds, .rlim_max = work->seconds + 1 };
	int error = sandbox_limit(RLIMIT_CORE, 0);

	if (!error && work->seconds && setrlimit(RLIMIT_CPU, &time))
		error = -errno;
	if (!error && work->file_max)
		error = sandbox_limit(RLIMIT_FSIZE, work->file_max);
	if (!error && work->memory_max)
		error = sandbox_limit(RLIMIT_DATA, used_memory() + work->memory_max);
	return error;
}

static int allow_all(int rules, const char *const *paths, uint64_t access)
{
	int error = 0;

	for (; paths && *paths && !error; paths++)
		error = sandbox_rules_allow(rules, *paths, access);
	return error;
}

/* As long as every file can be opened. */
static int make_rules(const struct sandbox_work *work, int *rules)
{
	int error = sandbox_rules_create(rules);

	if (!error)
		error = sandbox_rules_allow_system(*rules, READ);
	if (!error)
		error = allow_all(*rules, work->readable, READ);
	return error ? error
		     : allow_all(*rules, work->writable,
				 SANDBOX_ALL_FILE & ~LANDLOCK_ACCESS_FS_EXECUTE);
}

static void keep(bool is_kept, unsigned int capability)
{
	if (is_kept)
		capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED, capability);
}

static int change_user(const struct sandbox_work *work)
{
	if (setgroups(0, NULL) || prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) ||
	    setresgid(work->gid, work->gid, work->gid) ||
	    setresuid(work->uid, work->uid, work->uid))
		return -errno;
	return 0;
}

static int give_up_rights(const struct sandbox_work *work)
{
	bool changes, reads, writes;
	int error = 0;

	if (capng_get_caps_process())
		return -EPERM;
	changes = capng_have_capability(CAPNG_EFFECTIVE, CAP_SETUID) &&
		  capng_have_capability(CAPNG_EFFECTIVE, CAP_SETGID);
	reads = work->reads_any && capng_have_capability(CAPNG_PERMITTED, CAP_DAC_READ_SEARCH);
	writes = work->writes_any && capng_have_capability(CAPNG_PERMITTED, CAP_DAC_OVERRIDE);
	for (int i = 0; i <= CAP_LAST_CAP; i++)
		prctl(PR_CAPBSET_DROP, i, 0, 0, 0); /* EPERM: without CAP_SETPCAP */
	if (changes && (work->uid != geteuid() || work->gid != getegid()))
		error = change_user(work);
	if (error)
		return error;
	capng_clear(CAPNG_SELECT_CAPS);
	keep(reads, CAP_DAC_READ_SEARCH);
	keep(writes, CAP_DAC_OVERRIDE);
	if (capng_apply(CAPNG_SELECT_CAPS))
		return -EPERM;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -errno : 0;
}

static int set_message(int error, const char *input, const char *what)
{
	return error ? error_set(error, "cannot confine the process that reads %s: %s: %s", input,
				 what, strerror(-error))
		     : 0;
}

int sandbox_work_enter(const struct sandbox_work *work)
{
	bool writes = work->writable && *work->writable;
	int rules = -1, error = set_message(set_limits(work), work->input, "setrlimit");

	if (!error)
		error = set_message(make_rules(work, &rules), work->input, "Landlock");
	if (!error)
		error = set_message(give_up_rights(work), work->input, "giving up rights");
	/* A change of the user resets this. */
	if (!error && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))
		error = set_message(-errno, work->input, "prctl");
	if (!error)
		error = set_message(sandbox_rules_enter(rules), work->input, "Landlock");
	return error ? error
		     : set_message(sandbox_restrict_function(writes, work->network), work->input,
				   "seccomp");
}

/* Ignored signals stay so. */
static void reset_signals(void)
{
	struct sigaction action;
	sigset_t none;

	for (int i = 1; i < SIGRTMIN; i++)
		if (!sigaction(i, NULL, &action) && action.sa_handler != SIG_IGN)
			signal(i, SIG_DFL);
	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
}

static unsigned int next_kept(const struct sandbox_work *work, int result, unsigned int from)
{
	unsigned int next = (unsigned int)result >= from ? (unsigned int)result : UINT_MAX;

	for (size_t i = 0; i < work->file_count; i++) {
		unsigned int file = (unsigned int)work->files[i];

		if (file >= from && file < next)
			next = file;
	}
	return next;
}

/* Closes all but the standard descriptors, the kept ones and RESULT. */
static void close_others(const struct sandbox_work *work, int result)
{
	unsigned int from = STDERR_FILENO + 1, next;

	for (; (next = next_kept(work, result, from)) != UINT_MAX; from = next + 1)
		if (next > from)
			close_range(from, next - 1, 0);
	close_range(from, UINT_MAX, 0);
}

/* A reader may close a pipe early. */
static int flush_output(void)
{
	int error = fflush(stdout) ? -errno : ferror(stdout) ? -EIO : 0;

	return error && error != -EPIPE
		       ? error_set(error, "cannot write to standard output: %s", strerror(-error))
		       : 0;
}

static void detach(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
	    dup2(null, STDERR_FILENO) < 0)
		_exit(1);
	if (null > STDERR_FILENO)
		close(null);
}

/* RESULT_END: -1 for none. */
static _Noreturn void run_child(const struct sandbox_work *work, int (*function)(void *),
				void *context, int result_end, pid_t parent)
{
	struct result result = { 0 };

	if (!work->keeps_signals)
		reset_signals();
	if (work->detached)
		detach();
	if (work->files)
		close_others(work, result_end);
	result.error = sandbox_work_enter(work);
	if (getppid() != parent)
		_exit(1);
	if (!result.error)
		result.error = function(context);
	if (!result.error)
		result.error = flush_output();
	snprintf(result.message, sizeof(result.message), "%s", error_message());
	_exit(write(result_end, &result, sizeof(result)) != sizeof(result));
}

/* --- the caller ------------------------------------------------------------------------ */

struct child {
	const struct sandbox_work *work;
	pid_t pid;
	int from;          /* its result */
	bool is_over;      /* SIGTERM was sent */
	uint64_t deadline; /* ms: SIGKILL; UINT64_MAX: none */
};

/* It can close its end, and continue. */
static void wait_for_result(const struct child *child)
{
	struct pollfd ready = { .fd = child->from, .events = POLLIN };

	if (poll(&ready, 1, ASK_MS) > 0)
		usleep(100);
}

/* Returns its exit status; -1: lost, because SIGCHLD is ignored. */
static int wait_for_end(struct child *child)
{
	const struct sandbox_work *work = child->work;
	int status = -1;
	pid_t ended;

	while (!(ended = waitpid(child->pid, &status, WNOHANG))) {
		uint64_t now = clock_ms(CLOCK_MONOTONIC);

		if (now >= child->deadline)
			kill(child->pid, SIGKILL);
		if (!child->is_over && work->is_over && work->is_over(work->context)) {
			child->is_over = true;
			child->deadline = now + GRACE_MS;
			kill(child->pid, SIGTERM);
		}
		wait_for_result(child);
	}
	return ended < 0 ? -1 : status;
}

static int explain(const struct child *child, int status)
{
	const char *input = child->work->input;
	int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

	if (child->is_over)
		return error_set(-ECANCELED, "reading %s was canceled", input);
	if (status != -1 && signal == SIGPIPE)
		raise(SIGPIPE); /* the reader of our output, too, has ended */
	if (status != -1 && signal == SIGXCPU)
		return error_set(-ETIME, "reading %s takes more than %u s of CPU time", input,
				 child->work->seconds);
	if (clock_ms(CLOCK_MONOTONIC) >= child->deadline)
		return error_set(-ETIME, "reading %s takes too long", input);
	if (status != -1 && signal)
		return error_set(-EIO, "the process that reads %s crashed: %s", input,
				 strsignal(signal));
	return error_set(-EIO, "the process that reads %s ended without a result", input);
}

/* The child is not trusted. */
static int finish(struct child *child)
{
	int status = wait_for_end(child);
	struct result result;

	if (read(child->from, &result, sizeof(result)) != sizeof(result))
		return explain(child, status);
	result.message[sizeof(result.message) - 1] = '\0';
	if (!result.error)
		return 0;
	return error_set(result.error < 0 && result.error > -4096 ? result.error : -EIO, "%s",
			 result.message);
}

int sandbox_work_run(const struct sandbox_work *work, int (*function)(void *context), void *context)
{
	struct child child = { .work = work, .deadline = UINT64_MAX };
	pid_t parent = getpid();
	int ends[2], error;

	if (SANDBOX_SANITIZED)
		return function(context);
	if (pipe2(ends, O_CLOEXEC))
		return error_set(-errno, "cannot read %s: no pipe: %m", work->input);
	if (work->seconds)
		child.deadline = clock_ms(CLOCK_MONOTONIC) + WAIT_FACTOR * work->seconds * MS_PER_S;
	fflush(stdout);
	child.from = ends[0];
	child.pid = fork();
	if (!child.pid)
		run_child(work, function, context, ends[1], parent);
	close(ends[1]);
	if (child.pid < 0)
		error = error_set(-errno, "cannot start the process that reads %s: %m",
				  work->input);
	else
		error = finish(&child);
	close(ends[0]);
	return error;
}

bool sandbox_work_is_possible(void)
{
	return !SANDBOX_SANITIZED;
}

int sandbox_work_start(const struct sandbox_work *work, int (*function)(void *context),
		       void *context, pid_t *process)
{
	pid_t parent = getpid();

	fflush(stdout);
	*process = fork();
	if (!*process)
		run_child(work, function, context, -1, parent);
	return *process < 0 ? error_set(-errno, "cannot start the process that reads %s: %m",
					work->input)
			    : 0;
}
