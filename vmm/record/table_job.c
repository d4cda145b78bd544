/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/table_job.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

struct table_job {
	pthread_t thread;
	struct cfi_image *image;
	struct cfi_table *table;
	int error;
	_Atomic bool done; /* the fields above are final */
};

static void *run(void *context)
{
	struct table_job *job = context;

	pthread_setname_np(pthread_self(), "unwind table");
	job->error = cfi_image_make(&job->table, job->image);
	atomic_store_explicit(&job->done, true, memory_order_release);
	return NULL;
}

/* Signals are the main thread's. */
static int start_thread(struct table_job *job)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = -pthread_create(&job->thread, NULL, run, job);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

int table_job_start(struct table_job **result, struct cfi_image *image)
{
	struct table_job *job = calloc(1, sizeof(*job));
	int error;

	if (!job)
		return -ENOMEM;
	job->image = image;
	error = start_thread(job);
	if (error) {
		free(job);
		return error;
	}
	*result = job;
	return 0;
}

bool table_job_done(const struct table_job *job)
{
	return atomic_load_explicit(&job->done, memory_order_acquire);
}

int table_job_end(struct table_job *job, struct cfi_table **table)
{
	int error;

	pthread_join(job->thread, NULL);
	error = job->error;
	*table = job->table;
	cfi_image_free(job->image);
	free(job);
	return error;
}
