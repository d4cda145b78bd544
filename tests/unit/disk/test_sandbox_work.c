/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that try to leave the sandbox, crash and never end. */
#include "vmm/disk/sandbox_work.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/disk/sandbox_parts.h"

#define NEED_SANDBOX                                                                               \
	do {                                                                                       \
		if (SANDBOX_SANITIZED)                                                             \
			SKIP("functions are not confined in builds with sanitizers");              \
	} while (0)

static char scratch[] = "/tmp/kvmscope-work-XXXXXX"; /* a directory */
static char path[64];                                /* a file in it */
static const char *const readable[] = { "/etc/passwd", NULL };
static const char *const writable[] = { scratch, NULL };

static const struct sandbox_work plain = { .input = "the input", .readable = readable };

static long read_allowed(void)
{
	return open("/etc/passwd", O_RDONLY | O_CLOEXEC);
}

static long read_other(void)
{
	return open("/etc/group", O_RDONLY | O_CLOEXEC);
}

static long write_file(void)
{
	return open(path, O_WRONLY | O_CLOEXEC);
}

static long make_file(void)
{
	char other[80];

	snprintf(other, sizeof(other), "%s/new", scratch);
	return open(other, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

static long make_elsewhere(void)
{
	return open("/var/tmp/kvmscope-work-new", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

static long remove_file(void)
{
	return unlink(path);
}

static long make_link(void)
{
	char other[80];

	snprintf(other, sizeof(other), "%s/link", scratch);
	return symlink("/etc/shadow", other);
}

static long run_program(void)
{
	return execl("/usr/bin/true", "true", (char *)NULL);
}

static long make_process(void)
{
	return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static long make_socket(void)
{
	return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static long make_local_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
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
	return setrlimit(RLIMIT_CORE, &(struct rlimit){ 1, 1 });
}

static long become_root(void)
{
	return setuid(0);
}

static long change_mode(void)
{
	return chmod(path, 0777);
}

static long make_code(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
			       MAP_FAILED
		       ? -1
		       : 0;
}

static long make_namespace(void)
{
	return unshare(CLONE_NEWUSER);
}

static long load_program(void)
{
	return syscall(SYS_bpf, 0, NULL, 0);
}

/* 0: the attempt fails, as it should. */
static int try(void *context)
{
	long (*const *attempt)(void) = context;

	return (*attempt)() < 0 ? 0 : error_set(-EEXIST, "it can");
}

static bool can(const struct sandbox_work *work, long (*attempt)(void))
{
	int error = sandbox_work_run(work, try, &attempt);

	CHECK(!error || error == -EEXIST);
	return error;
}

static void make_scratch(void)
{
	int fd;

	strcpy(scratch, "/tmp/kvmscope-work-XXXXXX");
	REQUIRE(mkdtemp(scratch));
	snprintf(path, sizeof(path), "%s/file", scratch);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	REQUIRE(fd >= 0);
	close(fd);
}

static void remove_scratch(void)
{
	char command[80];

	snprintf(command, sizeof(command), "rm -r %s", scratch);
	CHECK_EQUAL(system(command), 0);
}

static const struct {
	const char *what;
	long (*attempt)(void);
	bool writes; /* possible for one that may write to the directory */
} attempts[] = {
	{ "write a file", write_file, true },
	{ "make a file", make_file, true },
	{ "make a link", make_link, true },
	{ "remove a file", remove_file, true },
	{ "change the mode of a path", change_mode, false },
	{ "run a program", run_program, false },
	{ "make a process", make_process, false },
	{ "make a socket", make_socket, false },
	{ "make a local socket", make_local_socket, false },
	{ "signal its parent", kill_parent, false },
	{ "trace its parent", trace_parent, false },
	{ "change its limits", raise_limit, false },
	{ "become root", become_root, false },
	{ "make code", make_code, false },
	{ "make a namespace", make_namespace, false },
	{ "call bpf()", load_program, false },
};

TEST(sandbox_work, can_only_read_what_it_may_read)
{
	NEED_SANDBOX;
	make_scratch();
	CHECK(can(&plain, read_allowed));
	for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++)
		if (can(&plain, attempts[i].attempt))
			FAIL_TEST("it can %s", attempts[i].what);
	remove_scratch();
}

TEST(sandbox_work, can_write_below_its_directory_only)
{
	struct sandbox_work writing = plain;

	NEED_SANDBOX;
	writing.writable = writable;
	make_scratch();
	for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++)
		if (can(&writing, attempts[i].attempt) != attempts[i].writes)
			FAIL_TEST("it can %s%s", attempts[i].writes ? "not " : "",
				  attempts[i].what);
	remove_scratch();
}

TEST(sandbox_work, opens_no_other_files_with_landlock)
{
	struct sandbox_work writing = plain;

	NEED_SANDBOX;
	if (syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1)
		SKIP("this kernel has no Landlock: files of the user can be read there");
	make_scratch();
	writing.writable = writable;
	writing.reads_any = writing.writes_any = true;
	CHECK(!can(&plain, read_other));
	CHECK(!can(&writing, read_other));
	CHECK(!can(&writing, make_elsewhere));
	remove_scratch();
}

/* 0: this process has the file's effective capabilities in CONTEXT and no way to more. */
static int check_status(void *context)
{
	const char *wanted = context;
	char line[128], rights[20] = "", bounding[20] = "", gains[4] = "", mode[4] = "";
	FILE *file = fopen("/proc/thread-self/status", "re");

	while (file && fgets(line, sizeof(line), file)) {
		sscanf(line, "CapEff: %19s", rights);
		sscanf(line, "CapBnd: %19s", bounding);
		sscanf(line, "NoNewPrivs: %3s", gains);
		sscanf(line, "Seccomp: %3s", mode);
	}
	if (file)
		fclose(file);
	return !strcmp(rights, wanted) && !strcmp(gains, "1") && !strcmp(mode, "2") &&
			       strspn(bounding, "0") == strlen(bounding)
		       ? 0
		       : error_set(-EINVAL, "%s %s %s %s", rights, bounding, gains, mode);
}

TEST(sandbox_work, has_no_rights_but_to_read)
{
	static const char *const status[] = { "/proc/self", "/proc", NULL };
	static char none[] = "0000000000000000", reads[] = "0000000000000004";
	struct sandbox_work work = { .input = "the input", .readable = status };

	NEED_SANDBOX;
	if (geteuid())
		SKIP("needs root");
	work.uid = 65534;
	if (sandbox_work_run(&work, check_status, none))
		FAIL_TEST("%s", error_message());
	work.reads_any = true;
	if (sandbox_work_run(&work, check_status, reads))
		FAIL_TEST("%s", error_message());
}

static int report_user(void *context)
{
	(void)context;
	return error_set(-(int)geteuid(), "the user");
}

TEST(sandbox_work, becomes_the_owner)
{
	struct sandbox_work work = { .input = "the input", .uid = 1234, .gid = 1234 };

	NEED_SANDBOX;
	if (geteuid())
		SKIP("needs root");
	CHECK_EQUAL(sandbox_work_run(&work, report_user, NULL), -1234);
}

static int fail(void *context)
{
	(void)context;
	return error_set(-EILSEQ, "it is damaged");
}

static int succeed(void *context)
{
	(void)context;
	return 0;
}

static int crash(void *context)
{
	(void)context;
	return raise(SIGSEGV);
}

static int end_silently(void *context)
{
	(void)context;
	_exit(0);
}

static int never_end(void *context)
{
	volatile unsigned long *turns = context;

	while (*turns < ULONG_MAX)
		++*turns;
	return 0;
}

TEST(sandbox_work, returns_the_result)
{
	CHECK_EQUAL(sandbox_work_run(&plain, succeed, NULL), 0);
	CHECK_EQUAL(sandbox_work_run(&plain, fail, NULL), -EILSEQ);
	CHECK_STRING(error_message(), "it is damaged");
}

TEST(sandbox_work, a_crash_is_an_error_that_names_the_input)
{
	NEED_SANDBOX;
	CHECK_EQUAL(sandbox_work_run(&plain, crash, NULL), -EIO);
	CHECK(!strncmp(error_message(), "the process that reads the input crashed: ", 42));
	CHECK_EQUAL(sandbox_work_run(&plain, end_silently, NULL), -EIO);
	CHECK_STRING(error_message(), "the process that reads the input ended without a result");
}

static bool says_yes(void *context)
{
	(void)context;
	return true;
}

TEST(sandbox_work, ends_functions_that_do_not_end)
{
	struct sandbox_work short_time = plain, over = plain;
	unsigned long turns = 0;

	NEED_SANDBOX;
	short_time.seconds = 1;
	CHECK_EQUAL(sandbox_work_run(&short_time, never_end, &turns), -ETIME);
	CHECK_STRING(error_message(), "reading the input takes more than 1 s of CPU time");
	over.is_over = says_yes;
	CHECK_EQUAL(sandbox_work_run(&over, never_end, &turns), -ECANCELED);
}

static int use_memory(void *context)
{
	size_t size = 64u << 20;
	char *bytes = malloc(size);

	(void)context;
	if (!bytes)
		return error_set(-ENOMEM, "no memory");
	free(bytes);
	return 0;
}

TEST(sandbox_work, limits_memory)
{
	struct sandbox_work small = plain;

	NEED_SANDBOX;
	small.memory_max = 32u << 20;
	CHECK_EQUAL(sandbox_work_run(&small, use_memory, NULL), -ENOMEM);
	small.memory_max = 128u << 20;
	CHECK_EQUAL(sandbox_work_run(&small, use_memory, NULL), 0);
}

static int check_descriptors(void *context)
{
	const int *files = context;

	return fcntl(files[0], F_GETFD) >= 0 && fcntl(files[1], F_GETFD) < 0
		       ? 0
		       : error_set(-EINVAL, "other descriptors");
}

TEST(sandbox_work, keeps_only_the_given_descriptors)
{
	struct sandbox_work work = plain;
	int files[2];

	NEED_SANDBOX;
	REQUIRE(!pipe2(files, O_CLOEXEC));
	work.files = files;
	work.file_count = 1;
	CHECK_EQUAL(sandbox_work_run(&work, check_descriptors, files), 0);
	close(files[0]);
	close(files[1]);
}
