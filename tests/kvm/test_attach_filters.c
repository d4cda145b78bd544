/* SPDX-License-Identifier: Apache-2.0 */
/* The seccomp filters of another process's thread, as reported by BPF and by ptrace(2). */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/seccomp_filter.h"
#include "vmm/attach/thread_stop.h"

#define CALLS 2

static const struct seccomp_data calls[CALLS] = {
	{ .nr = SYS_ioctl, .arch = AUDIT_ARCH_X86_64, .args = { 9, KVM_GET_REGS } },
	{ .nr = SYS_rt_sigreturn, .arch = AUDIT_ARCH_X86_64 },
};

static void add_filter(struct sock_filter *filter, unsigned short length)
{
	const struct sock_fprog program = { .len = length, .filter = filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(1);
}

/* The longest allowed filter. */
static void let_all_pass(void)
{
	static struct sock_filter filter[BPF_MAXINSNS];

	for (size_t i = 0; i < BPF_MAXINSNS; i++)
		filter[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_IMM, 1);
	filter[BPF_MAXINSNS - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	add_filter(filter, BPF_MAXINSNS);
}

static void kill_for_registers(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)KVM_GET_REGS, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	add_filter(filter, sizeof(filter) / sizeof(filter[0]));
}

struct process {
	pid_t pid;
	int ready; /* becomes readable when the filters are installed */
};

static void start(struct process *process, void (*first)(void), void (*second)(void))
{
	int ready[2];
	char byte;

	process->pid = -1;
	REQUIRE_EQUAL(pipe(ready), 0);
	process->pid = fork();
	REQUIRE(process->pid >= 0);
	if (!process->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		first();
		if (second)
			second();
		if (write(ready[1], "", 1) < 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	CHECK_EQUAL(read(ready[0], &byte, 1), 1);
	close(ready[0]);
}

static void end(const struct process *process)
{
	if (process->pid <= 0)
		return;
	kill(process->pid, SIGKILL);
	waitpid(process->pid, NULL, 0);
}

/* Our children have these filters as well; in a container there may be some. */
static unsigned int own_filters(void)
{
	struct thread_status status = { 0 };
	int fd = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);

	CHECK(thread_status_read(fd, &status));
	close(fd);
	return status.filters;
}

/* -EPERM if the filters may not be read here. */
static int check_by_ptrace(const struct process *process)
{
	struct thread_stop stop;
	int error = thread_stop(&stop, process->pid);

	if (error)
		return -EPERM;
	error = seccomp_filters_check(process->pid, calls, CALLS);
	thread_resume(&stop);
	return error;
}

static void check_both(struct filter_reader *reader, const struct process *process,
		       unsigned int filters, int expected)
{
	int by_ptrace = check_by_ptrace(process);

	CHECK_EQUAL(
		filter_reader_check(reader, process->pid, own_filters() + filters, calls, CALLS),
		expected);
	CHECK(by_ptrace == expected || by_ptrace == -EPERM);
}

TEST(attach_filters, are_the_same_by_bpf_as_by_ptrace)
{
	struct filter_reader *reader;
	struct process process;
	int error = filter_reader_open(&reader);

	if (error == -EACCES || error == -ENOTSUP)
		SKIP("BPF cannot be used here: %s", error_message());
	REQUIRE_EQUAL(error, 0);
	start(&process, let_all_pass, NULL);
	check_both(reader, &process, 1, 0);
	/* The thread has filters other than those counted. */
	CHECK_EQUAL(filter_reader_check(reader, process.pid, own_filters() + 2, calls, CALLS),
		    -EPERM);
	end(&process);
	CHECK_EQUAL(filter_reader_check(reader, process.pid, own_filters() + 1, calls, CALLS),
		    -EPERM);
	start(&process, kill_for_registers, let_all_pass);
	check_both(reader, &process, 2, -EACCES);
	end(&process);
	start(&process, let_all_pass, kill_for_registers);
	check_both(reader, &process, 2, -EACCES);
	end(&process);
	/* A thread without filters has no records. */
	CHECK_EQUAL(filter_reader_check(reader, getpid(), 0, calls, CALLS), -EPERM);
	filter_reader_close(reader);
}

/* As in a service's sandbox. */
static int check_with_own_filters(const struct process *process)
{
	struct filter_reader *reader;
	int error;

	let_all_pass();
	error = filter_reader_open(&reader);
	if (error)
		return error == -EACCES || error == -ENOTSUP ? 2 : 1;
	if (check_by_ptrace(process) != -EPERM)
		return 1;
	/* This process has one more. */
	return filter_reader_check(reader, process->pid, own_filters(), calls, CALLS) ? 1 : 0;
}

TEST(attach_filters, are_read_by_a_process_with_filters)
{
	struct process process;
	int status = -1;
	pid_t child;

	start(&process, let_all_pass, NULL);
	child = fork();
	if (!child)
		_exit(check_with_own_filters(&process));
	CHECK_EQUAL(waitpid(child, &status, 0), child);
	end(&process);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
		SKIP("BPF cannot be used here");
	CHECK_EQUAL(status, 0);
}
