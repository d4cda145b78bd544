/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/collector_kernel_parts.h"

#include <errno.h>
#include <stdio.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/guest/linux/task_find.h"

/* First interval of requests to the agent; it doubles with each. */
#define ASK_FIRST (2000 * NS_PER_MS)
#define ASK_LAST  (60000 * NS_PER_MS)
/* How long reported tasks are searched for; the agent keeps them alive for longer. */
#define SEARCH_TIME (AGENT_TASKS_LIFETIME_MS / 2 * NS_PER_MS)

/* In a remote guest, where each read is a request, it would take too long. */
static bool can_ask(const struct collector_kernel *kernel)
{
	return kernel->options->tasks && !kernel->options->view->remote;
}

static void postpone(struct collector_tasks *tasks, uint64_t now)
{
	tasks->interval = tasks->interval ? 2 * tasks->interval : ASK_FIRST;
	if (tasks->interval > ASK_LAST)
		tasks->interval = ASK_LAST;
	tasks->next_ask = now + tasks->interval;
}

static void poll_agent(struct collector_kernel *kernel, uint64_t now)
{
	const struct collector_options *options = kernel->options;
	struct collector_tasks *tasks = &kernel->tasks;
	bool ask = now >= tasks->next_ask;
	int error = options->tasks(options->context, ask, &tasks->reported);

	if (!error)
		tasks->search_until = now + SEARCH_TIME;
	/* A guest that was slow, or whose tasks were too young, may report others soon. */
	if (error == -ECHILD || error == -EBUSY) {
		tasks->interval = 0;
		tasks->next_ask = now + ASK_FIRST;
	}
	/* An agent that is not there yet was not asked. */
	if (error == -EAGAIN && ask)
		postpone(tasks, now);
}

/* Publishes it to vCPUs like a kernel that was read again. */
static int use_layout(struct collector_kernel *kernel, const struct guest_task_layout *layout)
{
	struct guest_kernel *newer;

	if (guest_kernel_refresh(&newer, collector_kernel_newest(kernel), kernel->options->view))
		return 0;
	newer->tasks = *layout;
	collector_kernel_check_runs(
		kernel); /* otherwise the memory that was read may belong to another kernel */
	if (!collector_kernel_is_certain(kernel)) {
		guest_kernel_free(newer);
		return 0;
	}
	kernel->boot.current = false;
	return collector_kernel_adopt(kernel, newer);
}

static void keep_reason(struct collector_tasks *tasks)
{
	snprintf(tasks->reason, sizeof(tasks->reason), "%s", error_message());
}

static bool find(struct collector_kernel *kernel, struct guest_task_layout *layout, uint64_t now)
{
	uint64_t begun = clock_ns(CLOCK_MONOTONIC_RAW),
		 processed = clock_ns(CLOCK_THREAD_CPUTIME_ID), lasted;
	struct collector_tasks *tasks = &kernel->tasks;
	int error = guest_task_layout_find(layout, collector_kernel_newest(kernel),
					   kernel->options->view, &tasks->reported);

	processed = clock_ns(CLOCK_THREAD_CPUTIME_ID) - processed;
	lasted = clock_ns(CLOCK_MONOTONIC_RAW) - begun;
	cpu_budget_charge(&tasks->work, now + lasted, cpu_budget_cost(lasted, processed));
	if (error)
		keep_reason(tasks);
	return !error;
}

static int search(struct collector_kernel *kernel, uint64_t now)
{
	struct guest_task_layout layout;

	if (!cpu_budget_allows(&kernel->tasks.work, now) || !find(kernel, &layout, now))
		return 0;
	log_debug(
		"the guest's tasks, found by those of its agent: pid %u, tgid %u, comm %u, mm %u, stack %u, "
		"tasks %u; pgd %u",
		layout.pid, layout.tgid, layout.comm, layout.mm, layout.stack, layout.list,
		layout.page_table);
	return use_layout(kernel, &layout);
}

/* With some kernels it never can: the agent is not asked at all. */
static bool can_be_found(struct collector_kernel *kernel)
{
	struct collector_tasks *tasks = &kernel->tasks;

	if (!tasks->checked) {
		tasks->checked = true;
		tasks->hopeless = guest_task_layout_check(collector_kernel_newest(kernel));
		if (tasks->hopeless)
			keep_reason(tasks);
	}
	return !tasks->hopeless;
}

void collector_tasks_reset(struct collector_kernel *kernel)
{
	kernel->tasks = (struct collector_tasks){ .work = kernel->tasks.work };
}

int collector_tasks_update(struct collector_kernel *kernel, uint64_t now)
{
	THREAD_CHECK(&kernel->thread);
	if (!can_ask(kernel) || collector_kernel_newest(kernel)->tasks.known ||
	    !can_be_found(kernel))
		return 0;
	if (now >= kernel->tasks.search_until)
		poll_agent(kernel, now);
	return now < kernel->tasks.search_until ? search(kernel, now) : 0;
}

static void warn(const struct collector_kernel *kernel, const struct guest_kernel *found)
{
	const char *hint = kernel->btf ? NULL : kernel->options->btf_hint;
	const char *reason = kernel->tasks.reason[0] ? kernel->tasks.reason : "it reported none";
	bool asked = can_ask(kernel);

	if (guest_paging_is_32bit(&found->paging)) {
		log_warning("the guest's kernel has 32 bits: its processes, modules and user "
			    "mappings are not read");
		return;
	}
	log_warning(
		"the guest's kernel has no BTF that says where its processes are%s%s, so they are not read from "
		"its memory, nor is what they have mapped%s%s",
		asked ? ", and by those of its agent they were not found: " : "",
		asked ? reason : "", hint ? "; " : "", hint ? hint : "");
}

void collector_tasks_warn_first(const struct collector_kernel *kernel,
				const struct guest_kernel *found)
{
	if (!found->tasks.known && !can_ask(kernel))
		warn(kernel, found);
}

void collector_tasks_warn_last(struct collector_kernel *kernel)
{
	if (collector_kernel_newest(kernel)->tasks.known || !can_ask(kernel) ||
	    kernel->tasks.warned)
		return;
	kernel->tasks.warned = true;
	warn(kernel, collector_kernel_newest(kernel));
}
