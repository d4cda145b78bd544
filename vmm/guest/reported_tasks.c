/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/reported_tasks.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "shared/sample_record.h"

#define ERROR_MAX 4095 /* include/linux/err.h, MAX_ERRNO */

static bool is_leader(const struct agent_task *task)
{
	return task->pid == task->tgid;
}

static bool is_valid(const struct agent_task *task)
{
	return task->pid && task->pid < SAMPLE_TASK_LIMIT && task->tgid &&
	       task->tgid < SAMPLE_TASK_LIMIT && task->comm[0] &&
	       memchr(task->comm, '\0', sizeof(task->comm));
}

static bool is_distinct(const struct agent_task *task, const struct agent_task *other)
{
	return task->pid != other->pid && strcmp(task->comm, other->comm) != 0 &&
	       (task->tgid == other->tgid ||
		memcmp(task->mark, other->mark, sizeof(task->mark)) != 0);
}

static bool has_leader(const struct reported_tasks *reported, uint32_t tgid)
{
	for (size_t i = 0; i < reported->count; i++)
		if (reported->tasks[i].pid == tgid)
			return is_leader(&reported->tasks[i]);
	return false;
}

/* Is the task at COUNT valid, distinct from those before it, and its process among them? */
static bool fits(const struct reported_tasks *reported, size_t count)
{
	const struct agent_task *task = &reported->tasks[count];
	bool fits = is_valid(task) && has_leader(reported, task->tgid);

	for (size_t i = 0; fits && i < count; i++)
		fits = is_distinct(task, &reported->tasks[i]);
	return fits;
}

int reported_tasks_read(struct reported_tasks *reported, struct span payload)
{
	size_t leaders = 0;
	struct agent_tasks head;

	*reported = (struct reported_tasks){ 0 };
	if (!span_copy(payload, 0, &head, sizeof(head)) || head.count > AGENT_TASKS_MAX ||
	    !span_copy(payload, sizeof(head), reported->tasks,
		       head.count * sizeof(reported->tasks[0])))
		return -EINVAL;
	if (head.error)
		return head.error < 0 && head.error >= -ERROR_MAX ? head.error : -EINVAL;
	reported->count = head.count;
	for (size_t i = 0; i < reported->count; i++) {
		if (!fits(reported, i))
			return -EINVAL;
		leaders += is_leader(&reported->tasks[i]);
	}
	return leaders >= REPORTED_TASKS_PROCESSES &&
			       reported->count - leaders >= REPORTED_TASKS_THREADS
		       ? 0
		       : -EINVAL;
}
