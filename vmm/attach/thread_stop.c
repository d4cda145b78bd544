/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/thread_stop.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/attach/proc_files.h"

#ifndef PTRACE_EVENT_STOP
#define PTRACE_EVENT_STOP 128 /* of linux/ptrace.h, which conflicts with sys/ptrace.h */
#endif
#define EVENT_STOP   (SIGTRAP | PTRACE_EVENT_STOP << 8)
#define SYSCALL_STOP (SIGTRAP | 0x80)
/* A millisecond apart. */
#define REAP_TRIES 1000

static int wait_for(pid_t tid, siginfo_t *info, int how)
{
	int error;

	do
		error = waitid(P_PID, (id_t)tid, info, how | __WALL);
	while (error && errno == EINTR);
	return error ? -errno : 0;
}

/*
 * Reaps a thread that was killed while we traced it: as a zombie it would block the end of its
 * process. For the first thread that is possible only after all others have ended, perhaps never;
 * the process's parent gets it when our thread ends.
 */
static void reap(pid_t tid)
{
	const struct timespec moment = { .tv_nsec = NS_PER_MS };
	siginfo_t info = { 0 };

	/* Not the first thread: the kernel checks the thread group before the permission. */
	if (syscall(SYS_tgkill, tid, tid, 0) && errno == ESRCH) {
		wait_for(tid, &info, WEXITED);
		return;
	}
	for (int i = 0; i < REAP_TRIES && !wait_for(tid, &info, WEXITED | WNOHANG) && !info.si_pid;
	     i++)
		nanosleep(&moment, NULL);
}

/* Returns the reason of the stop: PTRACE_EVENT_*, a system call, or the signal to deliver.
 * -ESRCH: the thread has exited. */
static int wait_for_stop(pid_t tid)
{
	siginfo_t info = { 0 };

	if (wait_for(tid, &info, WSTOPPED | WEXITED | WNOWAIT))
		return -ESRCH;
	if (info.si_code == CLD_TRAPPED || info.si_code == CLD_STOPPED)
		return info.si_status;
	wait_for(tid, &info, WEXITED | WNOHANG); /* reaps it */
	return -ESRCH;
}

static int resume(const struct thread_stop *stop, enum __ptrace_request how, int signal)
{
	return ptrace(how, stop->tid, 0, (long)signal) ? -errno : 0;
}

void thread_resume(struct thread_stop *stop)
{
	THREAD_CHECK(&stop->tracer);
	if (resume(stop, PTRACE_DETACH, stop->signal) == -ESRCH)
		reap(stop->tid);
}

/* Event stops have the event in the upper bits; job control stops have no signal to deliver. */
static int signal_of(int status)
{
	return status >> 8 || status == SYSCALL_STOP ? 0 : status;
}

int thread_stop(struct thread_stop *stop, pid_t tid)
{
	int status;

	*stop = (struct thread_stop){ .tid = tid };
	THREAD_CHECK(&stop->tracer);
	if (ptrace(PTRACE_SEIZE, tid, 0, (long)PTRACE_O_TRACESYSGOOD))
		return -errno;
	if (ptrace(PTRACE_INTERRUPT, tid, 0, 0)) {
		reap(tid);
		return -ESRCH;
	}
	status = wait_for_stop(tid);
	if (status < 0)
		return status;
	stop->since = clock_ns(CLOCK_MONOTONIC);
	stop->signal = signal_of(status);
	if (status == EVENT_STOP && !ptrace(PTRACE_GETREGS, tid, 0, &stop->registers))
		return 0;
	thread_resume(stop);
	return -EINTR;
}

/* Runs to the next stop, which should be that of a system call. */
static int next_call_stop(struct thread_stop *stop)
{
	int status = resume(stop, PTRACE_SYSCALL, 0);

	if (!status)
		status = wait_for_stop(stop->tid);
	if (status < 0)
		return -ESRCH;
	stop->signal = signal_of(status);
	return status == SYSCALL_STOP ? 0 : -EINTR;
}

int thread_call(struct thread_stop *stop, const struct user_regs_struct *registers)
{
	int error;

	THREAD_CHECK(&stop->tracer);
	if (ptrace(PTRACE_SETREGS, stop->tid, 0, registers))
		return -ESRCH;
	error = next_call_stop(stop);
	return error ? error : next_call_stop(stop);
}

bool thread_stack_has(const struct thread_stack *stack, uint64_t rsp)
{
	return rsp >= stack->start && rsp < stack->end;
}

/* Parses a mapping; FIRST: it is the stack of the first thread. */
static bool parse_line(const char *line, struct thread_stack *mapping, bool *first)
{
	char name[16] = "";

	*mapping = (struct thread_stack){ 0 };
	*first = sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %*s %15s", &mapping->start,
			&mapping->end, name) == 3 &&
		 !strcmp(name, "[stack]");
	return mapping->end > mapping->start;
}

bool thread_stack_parse(struct thread_stack *stack, FILE *maps, uint64_t rsp, uint64_t fs)
{
	bool found = false, first;
	char *line = NULL;
	size_t room = 0;

	while (!found && getline(&line, &room, maps) > 0)
		found = parse_line(line, stack, &first) && thread_stack_has(stack, rsp);
	free(line);
	if (!found)
		*stack = (struct thread_stack){ 0 };
	else
		stack->own = first || (fs > rsp && thread_stack_has(stack, fs));
	return found;
}

static bool points_to_itself(const struct vmm_process *process, uint64_t fs)
{
	int fd = fs && fs <= INT64_MAX ? openat(process->directory, "mem", O_RDONLY | O_CLOEXEC)
				       : -1;
	uint64_t word = 0;
	bool does =
		fd >= 0 && pread(fd, &word, sizeof(word), (off_t)fs) == sizeof(word) && word == fs;

	if (fd >= 0)
		close(fd);
	return does;
}

bool thread_stack_find(struct thread_stack *stack, const struct vmm_process *process, pid_t tid,
		       uint64_t rsp, uint64_t fs)
{
	FILE *maps = proc_open_file(process->directory, "maps");
	bool found, above;

	if (!maps)
		return false;
	above = tid != process->pid && points_to_itself(process, fs);
	found = thread_stack_parse(stack, maps, rsp, above ? fs : 0);
	fclose(maps);
	return found;
}

/* Missing in glibc 2.36: timer_create(2). */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static const struct itimerspec never;
static const struct itimerspec wake_time = { .it_value = { .tv_nsec = 50 * NS_PER_MS } };
static const struct itimerspec kill_time = { .it_value = { .tv_sec = 2 } };

/* Set while this thread may have stopped another. */
static _Thread_local const struct stop_guard *volatile guarding;

static void set(const struct stop_guard *guard, const struct itimerspec *wake,
		const struct itimerspec *kill)
{
	timer_settime(guard->wake, 0, wake, NULL);
	timer_settime(guard->kill, 0, kill, NULL);
}

/* Only for our timer's signal, on its thread: any process may send SIGCONT. */
static void be_awake(int number, siginfo_t *info, void *context)
{
	int error = errno;

	(void)number;
	(void)context;
	if (info->si_code == SI_TIMER && guarding)
		set(guarding, &wake_time, &kill_time);
	errno = error;
}

static int take_signal(void)
{
	struct sigaction action = { .sa_sigaction = be_awake, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigset_t signals;

	sigemptyset(&action.sa_mask);
	sigemptyset(&signals);
	sigaddset(&signals, SIGCONT);
	if (sigaction(SIGCONT, &action, NULL))
		return -errno;
	return -pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
}

static int make_timer(timer_t *timer, int how, int number)
{
	struct sigevent event = { .sigev_notify = how, .sigev_signo = number };

	event.sigev_notify_thread_id = gettid();
	return timer_create(CLOCK_MONOTONIC, &event, timer) ? -errno : 0;
}

static int open_guard(struct stop_guard *guard)
{
	int error = take_signal();

	if (!error)
		error = make_timer(&guard->wake, SIGEV_THREAD_ID, SIGCONT);
	if (error)
		return error;
	error = make_timer(&guard->kill, SIGEV_SIGNAL, SIGKILL);
	if (error)
		timer_delete(guard->wake);
	guard->open = !error;
	return error;
}

int stop_guard_begin(struct stop_guard *guard)
{
	int error;

	THREAD_CHECK(&guard->thread);
	error = guard->open ? 0 : open_guard(guard);
	if (error)
		return error_set(
			error,
			"cannot create a timer that ends a vCPU's stop if kvmscope is stopped "
			"meanwhile: %s",
			strerror(-error));
	guarding = guard;
	set(guard, &wake_time, &kill_time);
	return 0;
}

void stop_guard_end(struct stop_guard *guard)
{
	THREAD_CHECK(&guard->thread);
	guarding = NULL;
	set(guard, &never, &never);
}

void stop_guard_close(struct stop_guard *guard)
{
	THREAD_CHECK(&guard->thread);
	if (!guard->open)
		return;
	timer_delete(guard->wake);
	timer_delete(guard->kill);
	guard->open = false;
}
