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

static bool can_be(const struct agent_task *task)
{
	return task->pid && task->pid < SAMPLE_TASK_LIMIT && task->tgid &&
	       task->tgid < SAMPLE_TASK_LIMIT && task->comm[0] &&
	       memchr(task->comm, '\0', sizeof(task->comm));
}

static bool is_another(const struct agent_task *task, const struct agent_task *other)
{
	return task->pid != other->pid && strcmp(task->comm, other->comm) != 0 &&
	       (task->tgid == other->tgid ||
		memcmp(task->mark, other->mark, sizeof(task->mark)) != 0);
}

static bool has_leader(const struct reported_tasks *told, uint32_t tgid)
{
	for (size_t i = 0; i < told->count; i++)
		if (told->tasks[i].pid == tgid)
			return is_leader(&told->tasks[i]);
	return false;
}

/* Of the tasks before the COUNTth. */
static bool fits(const struct reported_tasks *told, size_t count)
{
	const struct agent_task *task = &told->tasks[count];
	bool fits = can_be(task) && has_leader(told, task->tgid);

	for (size_t i = 0; fits && i < count; i++)
		fits = is_another(task, &told->tasks[i]);
	return fits;
}

int reported_tasks_read(struct reported_tasks *told, struct span payload)
{
	size_t leaders = 0;
	struct agent_tasks head;

	*told = (struct reported_tasks){ 0 };
	if (!span_copy(payload, 0, &head, sizeof(head)) || head.count > AGENT_TASKS_MAX ||
	    !span_copy(payload, sizeof(head), told->tasks, head.count * sizeof(told->tasks[0])))
		return -EINVAL;
	if (head.error)
		return head.error < 0 && head.error >= -ERROR_MAX ? head.error : -EINVAL;
	told->count = head.count;
	for (size_t i = 0; i < told->count; i++) {
		if (!fits(told, i))
			return -EINVAL;
		leaders += is_leader(&told->tasks[i]);
	}
	return leaders >= REPORTED_TASKS_PROCESSES &&
			       told->count - leaders >= REPORTED_TASKS_THREADS
		       ? 0
		       : -EINVAL;
}
