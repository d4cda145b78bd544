/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/session/page_table_scan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shared/clock_ns.h"
#include "shared/cpu_budget.h"
#include "shared/error.h"
#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "shared/thread_check.h"
#include "vmm/guest/linux/task.h"

/* A guest with more processes gets no report. */
#define PROCESSES_MAX 8192
/* Everything is reported again after this time, for processes that the agent reported only later.
 */
#define REPEAT_INTERVAL NS_PER_S

/* One scan, sorted by process id. */
struct scan {
	struct guest_process processes[PROCESSES_MAX];
	bool reported[PROCESSES_MAX]; /* for each process */
	size_t count;
	uint64_t begin, end; /* ns, CLOCK_MONOTONIC_RAW */
	uint64_t kernel;     /* GVA of the banner of the kernel that was scanned */
};

struct page_table_scan {
	struct thread_check thread;
	struct ring *ring;
	struct scan scans[2];
	unsigned int latest; /* index into scans */
	uint64_t repeated;   /* ns: when everything was reported last */
	struct cpu_budget work;
};

int page_table_scan_create(struct page_table_scan **result, struct ring *ring)
{
	struct page_table_scan *scan = calloc(1, sizeof(*scan));

	if (!scan)
		return error_set(-ENOMEM, "no memory for the guest's processes");
	scan->ring = ring;
	*result = scan;
	return 0;
}

static int compare(const void *left, const void *right)
{
	const struct guest_process *a = left, *b = right;

	return a->pid < b->pid ? -1 : a->pid > b->pid;
}

/* A remote view makes another process work, whose CPU time is not ours. */
static uint64_t work_time(const struct guest_view *view)
{
	return clock_ns(view->remote ? CLOCK_MONOTONIC_RAW : CLOCK_THREAD_CPUTIME_ID);
}

static bool is_due(const struct page_table_scan *scan)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC_RAW);

	return now >= scan->scans[scan->latest].end + PAGE_TABLE_SCAN_INTERVAL &&
	       cpu_budget_allows(&scan->work, now);
}

static bool scan_tasks(struct scan *scan, const struct guest_kernel *kernel,
		       const struct guest_view *view)
{
	int count;

	scan->begin = clock_ns(CLOCK_MONOTONIC_RAW);
	count = guest_task_list(&kernel->tasks, view, &kernel->paging, scan->processes,
				PROCESSES_MAX);
	scan->end = clock_ns(CLOCK_MONOTONIC_RAW);
	scan->count = count < 0 ? 0 : (size_t)count;
	scan->kernel = kernel->identity.gva;
	qsort(scan->processes, scan->count, sizeof(scan->processes[0]), compare);
	return count >= 0;
}

/* The index of PROCESS in SCAN if it had the same page tables then; else the count. */
static size_t find(const struct scan *scan, const struct guest_process *process)
{
	const struct guest_process *found =
		bsearch(process, scan->processes, scan->count, sizeof(*process), compare);

	return found && found->root == process->root ? (size_t)(found - scan->processes)
						     : scan->count;
}

/* False if the ring is full: the process is reported after the next scan. */
static bool report(const struct page_table_scan *scan, const struct guest_view *view,
		   const struct guest_process *process, uint64_t time)
{
	struct sideband *record;

	if (!ring_has_room(scan->ring, sizeof(*record)))
		return false;
	record = ring_reserve(scan->ring, RECORD_SIDEBAND, sizeof(*record));
	*record = (struct sideband){
		.size = sizeof(*record),
		.type = SIDEBAND_ADDRESS_SPACE,
		.flags = guest_task_has_pti_pair(view, process->root) ? SIDEBAND_CR3_PAIR : 0,
		.time = time,
		.pid = process->pid,
		.tid = process->pid,
		.cr3 = process->root,
	};
	ring_commit(scan->ring, record);
	return true;
}

/* Reports what both scans agree on, each process once unless ALL is set. */
static void report_common(const struct page_table_scan *scan, const struct scan *earlier,
			  struct scan *later, const struct guest_view *view, bool all)
{
	uint64_t middle = earlier->end + (later->begin - earlier->end) / 2;

	for (size_t i = 0; i < later->count; i++) {
		size_t before = find(earlier, &later->processes[i]);

		if (before == earlier->count)
			continue;
		later->reported[i] = earlier->reported[before];
		if (all || !later->reported[i])
			later->reported[i] = report(scan, view, &later->processes[i], middle);
	}
	ring_publish(scan->ring);
}

void page_table_scan_update(struct page_table_scan *scan, const struct guest_kernel *kernel,
			    const struct guest_view *view)
{
	struct scan *earlier = &scan->scans[scan->latest], *later = &scan->scans[!scan->latest];
	uint64_t begun;
	bool complete, all;

	THREAD_CHECK(&scan->thread);
	if (!kernel || !is_due(scan))
		return;
	scan->latest = !scan->latest;
	memset(later->reported, 0, sizeof(later->reported));
	begun = work_time(view);
	complete = scan_tasks(later, kernel, view);
	cpu_budget_charge(&scan->work, later->end, work_time(view) - begun);
	if (!complete || earlier->kernel != later->kernel)
		return;
	all = later->end >= scan->repeated + REPEAT_INTERVAL;
	report_common(scan, earlier, later, view, all);
	if (all)
		scan->repeated = later->end;
}

void page_table_scan_destroy(struct page_table_scan *scan)
{
	free(scan);
}
