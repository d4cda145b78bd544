/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of the guest's processes and threads a file already has, where samples
 * themselves say when a process began (struct sample): a process has to be
 * told of before its samples, also one that has got the id of an earlier one. One
 * thread at a time.
 */
#ifndef KVMSCOPE_RECORD_TASK_LIVES_H
#define KVMSCOPE_RECORD_TASK_LIVES_H

#include <stdbool.h>
#include <stdint.h>

struct task_lives;

/* NULL without memory. Of fixed size; what is not used of it takes none. */
struct task_lives *task_lives_new(void);
void task_lives_free(struct task_lives *lives); /* NULL is a no-op */

/*
 * Is it to be told that TID, below SAMPLE_TASK_LIMIT, is of the process that began at STARTED (not
 * 0)? A yes counts as told.
 */
bool task_lives_due(struct task_lives *lives, uint32_t tid, uint64_t started);

#endif
