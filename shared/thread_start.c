/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/thread_start.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* See pthread_setname_np(3). */
#define NAME_SIZE 16

struct start {
	char name[NAME_SIZE];
	void *(*run)(void *);
	void *context;
};

static void (*first_call)(const char *name);

void thread_start_with(void (*call)(const char *name))
{
	first_call = call;
}

static void *run_thread(void *argument)
{
	struct start start = *(struct start *)argument;

	free(argument);
	pthread_setname_np(pthread_self(), start.name);
	if (first_call)
		first_call(start.name);
	return start.run(start.context);
}

int thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *context)
{
	struct start *start = calloc(1, sizeof(*start));
	sigset_t blocked, before;
	int error;

	if (!start)
		return -ENOMEM;
	snprintf(start->name, sizeof(start->name), "%s", name);
	start->run = run;
	start->context = context;
	sigfillset(&blocked);
	sigdelset(&blocked, SIGSYS);
	pthread_sigmask(SIG_SETMASK, &blocked, &before);
	error = -pthread_create(thread, NULL, run_thread, start);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		free(start);
	return error;
}
