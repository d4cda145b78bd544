// SPDX-License-Identifier: Apache-2.0
/* Stopping a thread of another process and having it make a call, and dying meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/hanging_file.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/remote_call.h"
#include "vmm/attach/seccomp_filter.h"
#include "vmm/attach/stop_sampler.h"
#include "vmm/attach/thread_stack.h"
#include "vmm/attach/thread_status.h"
#include "vmm/attach/vcpu_stop.h"

/* Registers and memory around a call: what the other process has to find as it was. */
struct kept {
	uint64_t general[12]; /* rbx, rbp, rdi, rsi, rdx, r8, r9, r10, r12 to r15 */
	uint64_t red_zone[2];
	uint64_t vectors[32];
};

/* Shared by the processes of a test. */
struct shared {
	struct kept before, after; /* at the start: the assembly knows where */
	int64_t result;
	volatile uint64_t rounds, bad, interrupted, signals, calls;
	int epoll, pipe; /* 5 bytes lie in that */
	pid_t victim;
};

/* epoll_wait() of a millisecond with known values in all registers that a call keeps. */
static void call_with_registers(struct shared *shared)
{
	__asm__ volatile("leaq -128(%%rsp), %%rsp\n\t"
			 "pushq %%rbp\n\t"
			 "pushq %%rcx\n\t"
			 "movups 112(%%rcx), %%xmm0\n\t"
			 "movups 128(%%rcx), %%xmm7\n\t"
			 "movups 352(%%rcx), %%xmm15\n\t"
			 "movq 96(%%rcx), %%rax\n\t"
			 "movq %%rax, -8(%%rsp)\n\t"
			 "movq 104(%%rcx), %%rax\n\t"
			 "movq %%rax, -128(%%rsp)\n\t"
			 "movq (%%rcx), %%rbx\n\t"
			 "movq 8(%%rcx), %%rbp\n\t"
			 "movq 16(%%rcx), %%rdi\n\t"
			 "movq 24(%%rcx), %%rsi\n\t"
			 "movq 32(%%rcx), %%rdx\n\t"
			 "movq 40(%%rcx), %%r8\n\t"
			 "movq 48(%%rcx), %%r9\n\t"
			 "movq 56(%%rcx), %%r10\n\t"
			 "movq 64(%%rcx), %%r12\n\t"
			 "movq 72(%%rcx), %%r13\n\t"
			 "movq 80(%%rcx), %%r14\n\t"
			 "movq 88(%%rcx), %%r15\n\t"
			 "movl $232, %%eax\n\t"
			 "syscall\n\t"
			 "movq (%%rsp), %%rcx\n\t"
			 "addq $368, %%rcx\n\t"
			 "movq %%rbx, (%%rcx)\n\t"
			 "movq %%rbp, 8(%%rcx)\n\t"
			 "movq %%rdi, 16(%%rcx)\n\t"
			 "movq %%rsi, 24(%%rcx)\n\t"
			 "movq %%rdx, 32(%%rcx)\n\t"
			 "movq %%r8, 40(%%rcx)\n\t"
			 "movq %%r9, 48(%%rcx)\n\t"
			 "movq %%r10, 56(%%rcx)\n\t"
			 "movq %%r12, 64(%%rcx)\n\t"
			 "movq %%r13, 72(%%rcx)\n\t"
			 "movq %%r14, 80(%%rcx)\n\t"
			 "movq %%r15, 88(%%rcx)\n\t"
			 "movq -8(%%rsp), %%rdx\n\t"
			 "movq %%rdx, 96(%%rcx)\n\t"
			 "movq -128(%%rsp), %%rdx\n\t"
			 "movq %%rdx, 104(%%rcx)\n\t"
			 "movups %%xmm0, 112(%%rcx)\n\t"
			 "movups %%xmm7, 128(%%rcx)\n\t"
			 "movups %%xmm15, 352(%%rcx)\n\t"
			 "movq %%rax, 368(%%rcx)\n\t"
			 "popq %%rcx\n\t"
			 "popq %%rbp\n\t"
			 "leaq 128(%%rsp), %%rsp"
			 : "+c"(shared)
			 :
			 : "rax", "rbx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
			   "r15", "xmm0", "xmm7", "xmm15", "memory", "cc");
}

static struct shared *shared;

static void on_signal(int number)
{
	shared->signals++;
}

/* A mask, and a stack for signals, that have to stay as they are, too. */
static bool setting_is_kept(const stack_t *stack)
{
	stack_t now;
	sigset_t mask;

	sigprocmask(SIG_BLOCK, NULL, &mask);
	sigaltstack(NULL, &now);
	return sigismember(&mask, SIGUSR2) && !sigismember(&mask, SIGRTMIN) && now.ss_sp == stack->ss_sp &&
	       now.ss_size == stack->ss_size;
}

static void prepare(stack_t *stack)
{
	struct sigaction action = { .sa_handler = on_signal };
	static char signals[1 << 16];
	sigset_t mask;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	*stack = (stack_t){ .ss_sp = signals, .ss_size = sizeof(signals) };
	sigaltstack(stack, NULL);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR2);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	sigaction(SIGRTMIN, &action, NULL);
}

static _Noreturn void be_victim(void)
{
	struct epoll_event event;
	uint64_t *words = (uint64_t *)&shared->before;
	stack_t stack;

	prepare(&stack);
	for (;;) {
		for (size_t i = 0; i < sizeof(shared->before) / sizeof(*words); i++)
			words[i] = 0x0123456789abcdefull * (shared->rounds + i + 1);
		shared->before.general[2] = (uint64_t)shared->epoll;
		shared->before.general[3] = (uintptr_t)&event;
		shared->before.general[4] = 1;
		shared->before.general[7] = 1;
		memcpy(&shared->after, &shared->before, sizeof(shared->after));
		call_with_registers(shared);
		shared->bad += memcmp(&shared->before, &shared->after, sizeof(shared->before)) != 0;
		shared->bad += shared->result != 0 && shared->result != -EINTR;
		shared->bad += !setting_is_kept(&stack);
		shared->interrupted += shared->result == -EINTR;
		shared->rounds++;
	}
}

/* Gets its registers back and goes on, or dies of it. 0: the call was made and right. */
static int call_once(const struct remote_code *code, struct remote *remote)
{
	struct thread_stop stop;
	int error = thread_stop(&stop, shared->victim), waiting = 0;

	if (error)
		return error;
	error = -EAGAIN;
	if (stop.registers.orig_rax == SYS_epoll_wait && (int)stop.registers.rax == -EINTR) {
		error = remote_open(remote, &stop, code, 0);
		if (!error)
			error = remote_ioctl(remote, shared->pipe, FIONREAD, &waiting, sizeof(waiting));
		remote_close(remote);
		if (!error && waiting != 5)
			shared->bad++;
	}
	thread_go_on(&stop);
	return error;
}

/* A thread that is stopped again before it did anything comes to no call. */
static void let_it_run(void)
{
	usleep((useconds_t)(lrand48() % 100));
}

static _Noreturn void be_tracer(const struct remote_code *code, struct remote *remote)
{
	for (;;) {
		shared->calls += !call_once(code, remote);
		let_it_run();
	}
}

/*
 * Whoever waits for a child that a thread of its own traces is told of its stops, too, and takes them from
 * that thread (wait_task_stopped() in kernel/exit.c): they are left.
 */
static bool has_ended(void)
{
	siginfo_t info = { 0 };

	return waitid(P_PID, (id_t)shared->victim, &info, WEXITED | WNOHANG | WNOWAIT) ||
	       info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
}

/* It goes on: false, if it does not any more. */
static bool goes_on(void)
{
	uint64_t rounds = shared->rounds;

	while (shared->rounds < rounds + 2) {
		if (has_ended())
			return false;
		usleep(200);
	}
	return true;
}

static void start_victim(struct remote_code *code)
{
	struct vmm_process process = { 0 };
	char path[32];
	int ends[2];
	pid_t victim;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(shared != MAP_FAILED);
	_Static_assert(offsetof(struct shared, after) == 368 && offsetof(struct shared, result) == 736,
		       "assembly");
	REQUIRE_EQUAL(pipe2(ends, O_CLOEXEC), 0);
	CHECK_EQUAL(write(ends[1], "12345", 5), 5);
	shared->pipe = ends[0];
	shared->epoll = epoll_create1(EPOLL_CLOEXEC);
	fflush(NULL);
	victim = fork();
	if (!victim)
		be_victim();
	shared->victim = victim;
	close(ends[0]);
	close(ends[1]);
	close(shared->epoll);
	snprintf(path, sizeof(path), "/proc/%d", shared->victim);
	process.pid = shared->victim;
	process.directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK_EQUAL(remote_code_find(code, &process), 0);
	close(process.directory);
	CHECK(goes_on()); /* it takes signals by now */
}

static void end_victim(void)
{
	kill(shared->victim, SIGKILL);
	waitpid(shared->victim, NULL, 0);
	munmap(shared, sizeof(*shared));
}

TEST(attach_remote, a_stopped_thread_makes_calls_and_keeps_everything)
{
	struct remote *remote = calloc(1, sizeof(*remote));
	struct remote_code code;
	unsigned int made = 0;

	REQUIRE(remote);
	start_victim(&code);
	for (; made < 200 && !has_ended(); let_it_run())
		made += !call_once(&code, remote);
	CHECK_EQUAL(made, 200);
	CHECK(goes_on());
	CHECK_EQUAL(shared->bad, 0);
	CHECK(shared->interrupted > 0);
	end_victim();
	free(remote);
}

/* Killed at any instruction, the other goes on, with all that it had, and with the signals that it was to
 * get. */
TEST(attach_remote, whoever_stops_it_may_be_killed_at_any_time)
{
	struct remote *remote = calloc(1, sizeof(*remote));
	const union sigval none = { 0 };
	struct remote_code code;
	uint64_t sent = 0;
	bool lives = true;

	REQUIRE(remote);
	start_victim(&code);
	srand48(getpid());
	for (int i = 0; i < 200 && lives; i++) {
		pid_t tracer = fork();

		if (!tracer)
			be_tracer(&code, remote);
		usleep((useconds_t)(lrand48() % 4000));
		sent += !sigqueue(shared->victim, SIGRTMIN, none);
		usleep((useconds_t)(lrand48() % 500));
		kill(tracer, SIGKILL);
		waitpid(tracer, NULL, 0);
		lives = goes_on();
	}
	CHECK(lives);
	CHECK_EQUAL(shared->bad, 0);
	CHECK_EQUAL(shared->signals, sent);
	if (shared->calls < 100)
		FAIL_TEST("only %llu calls were made", (unsigned long long)shared->calls);
	end_victim();
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

/* The first code of a process, as /proc lists it. */
static bool map_what_never_comes(void)
{
	enum { SIZE = 1 << 20 };
	void *first = (void *)0x10000;
	int file = hanging_file_open(SIZE);

	return file >= 0 &&
	       mmap(first, SIZE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED_NOREPLACE, file, 0) == first;
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
	alarm(60); /* who waits is ended */
	if (made)
		CHECK_EQUAL(remote_code_find(&code, &process), 0);
	alarm(0);
	close(process.directory);
	kill(process.pid, SIGKILL);
	waitpid(process.pid, NULL, 0);
	close(ends[0]);
	close(ends[1]);
	if (!made)
		SKIP("FUSE can not be mounted here, which takes root");
}

/* Whose the stack is. */

static bool parse_stack(const char *maps, uint64_t rsp, uint64_t fs, struct thread_stack *stack)
{
	FILE *file = fmemopen((char *)maps, strlen(maps), "r");
	bool found = thread_stack_parse(stack, file, rsp, fs);

	fclose(file);
	return found;
}

TEST(attach_remote, stacks_that_a_thread_has_for_itself_are_told_from_others)
{
	static const char maps[] =
		"c000000000-c000400000 rw-p 00000000 00:00 0 \n"
		"7f0000000000-7f0000001000 ---p 00000000 00:00 0 \n"
		"7f0000001000-7f0000801000 rw-p 00000000 00:00 0 \n"
		"7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                 [stack]\n";
	struct thread_stack stack;

	/* Of the C library: its control block lies above. */
	CHECK(parse_stack(maps, 0x7f00007ff000, 0x7f00008006c0, &stack));
	CHECK(stack.own && stack.start == 0x7f0000001000 && stack.end == 0x7f0000801000);
	CHECK(thread_stack_has(&stack, 0x7f0000001000) && !thread_stack_has(&stack, 0x7f0000801000));
	/* Of the first thread. */
	CHECK(parse_stack(maps, 0x7ffd00020000, 0x7f00008006c0, &stack) && stack.own);
	/* A goroutine's, whether or not the C library made its thread. */
	CHECK(parse_stack(maps, 0xc000080000, 0x7f00008006c0, &stack) && !stack.own);
	CHECK(parse_stack(maps, 0xc000080000, 0, &stack) && !stack.own);
	/* In front of it. */
	CHECK(parse_stack(maps, 0x7f00008007f0, 0x7f00008006c0, &stack) && !stack.own);
	CHECK(!parse_stack(maps, 0x7f0000900000, 0x7f00008006c0, &stack));
	CHECK(!thread_stack_has(&stack, 0));
}

static ucontext_t caller;

/* Is the stack here the thread's own? */
static void look_at_stack(bool *own)
{
	struct vmm_process self = { .pid = getpid(),
				    .directory = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
	uint64_t fs;
	struct thread_stack stack;

	__asm__("movq %%fs:0, %0" : "=r"(fs));
	*own = thread_stack_find(&stack, &self, gettid(), (uintptr_t)__builtin_frame_address(0), fs) &&
	       stack.own;
	close(self.directory);
}

static void *look_from_thread(void *own)
{
	look_at_stack(own);
	return NULL;
}

static void look_from_context(unsigned int upper, unsigned int lower)
{
	look_at_stack((bool *)((uintptr_t)upper << 32 | lower));
}

TEST(attach_remote, a_thread_that_switches_stacks_is_noticed)
{
	bool first = false, thread = false, switched = true;
	size_t size = 256 << 10;
	ucontext_t context;
	pthread_t id;

	look_at_stack(&first);
	CHECK(first);
	REQUIRE_EQUAL(pthread_create(&id, NULL, look_from_thread, &thread), 0);
	pthread_join(id, NULL);
	CHECK(thread);
	REQUIRE(!getcontext(&context));
	context.uc_stack = (stack_t){ .ss_sp = malloc(size), .ss_size = size };
	context.uc_link = &caller;
	makecontext(&context, (void (*)(void))look_from_context, 2,
		    (unsigned int)((uintptr_t)&switched >> 32), (unsigned int)(uintptr_t)&switched);
	CHECK(!swapcontext(&caller, &context));
	CHECK(!switched);
	free(context.uc_stack.ss_sp);
}

TEST(attach_remote, the_status_of_a_thread_is_read)
{
	struct thread_status status;
	struct thread_times times;

	REQUIRE(thread_status_parse(
		"Name:\tCPU 0/KVM\nUmask:\t0022\nState:\tR (running)\nSeccomp:\t2\n"
		"Seccomp_filters:\t3\nnonvoluntary_ctxt_switches:\t7\nx86_Thread_features:\tshstk \n",
		&status));
	CHECK_EQUAL(status.state, 'R');
	CHECK_EQUAL(status.seccomp, SECCOMP_MODE_FILTER);
	CHECK_EQUAL(status.filters, 3);
	CHECK(status.shadow_stack);
	/* A name may be anything but a line's end. */
	REQUIRE(thread_status_parse(
		"Name:\tState:\tR\nState:\tS (sleeping)\nSeccomp:\t2\nnonvoluntary_ctxt_switches:\t7\n",
		&status));
	CHECK_EQUAL(status.state, 'S');
	CHECK_EQUAL(status.filters, 1);
	CHECK(!status.shadow_stack);
	CHECK(!thread_status_parse("Name:\tx\n", &status));
	CHECK(!thread_status_parse("Name:\tx\nState:\tR (running)\nGroups:\t1 2 3", &status));
	REQUIRE(thread_times_parse("138832 101419 2\n", &times));
	CHECK_EQUAL(times.ran, 138832);
	CHECK_EQUAL(times.waited, 101419);
	CHECK(!thread_times_parse("", &times));
}

/* Groups stand before what is asked for: it is not taken for absent. */
TEST(attach_remote, the_status_of_a_thread_with_many_groups_is_read)
{
	static const char rest[] = "\nSeccomp:\t2\nSeccomp_filters:\t3\nnonvoluntary_ctxt_switches:\t7\n";
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

/* Lets ioctl() pass, but of request 7 only; nothing else. */
TEST(attach_remote, filters_are_understood)
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

/* A process that has FILTER and waits; its id. */
static pid_t start_filtered(const struct sock_filter *filter, unsigned short count)
{
	const struct sock_fprog program = { .len = count, .filter = (struct sock_filter *)filter };
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

TEST(attach_remote, registers_that_no_guest_has_are_not_believed)
{
	struct kvm_sregs special = { .cr0 = 0x80050033, .efer = 0xd01, .cr3 = 0x1000 };

	CHECK(!vcpu_stop_is_hidden(&special));
	special.cr3 = 0;
	CHECK(vcpu_stop_is_hidden(&special));
	special.cr0 = 0x60000010;
	CHECK(vcpu_stop_is_hidden(&special));
	special.efer = 0;
	CHECK(!vcpu_stop_is_hidden(&special));
}

/* May its thread make our calls? It is ended. */
static int check_filtered(const struct sock_filter *filter, unsigned short count)
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
		/* What was found out once is known. */
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

/* What would kill the VM is known before it is done. */
TEST(attach_remote, a_thread_whose_filter_would_kill_it_is_left_alone)
{
	static const struct sock_filter allows[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	static const struct sock_filter kills[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	int allowed = check_filtered(allows, 1);

	if (allowed == -EIO || allowed == -EPERM)
		SKIP("filters can not be had or not be read here: %s", error_message());
	CHECK_EQUAL(allowed, 0);
	CHECK_EQUAL(check_filtered(kills, sizeof(kills) / sizeof(kills[0])), -EACCES);
	CHECK(strstr(error_message(), "would be killed"));
}

static void *spin(void *tid)
{
	*(volatile pid_t *)tid = gettid();
	for (;;)
		;
	return NULL;
}

/* A process that ends while one of its threads is stopped has ended for whoever waits for it, too. */
TEST(attach_remote, a_thread_that_is_killed_while_it_is_stopped_is_buried)
{
	volatile pid_t *tid =
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
		if (pthread_create(&thread, NULL, spin, (void *)tid))
			*tid = -1;
		for (;;)
			pause();
	}
	while (!*tid)
		usleep(1000);
	REQUIRE_EQUAL(thread_stop(&stop, *tid), 0);
	kill(child, SIGKILL);
	thread_go_on(&stop);
	/* The kernel has told of the thread's end before it tells of the process's. */
	CHECK_EQUAL(waitid(P_PID, (id_t)*tid, &info, WEXITED | WNOHANG | __WALL), -1);
	CHECK_EQUAL(errno, ECHILD);
	CHECK_EQUAL(waitpid(child, NULL, 0), child);
	munmap((void *)tid, sizeof(*tid));
}

static void write_of_thread(const struct vmm_process *process, pid_t tid, const char *name, const char *text)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "task/%d/%s", tid, name);
	fd = openat(process->directory, path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	CHECK_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* What /proc says of a thread, as a test would have it: that it runs, whatever it does. */
static void add_running(const struct vmm_process *process, pid_t tid)
{
	char path[64];

	snprintf(path, sizeof(path), "task/%d", tid);
	mkdirat(process->directory, path, 0700);
	write_of_thread(process, tid, "status",
			"Name:\tx\nState:\tR (running)\nSeccomp:\t0\nSeccomp_filters:\t0\n"
			"nonvoluntary_ctxt_switches:\t0\n");
}

static void open_running(struct vmm_process *process, pid_t tid, char *directory)
{
	REQUIRE(mkdtemp(directory));
	process->pid = tid;
	process->directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	mkdirat(process->directory, "task", 0700);
	add_running(process, tid);
}

static void remove_running(const struct vmm_process *process, const char *directory)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): a test's own words */
	close(process->directory);
}

static void lost_some(void *context, unsigned int id, uint64_t count)
{
	*(uint64_t *)context += count;
}

/* More looks than there is time for: who asks for what they came to, takes vCPUs away or ends them gets its
 * turn, and so does the other process. */
TEST(attach_remote, looks_that_are_overdue_hold_nobody_up)
{
	char directory[] = "/tmp/kvmscope-test-XXXXXX";
	struct vmm_process process = { 0 };
	struct stop_sampler *sampler;
	struct attach_stops stops = { 0 };
	struct remote_code code;
	uint64_t lost = 0;

	start_victim(&code);
	open_running(&process, shared->victim, directory);
	{
		const struct vcpu_stop_target target = { .process = &process, .code = code, .limit = 200000 };

		REQUIRE_EQUAL(stop_sampler_start(&sampler, &target, 1000000), 0);
	}
	for (unsigned int id = 0; id < 32; id++) {
		const struct vmm_vcpu vcpu = { .id = id, .tid = shared->victim };

		CHECK_EQUAL(stop_sampler_add(sampler, &vcpu), 0);
	}
	while (stops.count < 1000) {
		stop_sampler_count(sampler, &stops);
		stop_sampler_lost(sampler, lost_some, &lost);
		while (stop_sampler_next(sampler))
			stop_sampler_taken(sampler);
	}
	CHECK(goes_on());
	for (unsigned int id = 0; id < 32; id++)
		stop_sampler_remove(sampler, id);
	stop_sampler_count(sampler, &stops);
	CHECK(stops.total >= stops.longest);
	CHECK(stop_sampler_end(sampler));
	CHECK_EQUAL(shared->bad, 0);
	remove_running(&process, directory);
	end_victim();
}

/* What the limit is said to bound is counted by what it did: no stop takes no time, and none takes a minute.
 */
TEST(attach_remote, stops_that_are_longer_than_the_limit_are_counted)
{
	static const uint64_t limits[] = { 1, 60000000000 };
	char directory[] = "/tmp/kvmscope-test-XXXXXX";
	struct vmm_process process = { 0 };
	struct remote_code code;

	start_victim(&code);
	open_running(&process, shared->victim, directory);
	for (size_t i = 0; i < 2; i++) {
		const struct vcpu_stop_target target = { .process = &process,
							 .code = code,
							 .limit = limits[i] };
		const struct vmm_vcpu vcpu = { .id = 1, .tid = shared->victim };
		struct attach_stops stops = { 0 };
		struct stop_sampler *sampler;

		REQUIRE_EQUAL(stop_sampler_start(&sampler, &target, 1000), 0);
		CHECK_EQUAL(stop_sampler_add(sampler, &vcpu), 0);
		while (stops.count < 20)
			stop_sampler_count(sampler, &stops);
		CHECK_EQUAL(stops.over, limits[i] == 1 ? stops.count : 0);
		CHECK_EQUAL(stops.limit, limits[i]);
		CHECK(stop_sampler_end(sampler));
	}
	remove_running(&process, directory);
	end_victim();
}

/* Its parent stays in vfork(2), where no stop comes through, until the other end of the pipe is closed. */
static pid_t start_stuck(int *end)
{
	int ends[2];
	pid_t child;
	char byte;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	fflush(NULL);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
		close(ends[1]);
		for (;;)
			if (!vfork())
				_exit(read(ends[0], &byte, 1) != 0);
			else
				pause();
	}
	close(ends[0]);
	*end = ends[1];
	return child;
}

static void wait_until_stuck(pid_t pid)
{
	struct thread_status status = { 0 };
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (thread_status_read(fd, &status) && status.state != 'D')
		usleep(1000);
	close(fd);
	REQUIRE_EQUAL(status.state, 'D');
}

/* A thread that does not come out of the kernel holds up neither the others nor the end. */
TEST(attach_remote, a_thread_that_can_not_be_stopped_is_left_at_the_end)
{
	static struct vmm_process process; /* as long as the thread that hangs on it */
	static struct stop_sampler *sampler;
	const struct vcpu_stop_target target = { .process = &process, .limit = 200000 };
	char directory[] = "/tmp/kvmscope-test-XXXXXX";
	struct attach_stops stops;
	struct vmm_vcpu vcpu = { .id = 0 };
	uint64_t lost = 0;
	int end;

	vcpu.tid = start_stuck(&end);
	REQUIRE(vcpu.tid > 0);
	wait_until_stuck(vcpu.tid);
	open_running(&process, vcpu.tid, directory);
	REQUIRE_EQUAL(stop_sampler_start(&sampler, &target, 1000000), 0);
	CHECK_EQUAL(stop_sampler_add(sampler, &vcpu), 0);
	usleep(10000);
	stop_sampler_count(sampler, &stops);
	CHECK_EQUAL(stops.count, 0);
	stop_sampler_lost(sampler, lost_some, &lost);
	stop_sampler_remove(sampler, vcpu.id);
	CHECK(!stop_sampler_end(sampler));
	close(end);
	kill(vcpu.tid, SIGKILL);
	waitpid(vcpu.tid, NULL, 0);
	remove_running(&process, directory);
}

static uint64_t take_all(struct stop_sampler *sampler, unsigned int id, uint64_t *periods)
{
	struct stop_sample *sample;
	uint64_t count = 0;

	while ((sample = stop_sampler_next(sampler))) {
		if (sample->id == id) {
			*periods += sample->period;
			count++;
		}
		stop_sampler_taken(sampler);
	}
	return count;
}

/* It waits for a processor, for as long as the kernel counts no time of it: no sample stands for that. */
TEST(attach_remote, samples_stand_for_the_time_that_the_thread_ran)
{
	char directory[] = "/tmp/kvmscope-test-XXXXXX";
	const struct vmm_vcpu vcpu = { .id = 7, .tid = 0 };
	struct vmm_process process = { 0 };
	struct attach_stops stops = { 0 };
	struct stop_sampler *sampler;
	uint64_t samples = 0, periods = 0, rounds;
	struct remote_code code;

	start_victim(&code);
	open_running(&process, shared->victim, directory);
	write_of_thread(&process, shared->victim, "schedstat", "5000000000 70 1\n");
	{
		const struct vcpu_stop_target target = { .process = &process, .code = code, .limit = 200000 };
		struct vmm_vcpu added = vcpu;

		added.tid = shared->victim;
		REQUIRE_EQUAL(stop_sampler_start(&sampler, &target, 10000), 0);
		CHECK_EQUAL(stop_sampler_add(sampler, &added), 0);
	}
	while (stops.count < 50)
		stop_sampler_count(sampler, &stops);
	CHECK_EQUAL(take_all(sampler, vcpu.id, &periods), 0);
	write_of_thread(&process, shared->victim, "schedstat", "5005000000 90 2\n");
	while (!samples)
		samples = take_all(sampler, vcpu.id, &periods);
	for (rounds = stops.count + 50; stops.count < rounds;)
		stop_sampler_count(sampler, &stops);
	CHECK_EQUAL(samples + take_all(sampler, vcpu.id, &periods), 1);
	CHECK_EQUAL(periods, 5000000);
	CHECK(stop_sampler_end(sampler));
	remove_running(&process, directory);
	end_victim();
}

/* While the one does not come out of the kernel, the other is looked at; and the one again, when it does. */
TEST(attach_remote, a_thread_that_can_not_be_stopped_holds_up_no_other)
{
	char directory[] = "/tmp/kvmscope-test-XXXXXX";
	struct vmm_vcpu stuck = { .id = 0 }, other = { .id = 1 };
	struct vmm_process process = { 0 };
	struct stop_sampler *sampler;
	uint64_t periods = 0, samples = 0;
	struct remote_code code;
	int end;

	start_victim(&code);
	stuck.tid = start_stuck(&end); /* the last to get both ends of its pipe */
	REQUIRE(stuck.tid > 0);
	wait_until_stuck(stuck.tid);
	other.tid = shared->victim;
	open_running(&process, stuck.tid, directory);
	add_running(&process, other.tid);
	{
		const struct vcpu_stop_target target = { .process = &process, .code = code, .limit = 200000 };

		REQUIRE_EQUAL(stop_sampler_start(&sampler, &target, 1000), 0);
	}
	CHECK_EQUAL(stop_sampler_add(sampler, &stuck), 0);
	usleep(20000);
	CHECK_EQUAL(stop_sampler_add(sampler, &other), 0);
	alarm(60); /* ends a test that waits in vain */
	while (samples < 100)
		samples += take_all(sampler, other.id, &periods);
	CHECK_EQUAL(take_all(sampler, stuck.id, &periods), 0);
	close(end);
	while (!take_all(sampler, stuck.id, &periods))
		usleep(1000);
	alarm(0);
	CHECK(stop_sampler_end(sampler));
	CHECK(goes_on());
	kill(stuck.tid, SIGKILL);
	waitpid(stuck.tid, NULL, 0);
	remove_running(&process, directory);
	end_victim();
}
