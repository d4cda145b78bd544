/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libvirt's hook program: it ends soon, with status 0 and without output, whatever the state of the
 * daemon, the disk and the XML. Each test has its own /run/kvmscope in a mount namespace, which
 * requires root.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/kvm/text_file.h"
#include "tests/unit/shim/test.h"
#include "vmm/daemon/hook_inbox.h"
#include "vmm/daemon/hook_install.h"

#define HOOK "build/hook/kvmscope-hook"
#define XML  "<domain type='kvm'><name>web</name></domain>"

/* It ends itself after 16 ms, but a busy machine may delay that. */
#define WALL_MS_MAX 5000
/* CPU time, which is the bound itself. */
#define CPU_MS_MAX 20

struct sandbox {
	char directory[64]; /* is /run/kvmscope to the hook */
	bool frozen;        /* writes to it block */
	char hook[256];     /* absolute */
};

static bool may_mount(void)
{
	pid_t child = fork();
	int status;

	if (!child)
		_exit(unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	return waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status);
}

#define SANDBOX_REQUIRED(sandbox)                                                                  \
	do {                                                                                       \
		if (!may_mount())                                                                  \
			SKIP("creating a mount namespace requires root");                          \
		make_sandbox(sandbox);                                                             \
	} while (0)

static void make_sandbox(struct sandbox *sandbox)
{
	char here[200];

	*sandbox = (struct sandbox){ .directory = "/tmp/kvmscope-hook-XXXXXX" };
	REQUIRE(mkdtemp(sandbox->directory) != NULL && getcwd(here, sizeof(here)) != NULL);
	snprintf(sandbox->hook, sizeof(sandbox->hook), "%s/" HOOK, here);
}

static void remove_sandbox(const struct sandbox *sandbox)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf %s", sandbox->directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
}

static uint64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* Runs in the child: INPUT is its standard input, OUTPUT gets anything that it writes. */
static _Noreturn void become_hook(const struct sandbox *sandbox, const char *domain,
				  const char *operation, int input, int output)
{
	dup2(input, STDIN_FILENO);
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	mkdir(HOOK_RUN_DIRECTORY, 0755);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount(sandbox->directory, HOOK_RUN_DIRECTORY, NULL, MS_BIND, NULL))
		_exit(125);
	execl(sandbox->hook, "kvmscope", domain, operation, "begin", "-", NULL);
	_exit(127);
}

/* libvirt's side: writes SIZE bytes of TEXT to the pipe FD. */
static void feed(int fd, const char *text, size_t size)
{
	signal(SIGPIPE, SIG_IGN);
	while (size) {
		ssize_t sent = write(fd, text, size);

		if (sent < 0)
			break; /* it did not read everything */
		text += sent;
		size -= (size_t)sent;
	}
	close(fd);
}

/* Runs the hook with XML of SIZE bytes. NULL: the pipe stays open and empty. */
static void run_hook(const struct sandbox *sandbox, const char *domain, const char *operation,
		     const char *xml, size_t size)
{
	struct rusage before, after;
	int input[2], output[2], status;
	bool fits_pipe = xml && size <= PIPE_BUF;
	uint64_t begun;
	char byte;
	pid_t child;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	REQUIRE(!pipe2(input, O_CLOEXEC) && !pipe2(output, O_CLOEXEC | O_NONBLOCK));
	getrusage(RUSAGE_CHILDREN, &before);
	/* It waits for only a few ms, in which a busy machine may not let us write. */
	if (fits_pipe)
		feed(input[1], xml, size);
	begun = now_ms();
	fflush(NULL);
	child = fork();
	if (!child)
		become_hook(sandbox, domain, operation, input[0], output[1]);
	close(input[0]);
	if (xml && !fits_pipe)
		feed(input[1], xml, size);
	REQUIRE_EQUAL(waitpid(child, &status, 0), child);
	CHECK(now_ms() - begun < WALL_MS_MAX);
	getrusage(RUSAGE_CHILDREN, &after);
	CHECK((after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000 +
		      (after.ru_utime.tv_usec - before.ru_utime.tv_usec) / 1000 <
	      CPU_MS_MAX);
	if (!xml)
		close(input[1]);
	CHECK(WIFEXITED(status));
	CHECK_EQUAL(WEXITSTATUS(status), 0);
	while (!sandbox->frozen && waitpid(-1, NULL, 0) > 0)
		; /* on a busy machine it may have left a child to deliver the message */
	CHECK(read(output[0], &byte, 1) < 0 && errno == EAGAIN); /* no output */
	close(output[0]);
	close(output[1]);
}

struct received {
	unsigned int count;
	char domain[HOOK_WORD_MAX], operation[HOOK_WORD_MAX];
	size_t xml_size;
	uint64_t first_number; /* the number at the end of the domain's name, if any */
};

static void receive(void *context, const struct hook_message *message)
{
	struct received *received = context;

	if (!received->count++ && strchr(message->domain, '-'))
		received->first_number = strtoull(strrchr(message->domain, '-') + 1, NULL, 10);
	snprintf(received->domain, sizeof(received->domain), "%s", message->domain);
	snprintf(received->operation, sizeof(received->operation), "%s", message->operation);
	received->xml_size = message->xml_size;
}

/*
 * Receives everything that a daemon which starts now would get. Returns the number of dropped
 * messages.
 */
static uint64_t receive_all(const struct sandbox *sandbox, struct received *received)
{
	struct hook_inbox *inbox;
	uint64_t dropped;

	*received = (struct received){ 0 };
	if (hook_inbox_open(&inbox, sandbox->directory, receive, received)) {
		FAIL_TEST("no inbox: %s", error_message());
		return 0;
	}
	hook_inbox_read(inbox);
	dropped = hook_inbox_dropped(inbox);
	hook_inbox_close(inbox);
	return dropped;
}

TEST(hook, without_a_daemon_messages_wait_for_it)
{
	struct received received;
	struct sandbox sandbox;

	SANDBOX_REQUIRED(&sandbox);
	run_hook(&sandbox, "web", "prepare", XML, strlen(XML)); /* not a running domain yet */
	run_hook(&sandbox, "web", "started", XML, strlen(XML));
	run_hook(&sandbox, "web", "stopped", XML, strlen(XML));
	CHECK_EQUAL(receive_all(&sandbox, &received), 0);
	CHECK_EQUAL(received.count, 2);
	CHECK_STRING(received.domain, "web");
	CHECK_STRING(received.operation, "stopped");
	CHECK_EQUAL(received.xml_size, strlen(XML));
	CHECK_EQUAL(receive_all(&sandbox, &received), 0);
	CHECK_EQUAL(received.count, 0);
	remove_sandbox(&sandbox);
}

TEST(hook, a_running_daemon_gets_messages_at_once)
{
	struct hook_inbox *inbox;
	struct received received = { 0 };
	struct sandbox sandbox;
	char spool[96];

	SANDBOX_REQUIRED(&sandbox);
	REQUIRE_EQUAL(hook_inbox_open(&inbox, sandbox.directory, receive, &received), 0);
	run_hook(&sandbox, "web", "started", XML, strlen(XML));
	hook_inbox_read(inbox);
	CHECK_EQUAL(received.count, 1);
	CHECK_STRING(received.operation, "started");
	CHECK_EQUAL(received.xml_size, strlen(XML));
	snprintf(spool, sizeof(spool), "%s/" HOOK_SPOOL, sandbox.directory);
	CHECK(access(spool, F_OK));
	hook_inbox_close(inbox);
	remove_sandbox(&sandbox);
}

/*
 * The daemon listens but does not read: messages for which its socket has no room go to the spool,
 * which drops its oldest.
 */
TEST(hook, a_hung_daemon_delays_no_hook)
{
	enum { MESSAGES = HOOK_SPOOL_MAX + 40 };
	struct hook_inbox *hung;
	struct received received = { 0 };
	struct sandbox sandbox;
	char domain[32];
	uint64_t dropped;

	SANDBOX_REQUIRED(&sandbox);
	REQUIRE_EQUAL(hook_inbox_open(&hung, sandbox.directory, receive, &received), 0);
	for (int i = 0; i < MESSAGES; i++) {
		snprintf(domain, sizeof(domain), "web-%d", i);
		run_hook(&sandbox, domain, "started", XML, strlen(XML));
	}
	dropped = hook_inbox_dropped(hung);
	/*
	 * The socket's capacity is a system setting, net.unix.max_dgram_qlen. Each read takes a
	 * limited number of messages.
	 */
	for (int i = 0; i <= MESSAGES / HOOK_SPOOL_MAX; i++)
		hook_inbox_read(hung);
	CHECK_EQUAL(received.count + dropped, MESSAGES);
	CHECK(received.count >= HOOK_SPOOL_MAX);
	hook_inbox_close(hung);
	remove_sandbox(&sandbox);
}

TEST(hook, the_spool_is_bounded_and_the_oldest_go)
{
	enum { MESSAGES = HOOK_SPOOL_MAX + 7 };
	struct received received;
	struct sandbox sandbox;
	char domain[32];

	SANDBOX_REQUIRED(&sandbox);
	for (int i = 0; i < MESSAGES; i++) {
		snprintf(domain, sizeof(domain), "web-%d", i);
		run_hook(&sandbox, domain, "started", "", 0);
	}
	CHECK_EQUAL(receive_all(&sandbox, &received), 7);
	CHECK_EQUAL(received.count, HOOK_SPOOL_MAX);
	CHECK_EQUAL(received.first_number, 7);
	remove_sandbox(&sandbox);
}

static void check_left_out(const struct sandbox *sandbox, const char *xml, size_t size)
{
	struct received received;

	run_hook(sandbox, "web", "started", xml, size);
	receive_all(sandbox, &received);
	CHECK_EQUAL(received.count, 1);
	CHECK_STRING(received.domain, "web");
	CHECK_EQUAL(received.xml_size, 0);
}

static void check_size_is_left_out(const struct sandbox *sandbox, size_t size)
{
	char *large = malloc(size);

	REQUIRE(large != NULL);
	memset(large, 'x', size);
	check_left_out(sandbox, large, size);
	free(large);
}

TEST(hook, xml_that_is_too_large_or_missing_is_left_out)
{
	struct sandbox sandbox;

	SANDBOX_REQUIRED(&sandbox);
	check_size_is_left_out(&sandbox, 10 << 20);
	check_left_out(&sandbox, NULL, 0);
	remove_sandbox(&sandbox);
}

/* This limits the host memory of 128 waiting messages. */
TEST(hook, waiting_messages_are_small)
{
	struct sandbox sandbox;

	SANDBOX_REQUIRED(&sandbox);
	check_size_is_left_out(&sandbox, 4 * HOOK_QUEUED_MAX);
	remove_sandbox(&sandbox);
}

TEST(hook, failure_to_write_is_ignored)
{
	char name[HOOK_WORD_MAX + 10];
	struct received received;
	struct sandbox sandbox;
	char spool[96];

	SANDBOX_REQUIRED(&sandbox);
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	run_hook(&sandbox, name, "started", XML, strlen(XML));
	run_hook(&sandbox, "", "started", XML, strlen(XML));
	receive_all(&sandbox, &received);
	CHECK_EQUAL(received.count, 0);
	/* A file of another program, a directory that others may write to, a full file system. */
	snprintf(spool, sizeof(spool), "%s/" HOOK_SPOOL, sandbox.directory);
	rmdir(spool);
	close(open(spool, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	run_hook(&sandbox, "web", "started", XML, strlen(XML));
	CHECK(!unlink(spool));
	CHECK(!mkdir(spool, 0700) && !chmod(spool, 0777));
	run_hook(&sandbox, "web", "started", XML, strlen(XML));
	receive_all(&sandbox, &received);
	CHECK_EQUAL(received.count, 0);
	CHECK(!chmod(spool, 0700));
	CHECK(!mount("none", spool, "tmpfs", 0, "size=4k,mode=0700,nr_inodes=3"));
	run_hook(&sandbox, "web", "started", XML, strlen(XML));
	run_hook(&sandbox, "web", "stopped", XML, strlen(XML));
	run_hook(&sandbox, "web", "release", XML, strlen(XML));
	CHECK(!umount(spool));
	remove_sandbox(&sandbox);
}

/* A frozen file system, on which a writer blocks and no signal ends it. */
TEST(hook, a_disk_that_does_not_answer_is_not_waited_for)
{
	char command[512];
	struct sandbox sandbox;
	pid_t thaw;

	SANDBOX_REQUIRED(&sandbox);
	snprintf(
		command, sizeof(command),
		"exec 2>/dev/null; d=%s; truncate -s 2M $d.disk && PATH=$PATH:/sbin mkfs.ext4 -q $d.disk && "
		"mount -o loop $d.disk $d && mkdir -m 700 $d/" HOOK_SPOOL " && fsfreeze -f $d",
		sandbox.directory);
	if (system(command)) { /* NOLINT(cert-env33-c): the test's own command */
		snprintf(command, sizeof(command), "umount %s 2>/dev/null; rm -f %s.disk",
			 sandbox.directory, sandbox.directory);
		CHECK(system(command) >= 0); /* NOLINT(cert-env33-c): the test's own command */
		remove_sandbox(&sandbox);
		SKIP("cannot mount and freeze a file system here");
	}
	thaw = fork();
	if (!thaw) {
		sleep(2 * WALL_MS_MAX / 1000); /* a hook that blocks is too late, but ends */
		execlp("fsfreeze", "fsfreeze", "-u", sandbox.directory, NULL);
		_exit(127);
	}
	sandbox.frozen = true;
	run_hook(&sandbox, "web", "started", XML, strlen(XML));
	kill(thaw, SIGKILL);
	waitpid(thaw, NULL, 0);
	snprintf(command, sizeof(command), "fsfreeze -u %s 2>/dev/null", sandbox.directory);
	CHECK(system(command) >= 0); /* NOLINT(cert-env33-c): the test's own command */
	while (waitpid(-1, NULL, 0) > 0)
		; /* blocked writers */
	snprintf(command, sizeof(command),
		 "for i in 1 2 3 4 5 6 7 8 9; do umount %s && break; sleep 1; done; rm %s.disk",
		 sandbox.directory, sandbox.directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
	remove_sandbox(&sandbox);
}

static void leave_unfinished(const char *spool, const char *name, time_t age)
{
	const struct timespec times[2] = { { .tv_sec = time(NULL) - age },
					   { .tv_sec = time(NULL) - age } };
	char path[128];

	text_file_write(spool, name, "kvmscope hook");
	snprintf(path, sizeof(path), "%s/%s", spool, name);
	CHECK(!utimensat(AT_FDCWD, path, times, 0));
}

/* One that was killed, or whose disk blocked, while it wrote; and one that is being written now. */
TEST(hook, unfinished_messages_are_removed)
{
	struct sandbox sandbox;
	struct received received;
	char spool[96], path[128];

	make_sandbox(&sandbox);
	snprintf(spool, sizeof(spool), "%s/" HOOK_SPOOL, sandbox.directory);
	CHECK(!mkdir(spool, 0700));
	leave_unfinished(spool, ".000000000001.000000001-1", 3 * HOOK_WORK_S);
	leave_unfinished(spool, ".000000000002.000000001-1", 0);
	receive_all(&sandbox, &received);
	CHECK_EQUAL(received.count, 0);
	snprintf(path, sizeof(path), "%s/.000000000001.000000001-1", spool);
	CHECK(access(path, F_OK));
	snprintf(path, sizeof(path), "%s/.000000000002.000000001-1", spool);
	CHECK(!access(path, F_OK));
	remove_sandbox(&sandbox);
}

/*
 * How long the hook can delay libvirt, however busy the machine is, as shown by its system calls.
 * libvirt waits for two things: the end of the process that it started, and the closing of all
 * writing ends of its output. So that process may wait for nothing but its child, and the child for
 * nothing but its input while that is open, each with a timer that ends it.
 */

#define DEADLINE_US 20000

/* One of the hook's processes. */
struct traced {
	pid_t pid; /* 0: not started yet */
	const char *name;
	long timer_us; /* the timer that it has set; 0: none */
	int waits_in;  /* the system call in which it may wait */
	unsigned int waits;
	bool done; /* libvirt no longer waits for it */
};

/* System calls that return at once with the hook's arguments. */
static bool ends_at_once(uint64_t call)
{
	static const uint16_t calls[] = { SYS_rt_sigaction, SYS_rt_sigprocmask,  SYS_clock_gettime,
					  SYS_arch_prctl,   SYS_set_tid_address, SYS_fork,
					  SYS_clone,        SYS_close,           SYS_exit_group,
					  SYS_getpid,       SYS_gettid,          SYS_rt_sigreturn,
					  SYS_setitimer };

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (call == calls[i])
			return true;
	return false;
}

static void note_timer(struct traced *process, uint64_t address)
{
	struct itimerval timer = { 0 };
	struct iovec to = { &timer, sizeof(timer) },
		     from = { (void *)(uintptr_t)address, sizeof(timer) };

	CHECK_EQUAL(process_vm_readv(process->pid, &to, 1, &from, 1, 0), (ssize_t)sizeof(timer));
	process->timer_us = timer.it_value.tv_sec * 1000000 + timer.it_value.tv_usec;
}

static void note_wait(struct traced *process, const uint64_t arguments[6])
{
	process->waits++;
	if (process->timer_us < 1 || process->timer_us > DEADLINE_US)
		FAIL_TEST("%s waits with a timer of %ld us", process->name, process->timer_us);
	if (process->waits_in == SYS_poll && arguments[2] > DEADLINE_US / 1000)
		FAIL_TEST("%s waits %d ms for its input", process->name, (int)arguments[2]);
}

static void note_call(struct traced *process, uint64_t call, const uint64_t arguments[6])
{
	if (process->done)
		return;
	if (call == SYS_setitimer && arguments[0] == ITIMER_REAL)
		note_timer(process, arguments[1]);
	else if (call == (uint64_t)process->waits_in)
		note_wait(process, arguments);
	else if (call == SYS_close && arguments[0] == STDIN_FILENO)
		process->done = process->waits_in == SYS_poll;
	else if (!ends_at_once(call) && !(call == SYS_read && process->waits))
		FAIL_TEST("%s could wait in system call %d", process->name, (int)call);
}

/* Handles a stop. Returns the signal to deliver. */
static int note_stop(struct traced *process, int status)
{
	struct __ptrace_syscall_info call;

	if (status >> 16 || WSTOPSIG(status) == SIGSTOP || WSTOPSIG(status) == SIGTRAP)
		return 0;                /* the start of the child */
	if (WSTOPSIG(status) == SIGALRM) /* the deadline, which passes because of the tracing
					  * stops */
		return 0;
	if (WSTOPSIG(status) != (SIGTRAP | 0x80))
		return WSTOPSIG(status);
	if (ptrace(PTRACE_GET_SYSCALL_INFO, process->pid, sizeof(call), &call) > 0 &&
	    call.op == PTRACE_SYSCALL_INFO_ENTRY)
		note_call(process, call.entry.nr, (const uint64_t *)call.entry.args);
	return 0;
}

static struct traced *find_traced(struct traced processes[2], pid_t pid)
{
	if (processes[0].pid == pid)
		return &processes[0];
	processes[1].pid = pid;
	return &processes[1];
}

/* Traces both until they have ended. Returns the first one's status. */
static int trace_all(struct traced processes[2])
{
	int status, result = -1;
	pid_t pid;

	while ((pid = waitpid(-1, &status, __WALL)) > 0) {
		struct traced *process = find_traced(processes, pid);

		if (WIFSTOPPED(status))
			ptrace(PTRACE_SYSCALL, pid, NULL, (long)note_stop(process, status));
		else if (process == &processes[0])
			result = status;
	}
	return result;
}

/* With a pipe that stays open and empty. */
TEST(hook, waits_for_nothing_without_a_deadline)
{
	struct traced processes[2] = { { .name = "the hook", .waits_in = SYS_wait4 },
				       { .name = "its child", .waits_in = SYS_poll } };
	int input[2], output, status;
	struct sandbox sandbox;
	pid_t child;

	SANDBOX_REQUIRED(&sandbox);
	output = open("/dev/null", O_WRONLY | O_CLOEXEC);
	REQUIRE(!pipe2(input, O_CLOEXEC));
	fflush(NULL);
	child = fork();
	if (!child) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		become_hook(&sandbox, "web", "started", input[0], output);
	}
	processes[0].pid = child;
	REQUIRE(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
	REQUIRE(!ptrace(PTRACE_SETOPTIONS, child, NULL,
			PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACECLONE |
				PTRACE_O_EXITKILL));
	ptrace(PTRACE_SYSCALL, child, NULL, NULL);
	CHECK_EQUAL(trace_all(processes), 0);
	CHECK(processes[0].waits && processes[1].waits);
	CHECK(processes[1].done); /* and its input is closed */
	close(input[0]);
	close(input[1]);
	close(output);
	remove_sandbox(&sandbox);
}

/* Installation beside other hooks. */

TEST(hook_install, is_idempotent_and_removes_its_own_alone)
{
	char directory[] = "/tmp/kvmscope-hooks-XXXXXX", path[PATH_MAX], qemu_d[64];
	enum hook_state state;

	REQUIRE(mkdtemp(directory) != NULL);
	snprintf(qemu_d, sizeof(qemu_d), "%s/qemu.d", directory);
	CHECK_EQUAL(hook_uninstall(directory), -ENOENT);
	CHECK(!hook_has_others(directory));
	for (int i = 0; i < 2; i++) {
		CHECK_EQUAL(hook_install(directory), 0);
		CHECK_EQUAL(hook_find(directory, &state, path), 0);
		CHECK_EQUAL(state, HOOK_CURRENT);
		CHECK(!access(path, X_OK));
	}
	CHECK(!hook_has_others(directory));
	CHECK_EQUAL(hook_uninstall(directory), 0);
	CHECK(access(qemu_d, F_OK)); /* it was empty */
	/* Another version's hook is updated; a directory with other files stays. */
	CHECK(!mkdir(qemu_d, 0755));
	text_file_write(qemu_d, "others", "#!/bin/sh\n");
	text_file_write(qemu_d, "kvmscope", "%s", "old " HOOK_MARK);
	CHECK(hook_has_others(directory));
	CHECK_EQUAL(hook_find(directory, &state, path), 0);
	CHECK_EQUAL(state, HOOK_OTHER);
	CHECK_EQUAL(hook_install(directory), 0);
	CHECK_EQUAL(hook_find(directory, &state, path), 0);
	CHECK_EQUAL(state, HOOK_CURRENT);
	CHECK_EQUAL(hook_uninstall(directory), 0);
	CHECK(!access(qemu_d, F_OK));
	/* A file of another program with our name is left alone. */
	text_file_write(qemu_d, "kvmscope", "#!/bin/sh\n");
	CHECK_EQUAL(hook_install(directory), -EEXIST);
	CHECK_EQUAL(hook_uninstall(directory), -EEXIST);
	CHECK(!unlink(path));
	CHECK(!symlink("/bin/true", path));
	CHECK_EQUAL(hook_install(directory), -EEXIST);
	CHECK_EQUAL(hook_uninstall(directory), -EEXIST);
	snprintf(path, sizeof(path), "rm -rf %s", directory);
	CHECK(!system(path)); /* NOLINT(cert-env33-c): the test's own command */
}
