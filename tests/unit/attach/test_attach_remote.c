/* SPDX-License-Identifier: Apache-2.0 */
/* Stopping a thread of another process, making it execute a call, and dying meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/hanging_file.h"
#include "tests/unit/remote_victim.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/remote_call.h"

/* Exits with 0 if the call was executed correctly; afterwards the thread has its registers back. */
static int call_once(const struct remote_code *code, struct remote *remote)
{
	struct thread_stop stop;
	int error = thread_stop(&stop, victim->pid), waiting = 0;

	if (error)
		return error;
	error = -EAGAIN;
	if (stop.registers.orig_rax == SYS_epoll_wait && (int)stop.registers.rax == -EINTR) {
		error = remote_open(remote, &stop, code, 0);
		if (!error)
			error = remote_ioctl(remote, victim->pipe, FIONREAD, &waiting,
					     sizeof(waiting));
		remote_close(remote);
		if (!error && waiting != 5)
			victim->bad++;
	}
	thread_resume(&stop);
	return error;
}

/* A thread that is stopped again at once makes no progress. */
static void let_it_run(void)
{
	usleep((useconds_t)(lrand48() % 100));
}

static _Noreturn void be_tracer(const struct remote_code *code, struct remote *remote)
{
	for (;;) {
		victim->calls += !call_once(code, remote);
		let_it_run();
	}
}

TEST(attach_remote, a_stopped_thread_makes_calls_and_keeps_everything)
{
	struct remote *remote = calloc(1, sizeof(*remote));
	struct remote_code code;
	unsigned int made = 0;

	REQUIRE(remote);
	remote_victim_start(&code);
	for (; made < 200 && !remote_victim_has_ended(); let_it_run())
		made += !call_once(&code, remote);
	CHECK_EQUAL(made, 200);
	CHECK(remote_victim_continues());
	CHECK_EQUAL(victim->bad, 0);
	CHECK(victim->interrupted > 0);
	remote_victim_end();
	free(remote);
}

/* The tracer is killed at any instruction: the other process continues with its state and its
 * pending signals. */
TEST(attach_remote, the_tracer_may_be_killed_at_any_time)
{
	struct remote *remote = calloc(1, sizeof(*remote));
	const union sigval none = { 0 };
	struct remote_code code;
	uint64_t sent = 0;
	bool lives = true;

	REQUIRE(remote);
	remote_victim_start(&code);
	srand48(getpid());
	/* On a busy machine, most tracers are killed before they make a call. */
	for (int i = 0; (i < 200 || (victim->calls < 100 && i < 4000)) && lives; i++) {
		pid_t tracer = fork();

		if (!tracer)
			be_tracer(&code, remote);
		usleep((useconds_t)(lrand48() % 4000));
		sent += !sigqueue(victim->pid, SIGRTMIN, none);
		usleep((useconds_t)(lrand48() % 500));
		kill(tracer, SIGKILL);
		waitpid(tracer, NULL, 0);
		lives = remote_victim_continues();
	}
	CHECK(lives);
	CHECK_EQUAL(victim->bad, 0);
	CHECK_EQUAL(victim->signals, sent);
	if (victim->calls < 100)
		FAIL_TEST("only %llu calls were made", (unsigned long long)victim->calls);
	remote_victim_end();
	free(remote);
}

TEST(attach_remote, instructions_are_found)
{
	static const uint8_t bytes[] = { 0x0f, 0x05, 0x90, 0xc3, 0x0f, 0,    0, 0,
					 0x0f, 0x05, 0xc3, 0xb8, 0x0f, 0,    0, 0,
					 0x0f, 0x05, 0x48, 0xc7, 0xc0, 0x0f, 0, 0 };
	struct remote_code code = { 0 };

	remote_code_search(&code, bytes, sizeof(bytes), 0x1000);
	CHECK_EQUAL(code.call, 0x1008);
	CHECK_EQUAL(code.sigreturn, 0x100b);
	code = (struct remote_code){ 0 };
	remote_code_search(&code, bytes, 8, 0x1000);
	CHECK_EQUAL(code.call, 0);
	CHECK_EQUAL(code.sigreturn, 0);
}

/* The first code of the process in /proc/PID/maps. */
static bool map_what_never_comes(void)
{
	enum { SIZE = 1 << 20 };
	void *first = (void *)0x10000;
	int file = hanging_file_open(SIZE);

	return file >= 0 && mmap(first, SIZE, PROT_READ | PROT_EXEC,
				 MAP_PRIVATE | MAP_FIXED_NOREPLACE, file, 0) == first;
}

TEST(attach_remote, code_that_never_comes_is_not_waited_for)
{
	struct vmm_process process = { 0 };
	struct remote_code code;
	int ends[2], made = -1;
	char path[32];

	REQUIRE_EQUAL(pipe2(ends, O_CLOEXEC), 0);
	fflush(NULL);
	process.pid = fork();
	if (!process.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
		made = map_what_never_comes();
		_exit(write(ends[1], &made, sizeof(made)) < 0 ? 1 : pause());
	}
	CHECK_EQUAL(read(ends[0], &made, sizeof(made)), sizeof(made));
	snprintf(path, sizeof(path), "/proc/%d", process.pid);
	process.directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	alarm(250); /* ends a test that waits forever */
	if (made)
		CHECK_EQUAL(remote_code_find(&code, &process), 0);
	alarm(0);
	close(process.directory);
	kill(process.pid, SIGKILL);
	waitpid(process.pid, NULL, 0);
	close(ends[0]);
	close(ends[1]);
	if (!made)
		SKIP("FUSE cannot be mounted here, which requires root");
}
