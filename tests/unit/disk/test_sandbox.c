/* SPDX-License-Identifier: Apache-2.0 */
/* Attempts of a sandboxed process to break out. */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/disk/sandbox.h"

static const struct sandbox plain = { .readable = "/etc/passwd",
				      .seconds = 20,
				      .output_max = 1 << 20 };

/* Exit statuses that are used for nothing else. */
enum { FAILED = 40, SUCCEEDED, OUTSIDE };

/* True if ATTEMPT succeeds in a sandboxed child. */
static bool succeeds_inside(const struct sandbox *sandbox, long (*attempt)(void))
{
	int status = 0;
	pid_t child = fork();

	if (!child)
		_exit(sandbox_enter(sandbox) ? OUTSIDE : attempt() >= 0 ? SUCCEEDED : FAILED);
	waitpid(child, &status, 0);
	CHECK(WIFEXITED(status));
	CHECK(WEXITSTATUS(status) == SUCCEEDED || WEXITSTATUS(status) == FAILED);
	return WEXITSTATUS(status) == SUCCEEDED;
}

static char scratch[] = "/tmp/kvmscope-sandbox-XXXXXX";

static long read_allowed(void)
{
	return open("/etc/passwd", O_RDONLY | O_CLOEXEC);
}

static long read_library(void)
{
	return open("/usr/lib", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static long read_other(void)
{
	return open("/etc/group", O_RDONLY | O_CLOEXEC);
}

static long read_own(void)
{
	return open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
}

static long write_file(void)
{
	return open(scratch, O_WRONLY | O_CLOEXEC);
}

static long make_file(void)
{
	return open("/tmp/kvmscope-sandbox-new", O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
}

static long make_nameless(void)
{
	return open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
}

static long remove_file(void)
{
	return unlink(scratch);
}

static long move_file(void)
{
	return rename(scratch, "/tmp/kvmscope-sandbox-moved");
}

static long change_mode(void)
{
	return chmod(scratch, 0777);
}

static long make_socket(void)
{
	return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static long make_local_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static long make_process(void)
{
	return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static long kill_parent(void)
{
	return kill(getppid(), 0);
}

static long trace_parent(void)
{
	return ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
}

static long raise_limit(void)
{
	return setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 1, 1 });
}

static long become_root(void)
{
	return setuid(0);
}

static long make_namespace(void)
{
	return unshare(CLONE_NEWUSER);
}

static long write_elsewhere(void)
{
	int ends[2];

	return pipe(ends) ? -1 : write(ends[1], "x", 1);
}

TEST(sandbox, reads_the_allowed_file)
{
	CHECK(succeeds_inside(&plain, read_allowed));
	CHECK(succeeds_inside(&plain, read_library));
}

TEST(sandbox, can_do_nothing_else)
{
	static const struct {
		const char *what;
		long (*attempt)(void);
	} attempts[] = {
		{ "write a file", write_file },
		{ "make a file", make_file },
		{ "make a file without a name", make_nameless },
		{ "remove a file", remove_file },
		{ "move a file", move_file },
		{ "change a file's mode", change_mode },
		{ "make a socket", make_socket },
		{ "make a local socket", make_local_socket },
		{ "make a process", make_process },
		{ "signal its parent", kill_parent },
		{ "trace its parent", trace_parent },
		{ "change its limits", raise_limit },
		{ "become root", become_root },
		{ "make a namespace", make_namespace },
		{ "write to what it makes", write_elsewhere },
	};
	int fd = mkstemp(scratch);

	REQUIRE(fd >= 0);
	close(fd);
	for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++)
		if (succeeds_inside(&plain, attempts[i].attempt))
			FAIL_TEST("it can %s", attempts[i].what);
	CHECK(!access(scratch, F_OK));
	unlink(scratch);
}

TEST(sandbox, reads_no_other_files_with_landlock)
{
	if (syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1)
		SKIP("this kernel has no Landlock: files of the user can be read there");
	CHECK(!succeeds_inside(&plain, read_other));
	CHECK(!succeeds_inside(&plain, read_own));
}

static int run(const char *const *arguments, const struct sandbox *sandbox, struct bytes *output)
{
	int error = sandbox_run(sandbox, arguments, output);

	bytes_add(output, "", 1);
	return error;
}

TEST(sandbox, returns_the_output)
{
	struct bytes output;

	CHECK_EQUAL(run((const char *const[]){ "/usr/bin/printf", "%s.", "word", NULL }, &plain,
			&output),
		    0);
	CHECK_STRING((char *)output.data, "word.");
	free(output.data);
	CHECK_EQUAL(run((const char *const[]){ "/usr/bin/false", NULL }, &plain, &output), -EIO);
	free(output.data);
	CHECK_EQUAL(run((const char *const[]){ "/usr/bin/no-such-program", NULL }, &plain, &output),
		    -ENOENT);
	CHECK_STRING(error_message(),
		     "cannot confine /usr/bin/no-such-program: execve: No such file or directory");
	free(output.data);
}

TEST(sandbox, reports_a_lost_exit_status)
{
	const struct sigaction ignore = { .sa_handler = SIG_IGN };
	struct sigaction before;
	struct bytes output;

	REQUIRE(!sigaction(SIGCHLD, &ignore, &before));
	CHECK_EQUAL(run((const char *const[]){ "/usr/bin/false", NULL }, &plain, &output), -ECHILD);
	CHECK(!sigaction(SIGCHLD, &before, NULL));
	free(output.data);
}

static bool says_no_twice(void *context)
{
	unsigned int *asked = context;

	return ++*asked > 2;
}

TEST(sandbox, ends_when_cancelled)
{
	struct sandbox asking = plain;
	unsigned int asked = 0;
	struct bytes output;

	asking.seconds = 3600;
	asking.is_over = says_no_twice;
	asking.context = &asked;
	CHECK_EQUAL(run((const char *const[]){ "/bin/sh", "-c", "while :; do :; done", NULL },
			&asking, &output),
		    -ECANCELED);
	free(output.data);
}

TEST(sandbox, ends_programs_that_exceed_limits)
{
	struct sandbox small = plain;
	struct bytes output;
	int error;

	CHECK_EQUAL(run((const char *const[]){ "/usr/bin/yes", NULL }, &plain, &output), -EFBIG);
	CHECK(output.size <= plain.output_max + 1);
	free(output.data);
	small.seconds = 1;
	/* By wall time or CPU time. */
	error = run((const char *const[]){ "/bin/sh", "-c", "while :; do :; done", NULL }, &small,
		    &output);
	CHECK(error == -ETIMEDOUT || error == -EIO);
	free(output.data);
}
