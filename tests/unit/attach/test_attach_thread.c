/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of a thread before it makes a call: its stack, state, filters and registers. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/remote_call.h"
#include "vmm/attach/seccomp_filter.h"
#include "vmm/attach/thread_stop.h"
#include "vmm/attach/vcpu_stop.h"

static bool parse_stack(const char *maps, uint64_t rsp, uint64_t fs, struct thread_stack *stack)
{
	char *text = strdup(maps);
	FILE *file = fmemopen(text, strlen(text), "r");
	bool found = thread_stack_parse(stack, file, rsp, fs);

	fclose(file);
	free(text);
	return found;
}

TEST(attach_thread, own_stacks_of_threads_are_recognized)
{
	static const char maps[] =
		"c000000000-c000400000 rw-p 00000000 00:00 0 \n"
		"7f0000000000-7f0000001000 ---p 00000000 00:00 0 \n"
		"7f0000001000-7f0000801000 rw-p 00000000 00:00 0 \n"
		"7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                 [stack]\n";
	struct thread_stack stack;

	/* The C library's: with the control block above. */
	CHECK(parse_stack(maps, 0x7f00007ff000, 0x7f00008006c0, &stack));
	CHECK(stack.own && stack.start == 0x7f0000001000 && stack.end == 0x7f0000801000);
	CHECK(thread_stack_has(&stack, 0x7f0000001000) &&
	      !thread_stack_has(&stack, 0x7f0000801000));
	/* The first thread's. */
	CHECK(parse_stack(maps, 0x7ffd00020000, 0x7f00008006c0, &stack) && stack.own);
	/* A goroutine's, whether the C library created its thread or not. */
	CHECK(parse_stack(maps, 0xc000080000, 0x7f00008006c0, &stack) && !stack.own);
	CHECK(parse_stack(maps, 0xc000080000, 0, &stack) && !stack.own);
	/* Above the control block. */
	CHECK(parse_stack(maps, 0x7f00008007f0, 0x7f00008006c0, &stack) && !stack.own);
	CHECK(!parse_stack(maps, 0x7f0000900000, 0x7f00008006c0, &stack));
	CHECK(!thread_stack_has(&stack, 0));
}

static ucontext_t caller;

/* Checks whether this thread is on its own stack. */
static void check_stack(bool *own)
{
	struct vmm_process self = {
		.pid = getpid(), .directory = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
	};
	uint64_t fs;
	struct thread_stack stack;

	__asm__("movq %%fs:0, %0" : "=r"(fs));
	*own = thread_stack_find(&stack, &self, gettid(), (uintptr_t)__builtin_frame_address(0),
				 fs) &&
	       stack.own;
	close(self.directory);
}

static void *check_in_thread(void *own)
{
	check_stack(own);
	return NULL;
}

static void check_in_context(unsigned int upper, unsigned int lower)
{
	check_stack((bool *)((uintptr_t)upper << 32 | lower));
}

TEST(attach_thread, a_thread_that_switches_stacks_is_detected)
{
	bool first = false, thread = false, switched = true;
	size_t size = 256 << 10;
	ucontext_t context;
	pthread_t id;

	check_stack(&first);
	CHECK(first);
	REQUIRE_EQUAL(pthread_create(&id, NULL, check_in_thread, &thread), 0);
	pthread_join(id, NULL);
	CHECK(thread);
	REQUIRE(!getcontext(&context));
	context.uc_stack = (stack_t){ .ss_sp = malloc(size), .ss_size = size };
	context.uc_link = &caller;
	makecontext(&context, (void (*)(void))check_in_context, 2,
		    (unsigned int)((uintptr_t)&switched >> 32), (unsigned int)(uintptr_t)&switched);
	CHECK(!swapcontext(&caller, &context));
	CHECK(!switched);
	free(context.uc_stack.ss_sp);
}

TEST(attach_thread, guest_time_of_a_process_is_read)
{
	/* Fields 3 to 44 of /proc/PID/stat are their own numbers. */
	char text[512] = "4711 (a) 9 (b) R";

	CHECK_EQUAL(proc_parse_guest_ticks(text), 0);
	for (int field = 4; field <= 44; field++)
		snprintf(text + strlen(text), 8, " %d", field);
	CHECK_EQUAL(proc_parse_guest_ticks(text), 43);
	CHECK_EQUAL(proc_parse_guest_ticks(""), 0);
}

TEST(attach_thread, the_status_of_a_thread_is_read)
{
	struct thread_status status;
	struct thread_cpu_times times;

	REQUIRE(thread_status_parse(
		"Name:\tCPU 0/KVM\nUmask:\t0022\nState:\tR (running)\nSeccomp:\t2\n"
		"Seccomp_filters:\t3\nnonvoluntary_ctxt_switches:\t7\nx86_Thread_features:\tshstk \n",
		&status));
	CHECK_EQUAL(status.state, 'R');
	CHECK_EQUAL(status.seccomp, SECCOMP_MODE_FILTER);
	CHECK_EQUAL(status.filters, 3);
	CHECK(status.shadow_stack);
	/* A name may contain anything but a newline. */
	REQUIRE(thread_status_parse(
		"Name:\tState:\tR\nState:\tS (sleeping)\nSeccomp:\t2\nnonvoluntary_ctxt_switches:\t7\n",
		&status));
	CHECK_EQUAL(status.state, 'S');
	CHECK_EQUAL(status.filters, 1);
	CHECK(!status.shadow_stack);
	CHECK(!thread_status_parse("Name:\tx\n", &status));
	CHECK(!thread_status_parse("Name:\tx\nState:\tR (running)\nGroups:\t1 2 3", &status));
	REQUIRE(thread_cpu_times_parse("138832 101419 2\n", &times));
	CHECK_EQUAL(times.ran, 138832);
	CHECK_EQUAL(times.waited, 101419);
	CHECK(!thread_cpu_times_parse("", &times));
}

/* The groups precede the needed fields, which must not be taken for absent. */
TEST(attach_thread, the_status_of_a_thread_with_many_groups_is_read)
{
	static const char rest[] =
		"\nSeccomp:\t2\nSeccomp_filters:\t3\nnonvoluntary_ctxt_switches:\t7\n";
	static const unsigned int counts[] = { 3000, 30000 };
	struct thread_status status;

	for (int i = 0; i < 2; i++) {
		int fd = memfd_create("status", MFD_CLOEXEC);

		dprintf(fd, "Name:\tx\nState:\tR (running)\nGroups:\t");
		for (unsigned int group = 0; group < counts[i]; group++)
			dprintf(fd, "%u ", 1000 + group);
		CHECK_EQUAL(write(fd, rest, strlen(rest)), (ssize_t)strlen(rest));
		CHECK_EQUAL(thread_status_read(fd, &status), !i);
		close(fd);
		CHECK_EQUAL(status.seccomp, SECCOMP_MODE_FILTER);
		CHECK_EQUAL(status.filters, 3);
	}
}

/* Allows ioctl() with request 7 only. */
TEST(attach_thread, filters_are_evaluated)
{
	static const struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, SYS_ioctl),
		BPF_STMT(BPF_ST, 3),
		BPF_STMT(BPF_LDX | BPF_W | BPF_MEM, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_IMM, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 2),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 7, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_LD | BPF_W | BPF_IMM, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_A, 0),
	};
	const size_t count = sizeof(filter) / sizeof(filter[0]);
	struct seccomp_data call = { .nr = SYS_ioctl, .arch = AUDIT_ARCH_X86_64, .args = { 0, 7 } };

	CHECK_EQUAL(seccomp_filter_run(filter, count, &call), SECCOMP_RET_ALLOW);
	call.args[1] = 8;
	CHECK_EQUAL(seccomp_filter_run(filter, count, &call), SECCOMP_RET_ERRNO | EPERM);
	call.args[1] = 7;
	call.nr = SYS_read;
	CHECK_EQUAL(seccomp_filter_run(filter, count, &call), SECCOMP_RET_ERRNO | EPERM);
	call.nr = SYS_ioctl;
	call.arch = AUDIT_ARCH_I386;
	CHECK_EQUAL(seccomp_filter_run(filter, count, &call), SECCOMP_RET_KILL_PROCESS);
	CHECK_EQUAL(seccomp_filter_run(filter, 1, &call), SECCOMP_RET_KILL_PROCESS);
}

/* Starts a process that has FILTER and waits. Returns its PID. */
static pid_t start_filtered(struct sock_filter *filter, unsigned short count)
{
	const struct sock_fprog program = { .len = count, .filter = filter };
	int ready[2];
	pid_t child;
	char byte;

	if (pipe2(ready, O_CLOEXEC))
		return -1;
	fflush(NULL);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		if (!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
			byte = write(ready[1], "x", 1) == 1;
		for (;;)
			pause();
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		child = -1;
	close(ready[0]);
	return child;
}

TEST(attach_thread, encrypted_registers_are_detected)
{
	struct kvm_sregs special = { .cr0 = 0x80050033, .efer = 0xd01, .cr3 = 0x1000 };

	CHECK(!vcpu_stop_registers_hidden(&special));
	special.cr3 = 0;
	CHECK(vcpu_stop_registers_hidden(&special));
	special.cr0 = 0x60000010;
	CHECK(vcpu_stop_registers_hidden(&special));
	special.efer = 0;
	CHECK(!vcpu_stop_registers_hidden(&special));
}

/* Checks whether its thread may make our calls, and ends it. */
static int check_filtered(struct sock_filter *filter, unsigned short count)
{
	const struct vcpu_stop_target target = { .limit = 1 };
	struct vcpu_thread thread = { .fd = 5 };
	pid_t child = start_filtered(filter, count);
	struct thread_status status = { 0 };
	uint64_t stopped = 0, again;
	char path[32];
	int fd, error = -EIO;

	if (child < 0)
		return error;
	snprintf(path, sizeof(path), "/proc/%d/status", child);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	thread.vcpu.tid = child;
	if (thread_status_read(fd, &status) && status.seccomp == SECCOMP_MODE_FILTER) {
		error = vcpu_stop_check(&target, &thread, &status, &stopped);
		CHECK(stopped);
		/* The result is cached. */
		CHECK_EQUAL(vcpu_stop_check(&target, &thread, &status, &again), error);
		CHECK_EQUAL(again, 0);
	}
	if (!error)
		CHECK_EQUAL(thread.filters, status.filters);
	close(fd);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return error;
}

/* A call that would kill the VM is not made. */
TEST(attach_thread, a_thread_whose_filter_would_kill_it_is_left_alone)
{
	static struct sock_filter allows[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	static struct sock_filter kills[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	int allowed = check_filtered(allows, 1);

	if (allowed == -EIO || allowed == -EPERM)
		SKIP("filters cannot be installed or read here: %s", error_message());
	CHECK_EQUAL(allowed, 0);
	CHECK_EQUAL(check_filtered(kills, sizeof(kills) / sizeof(kills[0])), -EACCES);
	CHECK(strstr(error_message(), "would be killed"));
}

static void *spin(void *tid)
{
	__atomic_store_n((pid_t *)tid, gettid(), __ATOMIC_RELAXED);
	for (;;)
		;
	return NULL;
}

/* A process that ends while one of its threads is stopped is reaped normally by its parent. */
TEST(attach_thread, a_thread_killed_during_a_stop_is_reaped)
{
	pid_t *tid =
		mmap(NULL, sizeof(*tid), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct thread_stop stop;
	siginfo_t info = { 0 };
	pthread_t thread;
	pid_t child;

	REQUIRE(tid != MAP_FAILED);
	fflush(NULL);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
		if (pthread_create(&thread, NULL, spin, tid))
			*tid = -1;
		for (;;)
			pause();
	}
	while (!__atomic_load_n(tid, __ATOMIC_RELAXED))
		usleep(1000);
	REQUIRE_EQUAL(thread_stop(&stop, *tid), 0);
	kill(child, SIGKILL);
	thread_resume(&stop);
	/* The kernel has reported the thread's end before the process's. */
	CHECK_EQUAL(waitid(P_PID, (id_t)*tid, &info, WEXITED | WNOHANG | __WALL), -1);
	CHECK_EQUAL(errno, ECHILD);
	CHECK_EQUAL(waitpid(child, NULL, 0), child);
	munmap(tid, sizeof(*tid));
}
