/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which names of threads a file already has: the name of a thread is written
 * when it is first needed and when it has changed, not with each sample. One
 * thread at a time.
 */
#ifndef KVMSCOPE_RECORD_TASK_NAMES_H
#define KVMSCOPE_RECORD_TASK_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/sample_record.h"

struct task_names;

/* NULL without memory. Of fixed size, whatever the guest makes up. */
struct task_names *task_names_new(void);
/* NULL is a no-op. */
void task_names_free(struct task_names *names);

/*
 * Is NAME, of at most SAMPLE_COMM_SIZE - 1 bytes, to be written for the thread
 * TID of process PID before what is told of it at TIME (ns)? It is if it is not the
 * one that was written last, and for times before that one's: readers go by time.
 * A yes counts as written. Of threads that fall on one place the names
 * are written more often than need be.
 */
bool task_names_due(struct task_names *names, uint32_t pid, uint32_t tid, uint64_t time,
		    const char *name);

/*
 * It was written that TID was forked at TIME: readers give it whatever name they have for its
 * parent then, so that its own is due in any case, also if it has none.
 */
void task_names_fork(struct task_names *names, uint32_t pid, uint32_t tid, uint64_t time);

#endif
