/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/profile/collector_tasks.h"

#include <errno.h>
#include <stdio.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/guest/task_find.h"

#define MILLISECOND 1000000ull
/* The agent is asked so soon again, then after twice as long, and so on. */
#define ASK_FIRST (2000 * MILLISECOND)
#define ASK_LAST  (60000 * MILLISECOND)
/* Tasks that were told are looked for so long: they live longer. */
#define TOLD_LAST (AGENT_TASKS_LIFE_MS / 2 * MILLISECOND)

static void hear(struct collector_kernel *kernel, uint64_t now)
{
	const struct collector_options *options = kernel->options;
	struct collector_tasks *tasks = &kernel->tasks;
	bool ask = now >= tasks->next_ask;
	int error = options->tasks(options->context, ask, &tasks->told);

	if (!error)
		tasks->told_until = now + TOLD_LAST;
	/* An agent that is not there yet was not asked. */
	if (error != -EAGAIN || !ask)
		return;
	tasks->interval = tasks->interval ? 2 * tasks->interval : ASK_FIRST;
	if (tasks->interval > ASK_LAST)
		tasks->interval = ASK_LAST;
	tasks->next_ask = now + tasks->interval;
}

/* To vCPUs, as a kernel that is read anew. */
static void take(struct collector_kernel *kernel, const struct guest_task_layout *layout)
{
	struct guest_kernel *newer;

	if (guest_kernel_refresh(&newer, collector_kernel_newest(kernel), kernel->options->view))
		return;
	newer->tasks = *layout;
	collector_kernel_check_runs(kernel); /* else what was read is of nobody knows whom */
	if (kernel->lost || kernel->doubts) {
		guest_kernel_free(newer);
		return;
	}
	kernel->as_known = false;
	collector_kernel_take(kernel, newer);
}

static void look(struct collector_kernel *kernel)
{
	struct collector_tasks *tasks = &kernel->tasks;
	struct guest_task_layout layout;

	if (guest_task_layout_find(&layout, collector_kernel_newest(kernel), kernel->options->view,
				   &tasks->told)) {
		snprintf(tasks->reason, sizeof(tasks->reason), "%s", error_message());
		return;
	}
	log_debug(
		"the guest's tasks, found by those of its agent: pid %u, tgid %u, comm %u, mm %u, stack %u, "
		"tasks %u; pgd %u",
		layout.pid, layout.tgid, layout.comm, layout.mm, layout.stack, layout.list,
		layout.page_table);
	take(kernel, &layout);
}

/* Where each read is a request to another program it would take too long. */
static bool is_wanted(const struct collector_kernel *kernel)
{
	return kernel->options->tasks && !kernel->options->view->remote &&
	       !collector_kernel_newest(kernel)->tasks.known;
}

void collector_tasks_turn(struct collector_kernel *kernel, uint64_t now)
{
	if (!is_wanted(kernel))
		return;
	if (now >= kernel->tasks.told_until)
		hear(kernel, now);
	if (now < kernel->tasks.told_until)
		look(kernel);
}

void collector_tasks_warn(const struct collector_kernel *kernel, const struct guest_kernel *found)
{
	const char *hint = kernel->btf ? NULL : kernel->options->btf_hint;
	const char *reason = kernel->tasks.reason[0] ? kernel->tasks.reason : "it told of none";
	bool asked = kernel->options->tasks;

	if (found->tasks.known)
		return;
	log_warning(
		"the guest's kernel has no BTF that says where its processes are%s%s, so they are not read from "
		"its memory, nor is what they have mapped%s%s",
		asked ? ", and by those of its agent they were not found: " : "", asked ? reason : "",
		hint ? "; " : "", hint ? hint : "");
}
