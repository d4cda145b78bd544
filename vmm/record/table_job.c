/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/table_job.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "shared/thread_start.h"

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

int table_job_start(struct table_job **result, struct cfi_image *image)
{
	struct table_job *job = calloc(1, sizeof(*job));
	int error;

	if (!job)
		return -ENOMEM;
	job->image = image;
	error = thread_start(&job->thread, run, job);
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
