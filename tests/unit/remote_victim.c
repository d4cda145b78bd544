/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/remote_victim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"

/* epoll_wait() of one millisecond with known values in all registers that a call preserves. */
static void call_with_registers(struct remote_victim *self)
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
			 : "+c"(self)
			 :
			 : "rax", "rbx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
			   "r13", "r14", "r15", "xmm0", "xmm7", "xmm15", "memory", "cc");
}

struct remote_victim *victim;

static void on_signal(int number)
{
	victim->signals++;
}

/* A signal mask and a signal stack, which must be preserved as well. */
static bool setting_is_kept(const stack_t *stack)
{
	stack_t now;
	sigset_t mask;

	sigprocmask(SIG_BLOCK, NULL, &mask);
	sigaltstack(NULL, &now);
	return sigismember(&mask, SIGUSR2) && !sigismember(&mask, SIGRTMIN) &&
	       now.ss_sp == stack->ss_sp && now.ss_size == stack->ss_size;
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
	uint64_t *words = (uint64_t *)&victim->before;
	stack_t stack;

	prepare(&stack);
	for (;;) {
		for (size_t i = 0; i < sizeof(victim->before) / sizeof(*words); i++)
			words[i] = 0x0123456789abcdefull * (victim->rounds + i + 1);
		victim->before.general[2] = (uint64_t)victim->epoll;
		victim->before.general[3] = (uintptr_t)&event;
		victim->before.general[4] = 1;
		victim->before.general[7] = 1;
		memcpy(&victim->after, &victim->before, sizeof(victim->after));
		call_with_registers(victim);
		victim->bad += memcmp(&victim->before, &victim->after, sizeof(victim->before)) != 0;
		victim->bad += victim->result != 0 && victim->result != -EINTR;
		victim->bad += !setting_is_kept(&stack);
		victim->interrupted += victim->result == -EINTR;
		victim->rounds++;
	}
}

/*
 * If a thread waits for a child that is traced by another thread of its process, it receives the
 * child's stops as well and takes them from that thread (wait_task_stopped() in kernel/exit.c). So
 * they are left pending.
 */
bool remote_victim_has_ended(void)
{
	siginfo_t info = { 0 };

	return waitid(P_PID, (id_t)victim->pid, &info, WEXITED | WNOHANG | WNOWAIT) ||
	       info.si_code == CLD_EXITED || info.si_code == CLD_KILLED ||
	       info.si_code == CLD_DUMPED;
}

bool remote_victim_continues(void)
{
	uint64_t rounds = victim->rounds;

	while (victim->rounds < rounds + 2) {
		if (remote_victim_has_ended())
			return false;
		usleep(200);
	}
	return true;
}

void remote_victim_start(struct remote_code *code)
{
	struct vmm_process process = { 0 };
	char path[32];
	int ends[2];
	pid_t pid;

	victim = mmap(NULL, sizeof(*victim), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	REQUIRE(victim != MAP_FAILED);
	_Static_assert(offsetof(struct remote_victim, after) == 368 &&
			       offsetof(struct remote_victim, result) == 736,
		       "assembly");
	REQUIRE_EQUAL(pipe2(ends, O_CLOEXEC), 0);
	CHECK_EQUAL(write(ends[1], "12345", 5), 5);
	victim->pipe = ends[0];
	victim->epoll = epoll_create1(EPOLL_CLOEXEC);
	fflush(NULL);
	pid = fork();
	if (!pid)
		be_victim();
	victim->pid = pid;
	close(ends[0]);
	close(ends[1]);
	close(victim->epoll);
	snprintf(path, sizeof(path), "/proc/%d", victim->pid);
	process.pid = victim->pid;
	process.directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK_EQUAL(remote_code_find(code, &process), 0);
	close(process.directory);
	CHECK(remote_victim_continues()); /* it takes signals now */
}

void remote_victim_end(void)
{
	kill(victim->pid, SIGKILL);
	waitpid(victim->pid, NULL, 0);
	munmap(victim, sizeof(*victim));
}
