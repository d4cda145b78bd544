/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/disk/sandbox.h"

#include <assert.h>
#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/landlock.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/disk/sandbox_parts.h"

#define MEMORY_MAX (2ull << 30)
#define FILES_MAX  64
#define ASK_MS     100 /* how often is_over() is called */

/* The child's descriptor for reporting an error before execve(), which closes it. */
#define REPORT (STDERR_FILENO + 1)

struct report {
	int error;
	char message[ERROR_MESSAGE_SIZE];
};

/* Programs, libraries, and the dynamic linker's cache. */
static const char *const system_files[] = { "/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache" };

#define OF_FILES                                                                                   \
	(LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_EXECUTE)

int sandbox_limit(int resource, rlim_t most)
{
	return setrlimit(resource, &(struct rlimit){ .rlim_cur = most, .rlim_max = most }) ? -errno
											   : 0;
}

static int set_limits(const struct sandbox *sandbox)
{
	int error = sandbox_limit(RLIMIT_CPU, sandbox->seconds);

	if (!error)
		error = sandbox_limit(RLIMIT_FSIZE, 0); /* of files, not of pipes */
	if (!error)
		error = sandbox_limit(RLIMIT_CORE, 0);
	if (!error)
		error = sandbox_limit(RLIMIT_NOFILE, FILES_MAX);
	if (!error && !SANDBOX_SANITIZED)
		error = sandbox_limit(RLIMIT_AS, MEMORY_MAX);
	return error;
}

/* Becomes the file's owner, without capabilities. */
static int give_up_rights(const struct sandbox *sandbox)
{
	if (!geteuid() &&
	    (setgroups(0, NULL) || setresgid(sandbox->gid, sandbox->gid, sandbox->gid) ||
	     setresuid(sandbox->uid, sandbox->uid, sandbox->uid)))
		return -errno;
	capng_clear(CAPNG_SELECT_CAPS);
	if (capng_apply(CAPNG_SELECT_CAPS))
		return -EPERM;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -errno : 0;
}

int sandbox_rules_allow(int rules, const char *path, uint64_t access)
{
	struct landlock_path_beneath_attr rule = { .allowed_access = access };
	struct stat status;
	int error = 0;

	rule.parent_fd = rules < 0 ? -1 : open(path, O_PATH | O_CLOEXEC);
	if (rule.parent_fd < 0)
		return 0;
	if (!fstat(rule.parent_fd, &status) && !S_ISDIR(status.st_mode))
		rule.allowed_access &= OF_FILES;
	/* EBADFD: a pipe, which needs no rule */
	if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) &&
	    errno != EBADFD)
		error = -errno;
	close(rule.parent_fd);
	return error;
}

bool sandbox_has_landlock(void)
{
	return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) > 0;
}

/* Kernels before 5.13, or with Landlock disabled, have none. */
int sandbox_rules_create(int *rules)
{
	const struct landlock_ruleset_attr all = { .handled_access_fs = SANDBOX_ALL_FILE };

	*rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof(all), 0);
	return *rules >= 0 || errno == ENOSYS || errno == EOPNOTSUPP ? 0 : -errno;
}

int sandbox_rules_allow_system(int rules, uint64_t access)
{
	int error = 0;

	for (size_t i = 0; i < sizeof(system_files) / sizeof(system_files[0]) && !error; i++)
		error = sandbox_rules_allow(rules, system_files[i], access);
	return error;
}

int sandbox_rules_enter(int rules)
{
	int error = 0;

	if (rules < 0)
		return 0;
	if (syscall(SYS_landlock_restrict_self, rules, 0))
		error = -errno;
	close(rules);
	return error;
}

static int restrict_files(const struct sandbox *sandbox)
{
	int rules, error = sandbox_rules_create(&rules);

	if (!error)
		error = sandbox_rules_allow(rules, sandbox->readable, LANDLOCK_ACCESS_FS_READ_FILE);
	/* GRUB's loopback devices list the root directory first. */
	if (!error)
		error = sandbox_rules_allow(rules, "/", LANDLOCK_ACCESS_FS_READ_DIR);
	if (!error)
		error = sandbox_rules_allow_system(rules, LANDLOCK_ACCESS_FS_READ_FILE |
								  LANDLOCK_ACCESS_FS_EXECUTE);
	return error ? error : sandbox_rules_enter(rules);
}

static int set_message(int error, const char *what)
{
	return error ? error_set(error, "%s: %s", what, strerror(-error)) : 0;
}

int sandbox_enter(const struct sandbox *sandbox)
{
	int error = set_message(set_limits(sandbox), "setrlimit");

	if (!error && chdir("/"))
		error = set_message(-errno, "chdir");
	if (!error)
		error = set_message(give_up_rights(sandbox), "giving up rights");
	/* A change of the user resets this. */
	if (!error && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))
		error = set_message(-errno, "prctl");
	if (!error)
		error = set_message(restrict_files(sandbox), "Landlock");
	return error ? error : set_message(sandbox_restrict_program(), "seccomp");
}

/* Moves REPORT_END to the descriptor REPORT. */
static int arrange_descriptors(int output, int *report_end)
{
	int null = open("/dev/null", O_RDWR);

	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
	    dup2(null, STDERR_FILENO) < 0 || dup3(*report_end, REPORT, O_CLOEXEC) < 0)
		return set_message(-errno, "its descriptors");
	*report_end = REPORT;
	return close_range(REPORT + 1, UINT_MAX, 0) ? set_message(-errno, "close_range") : 0;
}

static void run_program(const struct sandbox *sandbox, const char *const *arguments, int output,
			int report_end)
{
	char *const environment[] = { (char[]){ "LC_ALL=C" }, NULL };
	char *argv[SANDBOX_ARGUMENTS_MAX + 1] = { NULL };
	struct report report = { 0 };

	assert(arguments[0]);
	for (size_t i = 0; arguments[i]; i++) {
		assert(i < SANDBOX_ARGUMENTS_MAX);
		memcpy(&argv[i], &arguments[i], sizeof(argv[i]));
	}

	/* Above the descriptors that are set up below. */
	report_end = fcntl(report_end, F_DUPFD_CLOEXEC, REPORT + 1);
	report.error = arrange_descriptors(output, &report_end);
	if (!report.error)
		report.error = sandbox_enter(sandbox);
	if (!report.error) {
		execve(arguments[0], argv, environment);
		report.error = set_message(-errno, "execve");
	}
	snprintf(report.message, sizeof(report.message), "%s", error_message());
	_exit(write(report_end, &report, sizeof(report)) == sizeof(report) ? 127 : 126);
}

static bool is_over(const struct sandbox *sandbox)
{
	return sandbox->is_over && sandbox->is_over(sandbox->context);
}

/* 0: output is available. */
static int wait_for_output(const struct sandbox *sandbox, int from, uint64_t deadline)
{
	struct pollfd ready = { .fd = from, .events = POLLIN };

	for (;;) {
		uint64_t now = clock_ms(CLOCK_MONOTONIC),
			 left = now < deadline ? deadline - now : 0;
		int count;

		if (is_over(sandbox))
			return -ECANCELED;
		count = poll(&ready, 1, left < ASK_MS ? (int)left : ASK_MS);
		if (count > 0)
			return 0;
		if (count < 0 && errno != EINTR)
			return -errno;
		if (!left)
			return -ETIMEDOUT;
	}
}

/* Reads until the other end is closed. */
static int read_output(const struct sandbox *sandbox, int from, uint64_t deadline,
		       struct bytes *output)
{
	char part[65536];
	ssize_t size;

	for (;;) {
		int error = wait_for_output(sandbox, from, deadline);

		if (error)
			return error;
		size = read(from, part, sizeof(part));
		if (size <= 0)
			return size ? -errno : 0;
		if ((size_t)size > sandbox->output_max - output->size)
			return -EFBIG;
		bytes_add(output, part, (size_t)size);
		if (output->failed)
			return -ENOMEM;
	}
}

/* The program may have closed its output and continue. */
static int wait_for_end(const struct sandbox *sandbox, pid_t child, uint64_t deadline)
{
	int status = 0, error = 0;
	pid_t ended;

	while (!(ended = waitpid(child, &status, WNOHANG)) &&
	       clock_ms(CLOCK_MONOTONIC) < deadline && !is_over(sandbox))
		usleep(1000);
	if (!ended) {
		kill(child, SIGKILL);
		error = is_over(sandbox) ? -ECANCELED : -ETIMEDOUT;
		do
			ended = waitpid(child, &status, 0);
		while (ended < 0 && errno == EINTR);
	}
	/* The exit status is lost if SIGCHLD is ignored. */
	if (!error && ended < 0)
		error = -errno;
	return error ? error : WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EIO;
}

/* 0: the child executed the program. Only our own code writes reports. */
static int read_report(int from, const char *program)
{
	struct report report;

	if (read(from, &report, sizeof(report)) != sizeof(report))
		return 0;
	return error_set(report.error, "cannot confine %s: %s", program, report.message);
}

/* Closes the child's ends, OUTPUT_ENDS[1] and REPORT_ENDS[1]. */
static int run_child(const struct sandbox *sandbox, const char *const *arguments,
		     const int *output_ends, const int *report_ends, struct bytes *output)
{
	uint64_t deadline = clock_ms(CLOCK_MONOTONIC) + sandbox->seconds * MS_PER_S;
	pid_t child = fork();
	int error = child < 0 ? -errno : 0, end, failure;

	if (!child)
		run_program(sandbox, arguments, output_ends[1], report_ends[1]);
	close(output_ends[1]);
	close(report_ends[1]);
	if (error)
		return set_message(error, arguments[0]);
	error = read_output(sandbox, output_ends[0], deadline, output);
	end = wait_for_end(sandbox, child, error ? 0 : deadline);
	failure = read_report(report_ends[0], arguments[0]);
	return failure ? failure : set_message(error ? error : end, arguments[0]);
}

int sandbox_run(const struct sandbox *sandbox, const char *const *arguments, struct bytes *output)
{
	int output_ends[2], report_ends[2], error;

	*output = (struct bytes){ 0 };
	if (is_over(sandbox))
		return set_message(-ECANCELED, arguments[0]);
	if (pipe2(output_ends, O_CLOEXEC))
		return set_message(-errno, arguments[0]);
	if (pipe2(report_ends, O_CLOEXEC | O_NONBLOCK)) {
		error = set_message(-errno, arguments[0]);
		close(output_ends[0]);
		close(output_ends[1]);
		return error;
	}
	error = run_child(sandbox, arguments, output_ends, report_ends, output);
	close(output_ends[0]);
	close(report_ends[0]);
	return error;
}
