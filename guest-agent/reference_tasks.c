/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-agent/reference_tasks.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "guest-agent/timing.h"

#define STACK_SIZE       4096
#define START_TIMEOUT_MS (AGENT_TASKS_LIFETIME_MS / 2)
#define NAME             "kvmscope-%02x%02x%02x"

/* The flags of pthread_create(3) without those that only libc needs. */
static const int thread_flags =
	CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;

enum { PROCESSES = 4, THREADS = 2, TASKS = PROCESSES + THREADS };

static struct agent_task tasks[TASKS];
static bool requested;
static int start_error;
static uint8_t mark[AGENT_TASK_MARK]; /* each process keeps its copy from the time of its fork */
static uint8_t stacks[THREADS][STACK_SIZE] __attribute__((aligned(16)));
/* Ids of the first process's threads, in memory shared with the agent. Negative errno; 0: not
 * started. */
static _Atomic int *threads;
static uint64_t started; /* ms */

/* /dev/urandom works before getrandom(2) has enough entropy. */
static int random_bytes(void *to, size_t size)
{
	int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC), error;

	if (fd < 0)
		return -errno;
	error = read(fd, to, size) == (ssize_t)size ? 0 : -EIO;
	close(fd);
	return error;
}

static int randomize_task(struct agent_task *task)
{
	uint8_t chance[3] = { 0 };
	int error = random_bytes(chance, sizeof(chance));

	if (!error)
		error = random_bytes(task->mark, sizeof(task->mark));
	snprintf(task->comm, sizeof(task->comm), NAME, chance[0], chance[1], chance[2]);
	task->marked = (uintptr_t)mark;
	return error;
}

static int sleep_lifetime(void *unused)
{
	nanosleep(&(struct timespec){ .tv_sec = AGENT_TASKS_LIFETIME_MS / 1000 }, NULL);
	return 0;
}

/* A thread inherits the name of its creator. */
static void start_threads(void)
{
	int ids[THREADS];

	for (int i = 0; i < THREADS; i++) {
		prctl(PR_SET_NAME, tasks[1 + i].comm);
		ids[i] = clone(sleep_lifetime, stacks[i] + STACK_SIZE, thread_flags, NULL);
		ids[i] = ids[i] < 0 ? -errno : ids[i];
	}
	prctl(PR_SET_NAME, tasks[0].comm);
	for (int i = 0; i < THREADS; i++)
		atomic_store(&threads[i], ids[i]);
}

/* Starts the process of TASK. It shares the agent's descriptor table, because copies would keep the
 * port open after the agent closes it, and it is killed when the agent exits.
 */
static int start_process(struct agent_task *task)
{
	long pid;

	memcpy(mark, task->mark, sizeof(mark));
	prctl(PR_SET_NAME, task->comm);
	pid = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (task == &tasks[0])
			start_threads();
		_exit(sleep_lifetime(NULL));
	}
	task->pid = task->tgid = (uint32_t)pid;
	return pid < 0 ? -errno : 0;
}

/* tasks[] has the first process, its threads, then the other processes. */
static int start_processes(void)
{
	int error = start_process(&tasks[0]);

	for (int i = 1 + THREADS; !error && i < TASKS; i++)
		error = start_process(&tasks[i]);
	return error;
}

static int share_threads(void)
{
	void *shared;

	if (!threads) {
		shared = mmap(NULL, THREADS * sizeof(*threads), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (shared == MAP_FAILED)
			return -errno;
		threads = shared;
	}
	for (int i = 0; i < THREADS; i++)
		atomic_store(&threads[i], 0);
	return 0;
}

static int start(void)
{
	char name[sizeof(tasks[0].comm)];
	int error;

	if (started && clock_raw_ms() < started + START_TIMEOUT_MS)
		return -EBUSY;
	started = clock_raw_ms();
	error = share_threads();
	for (int i = 0; !error && i < TASKS; i++)
		error = randomize_task(&tasks[i]);
	if (error)
		return error;
	prctl(PR_GET_NAME, name);
	error = start_processes();
	prctl(PR_SET_NAME, name);
	return error;
}

/* -EINPROGRESS: not all have started; -ECHILD: they took too long. */
static int collect_threads(void)
{
	for (int i = 0; i < THREADS; i++) {
		struct agent_task *task = &tasks[1 + i];
		int id = atomic_load(&threads[i]);

		if (id <= 0)
			return id                                            ? id
			       : clock_raw_ms() < started + START_TIMEOUT_MS ? -EINPROGRESS
									     : -ECHILD;
		task->pid = (uint32_t)id;
		task->tgid = tasks[0].tgid;
		memcpy(task->mark, tasks[0].mark, sizeof(task->mark));
	}
	return 0;
}

void reference_tasks_request(void)
{
	start_error = start();
	requested = true;
}

bool reference_tasks_send(struct output *output)
{
	struct agent_tasks *message;
	int error;

	if (!requested)
		return true;
	error = start_error ? start_error : collect_threads();
	if (error == -EINPROGRESS)
		return false;
	message =
		output_message(output, AGENT_TASKS, sizeof(*message) + (error ? 0 : sizeof(tasks)));
	if (!message)
		return false;
	requested = false;
	message->error = error;
	message->count = error ? 0 : TASKS;
	memcpy(message->tasks, tasks, message->count * sizeof(tasks[0]));
	return true;
}

void reference_tasks_cancel(void)
{
	requested = false;
}
