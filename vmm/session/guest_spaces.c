// SPDX-License-Identifier: Apache-2.0
#include "vmm/session/guest_spaces.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "shared/cpu_budget.h"
#include "shared/error.h"
#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "vmm/guest/linux/task_list.h"

/* Of a guest with more, none are known. */
#define PROCESSES_MAX 8192
/* Who was not told of by the agent yet, when it was told here, is told again. */
#define TELL_INTERVAL NS_PER_S

/* One look, in order of process ids. */
struct qmp_sample {
	struct guest_process processes[PROCESSES_MAX];
	bool told[PROCESSES_MAX]; /* of each: it was */
	size_t count;
	uint64_t begin, end; /* ns, CLOCK_MONOTONIC_RAW */
	uint64_t kernel;     /* that it was a look at: of its banner, GVA */
};

struct guest_spaces {
	struct ring *ring;
	struct qmp_sample looks[2];
	unsigned int latest; /* of looks */
	uint64_t told_all;   /* ns */
	struct cpu_budget work;
};

int guest_spaces_create(struct guest_spaces **result, struct ring *ring)
{
	struct guest_spaces *spaces = calloc(1, sizeof(*spaces));

	if (!spaces)
		return error_set(-ENOMEM, "no memory for the guest's processes");
	spaces->ring = ring;
	*result = spaces;
	return 0;
}

static int compare(const void *left, const void *right)
{
	const struct guest_process *a = left, *b = right;

	return a->pid < b->pid ? -1 : a->pid > b->pid;
}

/* Behind a monitor it is the other side that works. */
static uint64_t work_time(const struct guest_view *view)
{
	return clock_ns(view->remote ? CLOCK_MONOTONIC_RAW : CLOCK_THREAD_CPUTIME_ID);
}

static bool may_look(const struct guest_spaces *spaces)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC_RAW);

	return now >= spaces->looks[spaces->latest].end + GUEST_SPACES_INTERVAL &&
	       cpu_budget_allows(&spaces->work, now);
}

static bool look(struct qmp_sample *look, const struct guest_kernel *kernel,
		 const struct guest_view *view)
{
	int count;

	look->begin = clock_ns(CLOCK_MONOTONIC_RAW);
	count = guest_task_list(&kernel->tasks, view, &kernel->paging, look->processes,
				PROCESSES_MAX);
	look->end = clock_ns(CLOCK_MONOTONIC_RAW);
	look->count = count < 0 ? 0 : (size_t)count;
	look->kernel = kernel->identity.gva;
	qsort(look->processes, look->count, sizeof(look->processes[0]), compare);
	return count >= 0;
}

/* Its place in LOOK, if it had the same page tables then; else the count. */
static size_t find(const struct qmp_sample *look, const struct guest_process *process)
{
	const struct guest_process *found =
		bsearch(process, look->processes, look->count, sizeof(*process), compare);

	return found && found->root == process->root ? (size_t)(found - look->processes)
						     : look->count;
}

/* False where there is no room: it is told after the next look. */
static bool tell(const struct guest_spaces *spaces, const struct guest_view *view,
		 const struct guest_process *process, uint64_t time)
{
	struct sideband *record;

	if (!ring_has_room(spaces->ring, sizeof(*record)))
		return false;
	record = ring_reserve(spaces->ring, RECORD_SIDEBAND, sizeof(*record));
	*record = (struct sideband){
		.size = sizeof(*record),
		.type = SIDEBAND_ADDRESS_SPACE,
		.flags = guest_task_has_pti_pair(view, process->root) ? SIDEBAND_CR3_PAIR : 0,
		.time = time,
		.pid = process->pid,
		.tid = process->pid,
		.cr3 = process->root,
	};
	ring_commit(spaces->ring, record);
	return true;
}

/* What both looks have is told once, or if ALL is set anyhow. */
static void tell_what_stayed(const struct guest_spaces *spaces, const struct qmp_sample *earlier,
			     struct qmp_sample *later, const struct guest_view *view, bool all)
{
	uint64_t middle = earlier->end + (later->begin - earlier->end) / 2;

	for (size_t i = 0; i < later->count; i++) {
		size_t before = find(earlier, &later->processes[i]);

		if (before == earlier->count)
			continue;
		later->told[i] = earlier->told[before];
		if (all || !later->told[i])
			later->told[i] = tell(spaces, view, &later->processes[i], middle);
	}
	ring_publish(spaces->ring);
}

void guest_spaces_turn(struct guest_spaces *spaces, const struct guest_kernel *kernel,
		       const struct guest_view *view)
{
	struct qmp_sample *earlier = &spaces->looks[spaces->latest],
			  *later = &spaces->looks[!spaces->latest];
	uint64_t begun;
	bool looked, all;

	if (!kernel || !may_look(spaces))
		return;
	spaces->latest = !spaces->latest;
	memset(later->told, 0, sizeof(later->told));
	begun = work_time(view);
	looked = look(later, kernel, view);
	cpu_budget_charge(&spaces->work, later->end, work_time(view) - begun);
	if (!looked || earlier->kernel != later->kernel)
		return;
	all = later->end >= spaces->told_all + TELL_INTERVAL;
	tell_what_stayed(spaces, earlier, later, view, all);
	if (all)
		spaces->told_all = later->end;
}

void guest_spaces_destroy(struct guest_spaces *spaces)
{
	free(spaces);
}
