// SPDX-License-Identifier: Apache-2.0
#include "vmm/record/task_lives.h"

#include <assert.h>
#include <stdlib.h>

#include "shared/sample_record.h"

struct task_lives {
	uint32_t started[SAMPLE_TASK_LIMIT]; /* in us, never 0 but where nothing was told */
};

struct task_lives *task_lives_new(void)
{
	return calloc(1, sizeof(struct task_lives));
}

void task_lives_free(struct task_lives *lives)
{
	free(lives);
}

/* Ids come back after all others were given: not within 1 us, nor just 71 minutes later. */
bool task_lives_due(struct task_lives *lives, uint32_t tid, uint64_t started)
{
	uint32_t mark = (uint32_t)(started / 1000) | 1u << 31;

	assert(tid < SAMPLE_TASK_LIMIT && started);
	if (lives->started[tid] == mark)
		return false;
	lives->started[tid] = mark;
	return true;
}
