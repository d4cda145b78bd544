// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/sandbox.h"

#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/landlock.h>
#include <poll.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MEMORY_MAX (2ull << 30)
#define FILES_MAX  64

/* Where programs and libraries are, and what finds libraries. */
static const char *const system_files[] = { "/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache" };

#define READ_FILE (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_EXECUTE)
#define ALL_FILE  ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1) /* of the first version */

static int limit(int resource, rlim_t most)
{
	return setrlimit(resource, &(struct rlimit){ .rlim_cur = most, .rlim_max = most }) ? -errno : 0;
}

static int set_limits(const struct sandbox *sandbox)
{
	int error = limit(RLIMIT_CPU, sandbox->seconds);

	if (!error)
		error = limit(RLIMIT_FSIZE, 0); /* of files; a pipe is none */
	if (!error)
		error = limit(RLIMIT_CORE, 0);
	if (!error)
		error = limit(RLIMIT_NOFILE, FILES_MAX);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* whose shadow is larger */
	if (!error)
		error = limit(RLIMIT_AS, MEMORY_MAX);
#endif
	return error;
}

/* Who may read the file, and no more: root without its capabilities is nobody special either. */
static int give_up_rights(const struct sandbox *sandbox)
{
	if (!geteuid() && (setgroups(0, NULL) || setresgid(sandbox->gid, sandbox->gid, sandbox->gid) ||
			   setresuid(sandbox->uid, sandbox->uid, sandbox->uid)))
		return -errno;
	capng_clear(CAPNG_SELECT_CAPS);
	if (capng_apply(CAPNG_SELECT_CAPS))
		return -EPERM;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -errno : 0;
}

/* What is not there need not be allowed. */
static int allow_path(int rules, const char *path, uint64_t access)
{
	struct landlock_path_beneath_attr rule = { .allowed_access = access };
	int error = 0;

	rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
	if (rule.parent_fd < 0)
		return 0;
	if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0))
		error = -errno;
	close(rule.parent_fd);
	return error;
}

/* Kernels before 5.13, and those that were told not to, have none: the user's rights are the limit then. */
static int restrict_files(const struct sandbox *sandbox)
{
	const struct landlock_ruleset_attr all = { .handled_access_fs = ALL_FILE };
	int rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof(all), 0), error;

	if (rules < 0)
		return errno == ENOSYS || errno == EOPNOTSUPP ? 0 : -errno;
	error = allow_path(rules, sandbox->readable, LANDLOCK_ACCESS_FS_READ_FILE);
	/* Which files there are: GRUB's loopback devices begin with a look at the root. */
	if (!error)
		error = allow_path(rules, "/", LANDLOCK_ACCESS_FS_READ_DIR);
	for (size_t i = 0; i < sizeof(system_files) / sizeof(system_files[0]) && !error; i++)
		error = allow_path(rules, system_files[i], READ_FILE);
	if (!error && syscall(SYS_landlock_restrict_self, rules, 0))
		error = -errno;
	close(rules);
	return error;
}

/* Of a program that reads files: to start, to have memory, to read, and to end. */
static const int calls[] = {
	SCMP_SYS(execve),
	SCMP_SYS(arch_prctl),
	SCMP_SYS(set_tid_address),
	SCMP_SYS(set_robust_list),
	SCMP_SYS(rseq),
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
	SCMP_SYS(brk),
	SCMP_SYS(mmap),
	SCMP_SYS(munmap),
	SCMP_SYS(mremap),
	SCMP_SYS(mprotect),
	SCMP_SYS(madvise),
	SCMP_SYS(futex),
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(getrandom),
	SCMP_SYS(read),
	SCMP_SYS(pread64),
	SCMP_SYS(lseek),
	SCMP_SYS(close),
	SCMP_SYS(fstat),
	SCMP_SYS(stat),
	SCMP_SYS(lstat),
	SCMP_SYS(newfstatat),
	SCMP_SYS(statx),
	SCMP_SYS(statfs),
	SCMP_SYS(fstatfs),
	SCMP_SYS(access),
	SCMP_SYS(faccessat),
	SCMP_SYS(faccessat2),
	SCMP_SYS(readlink),
	SCMP_SYS(readlinkat),
	SCMP_SYS(getdents64),
	SCMP_SYS(getcwd),
	SCMP_SYS(fadvise64),
	SCMP_SYS(getpid),
	SCMP_SYS(gettid),
	SCMP_SYS(getuid),
	SCMP_SYS(geteuid),
	SCMP_SYS(getgid),
	SCMP_SYS(getegid),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(gettimeofday),
	SCMP_SYS(sigaltstack),
	SCMP_SYS(uname),
};

/* What makes an open() more than one for reading. */
#define OPENS_TO_WRITE (O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY))

static int restrict_calls(void)
{
	static const unsigned long requests[] = { TCGETS, BLKGETSIZE64, BLKSSZGET };
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int error = filter ? 0 : -ENOMEM;

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]) && !error; i++)
		error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
	if (!error)
		error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
					 SCMP_A2(SCMP_CMP_MASKED_EQ, OPENS_TO_WRITE, O_RDONLY));
	if (!error)
		error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(open), 1,
					 SCMP_A1(SCMP_CMP_MASKED_EQ, OPENS_TO_WRITE, O_RDONLY));
	if (!error)
		error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(write), 1,
					 SCMP_A0(SCMP_CMP_LE, STDERR_FILENO, 0));
	/* Limits may be asked for, not set. */
	if (!error)
		error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 1,
					 SCMP_A2(SCMP_CMP_EQ, 0, 0));
	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]) && !error; i++)
		error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
					 SCMP_A1(SCMP_CMP_EQ, requests[i], 0));
	if (!error)
		error = seccomp_load(filter);
	seccomp_release(filter);
	return error;
}

int sandbox_enter(const struct sandbox *sandbox)
{
	int error = set_limits(sandbox);

	if (!error && chdir("/"))
		error = -errno;
	if (!error)
		error = give_up_rights(sandbox);
	/* A change of the user takes it back. */
	if (!error && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))
		error = -errno;
	if (!error)
		error = restrict_files(sandbox);
	return error ? error : restrict_calls();
}

static void be_child(const struct sandbox *sandbox, const char *const *arguments, int output)
{
	char *const environment[] = { (char[]){ "LC_ALL=C" }, NULL };
	int null = open("/dev/null", O_RDWR);

	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
	    dup2(null, STDERR_FILENO) < 0 || close_range(STDERR_FILENO + 1, UINT_MAX, 0) ||
	    sandbox_enter(sandbox))
		_exit(126);
	execve(arguments[0], (char *const *)(uintptr_t)arguments, environment);
	_exit(127);
}

/* ms of CLOCK_MONOTONIC. */
static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Until the other end is closed. */
static int gather(const struct sandbox *sandbox, int from, int64_t deadline, struct bytes *output)
{
	char part[65536];
	ssize_t size;

	for (;;) {
		struct pollfd ready = { .fd = from, .events = POLLIN };
		int64_t left = deadline - now_ms();
		int count = poll(&ready, 1, left > 0 ? (int)left : 0);

		if (!count)
			return -ETIMEDOUT;
		if (count < 0 && errno == EINTR)
			continue;
		size = count < 0 ? -1 : read(from, part, sizeof(part));
		if (size <= 0)
			return size ? -errno : 0;
		if ((size_t)size > sandbox->output_max - output->size)
			return -EFBIG;
		bytes_add(output, part, (size_t)size);
		if (output->failed)
			return -ENOMEM;
	}
}

/* It may have closed its output, and go on. */
static int wait_for_end(pid_t child, int64_t deadline)
{
	int status = 0, error = 0;
	pid_t ended;

	while (!(ended = waitpid(child, &status, WNOHANG)) && now_ms() < deadline)
		usleep(1000);
	if (!ended) {
		kill(child, SIGKILL);
		error = -ETIMEDOUT;
		do
			ended = waitpid(child, &status, 0);
		while (ended < 0 && errno == EINTR);
	}
	/* Nobody knows how it ended where children are not waited for (SIGCHLD is ignored). */
	if (!error && ended < 0)
		error = -errno;
	return error ? error : WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EIO;
}

int sandbox_run(const struct sandbox *sandbox, const char *const *arguments, struct bytes *output)
{
	int64_t deadline = now_ms() + (int64_t)sandbox->seconds * 1000;
	int ends[2], error, end;
	pid_t child;

	*output = (struct bytes){ 0 };
	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	child = fork();
	if (!child)
		be_child(sandbox, arguments, ends[1]);
	error = child < 0 ? -errno : 0;
	close(ends[1]);
	if (!error)
		error = gather(sandbox, ends[0], deadline, output);
	close(ends[0]);
	if (child < 0)
		return error;
	end = wait_for_end(child, error ? 0 : deadline);
	return error ? error : end;
}
