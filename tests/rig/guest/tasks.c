/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks that say in their stacks who they are: each runs in a function of its
 * own, run_NAME, from which it makes its system calls itself, and is called
 * "NAME-TID". So whoever sees a callchain with run_NAME in it knows what the
 * task must be called, and by that its id.
 *
 *	tasks SECONDS
 *
 * alpha is in user code, beta in system calls, ping and pong give up the CPU
 * all the time; thread is two more threads of beta's process; program is
 * another program, by execve; brief are processes that live 5 ms, one behind
 * the other.
 *
 * Static, and built with frame pointers, so that chains can be walked.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM "/tmp/program"

static double seconds;

/* Inline: the instruction behind it lies in the function that names the task. */
static inline __attribute__((always_inline)) long system_call(long number, long a, long b, long c)
{
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return result;
}

static inline __attribute__((always_inline)) double clock_of(clockid_t clock)
{
	struct timespec time;

	system_call(SYS_clock_gettime, clock, (long)&time, 0);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static inline __attribute__((always_inline)) void compute(unsigned int rounds)
{
	volatile uint32_t hash = 2166136261u;

	for (unsigned int i = 0; i < rounds; i++)
		hash = (hash ^ i) * 16777619u;
}

static void take_name(const char *name)
{
	char own[16];

	snprintf(own, sizeof(own), "%s-%ld", name, syscall(SYS_gettid));
	prctl(PR_SET_NAME, own);
}

/* Until SECONDS are over: what WORK says, over and over. */
#define TASK(name, work)                                                                                     \
	__attribute__((noinline)) void run_##name(double until)                                              \
	{                                                                                                    \
		static __thread unsigned char buffer[16384] __attribute__((unused));                         \
                                                                                                             \
		while (clock_of(CLOCK_MONOTONIC) < until)                                                    \
			for (int i = 0; i < 50; i++) {                                                       \
				work;                                                                        \
			}                                                                                    \
	}

TASK(alpha, compute(2000))
TASK(beta, system_call(SYS_getrandom, (long)buffer, sizeof(buffer), 0))
TASK(thread, compute(500); system_call(SYS_getrandom, (long)buffer, 4096, 0))
TASK(ping, compute(20); system_call(SYS_sched_yield, 0, 0, 0))
TASK(pong, compute(20); system_call(SYS_sched_yield, 0, 0, 0))
TASK(program, compute(1000); system_call(SYS_getrandom, (long)buffer, 4096, 0))
TASK(brief, compute(100); system_call(SYS_getrandom, (long)buffer, 1024, 0))

static double now(void)
{
	return clock_of(CLOCK_MONOTONIC);
}

static void run(const char *name, void (*task)(double until))
{
	take_name(name);
	task(now() + seconds);
}

static void start(const char *name, void (*task)(double until))
{
	if (fork())
		return;
	run(name, task);
	_exit(0);
}

static void *thread(void *unused)
{
	(void)unused;
	run("thread", run_thread);
	return NULL;
}

static void start_threads(void)
{
	pthread_t threads[2];

	if (fork())
		return;
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, thread, NULL))
			_exit(1);
	run("beta", run_beta);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	_exit(0);
}

static void start_program(const char *argument)
{
	unlink(PROGRAM);
	if (symlink("/proc/self/exe", PROGRAM) || fork())
		return;
	execl(PROGRAM, PROGRAM, argument, (char *)NULL);
	_exit(1);
}

static void storm(void)
{
	double end = now() + seconds;

	if (fork())
		return;
	while (now() < end) {
		if (!fork()) {
			take_name("brief");
			run_brief(now() + 0.005);
			_exit(0);
		}
		wait(NULL);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	int status, failed = 0;

	seconds = argc > 1 ? atof(argv[1]) : 0;
	if (seconds <= 0) {
		fprintf(stderr, "usage: tasks SECONDS\n");
		return 2;
	}
	if (!strcmp(argv[0], PROGRAM)) {
		run("program", run_program);
		return 0;
	}
	start("alpha", run_alpha);
	start("ping", run_ping);
	start("pong", run_pong);
	start_threads();
	start_program(argv[1]);
	storm();
	while (wait(&status) > 0)
		failed |= status != 0;
	return failed;
}
