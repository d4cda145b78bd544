/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds an unwind table on a thread of its own, for images so large that the caller would be held
 * up for seconds. One thread starts and ends it.
 */
#ifndef KVMSCOPE_RECORD_TABLE_JOB_H
#define KVMSCOPE_RECORD_TABLE_JOB_H

#include <stdbool.h>

#include "vmm/guest/unwind/cfi_image.h"

struct table_job;

/* Owns IMAGE on success. -ENOMEM; -EAGAIN: no thread available. */
int table_job_start(struct table_job **job, struct cfi_image *image);

/* Has it finished, so that table_job_end() does not wait? */
bool table_job_done(const struct table_job *job);

/* Waits for the end; the caller owns *TABLE. The errors of cfi_image_make(). Frees JOB. */
int table_job_end(struct table_job *job, struct cfi_table **table);

#endif
