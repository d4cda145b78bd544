/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An unwind table that is made on a thread of its own, for images so large
 * that the caller's other work would wait for seconds. One thread starts and
 * ends it.
 */
#ifndef KVMSCOPE_RECORD_TABLE_JOB_H
#define KVMSCOPE_RECORD_TABLE_JOB_H

#include <stdbool.h>

#include "vmm/guest/unwind/cfi_image.h"

struct table_job;

/* Takes IMAGE over if it succeeds. -ENOMEM, -EAGAIN: there is no thread to be had. */
int table_job_start(struct table_job **job, struct cfi_image *image);

/* Would table_job_end() return at once? */
bool table_job_done(const struct table_job *job);

/* Waits for it: *TABLE is the caller's. The errors of cfi_image_make(). Frees JOB. */
int table_job_end(struct table_job *job, struct cfi_table **table);

#endif
