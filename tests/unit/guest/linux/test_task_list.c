/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's list of processes and their page tables, and how they are reported. */
#include "vmm/guest/linux/task.h"

#include <errno.h>
#include <unistd.h>

#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/task_guest.h"
#include "vmm/session/page_table_scan.h"

#define LIST 0x800ull /* of tasks in struct task_struct */

/* init_task, the worker's process, a kernel thread, and the other process; 1 to 3 are in the list
 * in their order. */
static struct guest_task_layout put_list(struct task_guest *made)
{
	struct guest_task_layout layout = task_guest_layout;

	layout.first = DIRECT + TASK(0);
	layout.list = LIST;
	task_guest_make(made);
	task_guest_put_task(made, 3, 2, 2, "kthreadd");
	task_guest_put(made, TASK(3) + layout.mm, 0);
	for (unsigned int n = 0; n < 4; n++) {
		task_guest_put(made, TASK(n) + LIST, DIRECT + TASK((n + 1) % 4) + LIST);
		task_guest_put(made, TASK(n) + LIST + 8, DIRECT + TASK((n + 3) % 4) + LIST);
	}
	return layout;
}

TEST(task_list, has_processes_with_memory_of_their_own)
{
	struct guest_process list[4];
	struct task_guest made;
	struct guest_task_layout layout = put_list(&made);

	CHECK_EQUAL(guest_task_list(&layout, &made.guest.view, &made.kernel, list, 4), 2);
	CHECK(list[0].pid == 700 && list[0].root == TABLES(1));
	CHECK(list[1].pid == 800 && list[1].root == TABLES(2));
	CHECK_EQUAL(guest_task_list(&layout, &made.guest.view, &made.kernel, list, 1), -EAGAIN);
	layout.first = 0;
	CHECK_EQUAL(guest_task_list(&layout, &made.guest.view, &made.kernel, list, 4), -ENOENT);
	task_guest_free(&made);
}

/* A task has ended, and another one uses its memory. */
TEST(task_list, changing_or_invalid_list_is_refused)
{
	struct guest_process list[4];
	struct task_guest made;
	struct guest_task_layout layout = put_list(&made);

	task_guest_put(&made, TASK(2) + LIST + 8, DIRECT + TASK(3) + LIST);
	CHECK_EQUAL(guest_task_list(&layout, &made.guest.view, &made.kernel, list, 4), -EAGAIN);
	task_guest_put(&made, TASK(2) + LIST + 8, DIRECT + TASK(1) + LIST);
	task_guest_put(&made, TASK(2) + LIST, 0);
	CHECK_EQUAL(guest_task_list(&layout, &made.guest.view, &made.kernel, list, 4), -EAGAIN);
	task_guest_put(&made, TASK(1) + layout.mm, 0x1234);
	CHECK_EQUAL(guest_task_list(&layout, &made.guest.view, &made.kernel, list, 4), -EAGAIN);
	task_guest_free(&made);
}

TEST(task_list, tables_that_map_the_same_are_a_pair)
{
	FIXTURE(struct task_guest, made, task_guest_make, task_guest_free);
	CHECK(!guest_task_has_pti_pair(&made.guest.view, TABLES(1))); /* nothing is mapped */
	task_guest_put(&made, TABLES(1) + 8, 0x8000000000700067);
	CHECK(!guest_task_has_pti_pair(&made.guest.view, TABLES(1)));
	task_guest_put(&made, TABLES(1) + 0x1008, 0x700067);
	CHECK(guest_task_has_pti_pair(&made.guest.view, TABLES(1)));
	CHECK(!guest_task_has_pti_pair(&made.guest.view, TABLES(1) + 0x1000));
	task_guest_put(&made, TABLES(1) + 0x1010, 0x701067);
	CHECK(!guest_task_has_pti_pair(&made.guest.view, TABLES(1)));
	CHECK(!guest_task_has_pti_pair(&made.guest.view, TASK_GUEST_SIZE));
}

/* The processes reported in the ring; each once. */
static unsigned int take_told(struct ring *ring, uint64_t *root)
{
	const struct ring_record *record;
	unsigned int count = 0;

	while ((record = ring_read(ring))) {
		const struct sideband *report =
			sideband_check(span_of(record->payload, record->size - sizeof(*record)));

		CHECK(report && report->type == SIDEBAND_ADDRESS_SPACE && report->pid == 700);
		*root = report ? report->cr3 : 0;
		count++;
	}
	ring_read_done(ring);
	return count;
}

static unsigned int scan(struct page_table_scan *scans, const struct guest_kernel *kernel,
			 struct task_guest *made, struct ring *ring, uint64_t *root)
{
	usleep(PAGE_TABLE_SCAN_INTERVAL / 1000);
	page_table_scan_update(scans, kernel, &made->guest.view);
	return take_told(ring, root);
}

TEST(page_table_scan, reports_what_two_scans_agree_on)
{
	struct guest_kernel kernel = { 0 };
	struct page_table_scan *scans;
	struct task_guest made;
	struct ring *ring;
	uint64_t root = 0;

	kernel.tasks = put_list(&made);
	kernel.paging = made.kernel;
	task_guest_put(&made, TASK(2) + kernel.tasks.mm, 0);
	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	REQUIRE_EQUAL(page_table_scan_create(&scans, ring), 0);
	CHECK_EQUAL(scan(scans, &kernel, &made, ring, &root), 0);
	CHECK_EQUAL(scan(scans, &kernel, &made, ring, &root), 1);
	CHECK_EQUAL(root, TABLES(1));
	page_table_scan_update(scans, &kernel, &made.guest.view); /* too soon */
	CHECK_EQUAL(take_told(ring, &root), 0);
	/* It runs another program. */
	task_guest_put(&made, MM(1) + kernel.tasks.page_table, DIRECT + TABLES(3));
	CHECK_EQUAL(scan(scans, &kernel, &made, ring, &root), 0);
	CHECK_EQUAL(scan(scans, &kernel, &made, ring, &root), 1);
	CHECK_EQUAL(root, TABLES(3));
	/* Another kernel: its tasks have not been reported yet. */
	kernel.identity.gva = 1;
	CHECK_EQUAL(scan(scans, &kernel, &made, ring, &root), 0);
	CHECK_EQUAL(scan(scans, NULL, &made, ring, &root), 0);
	page_table_scan_destroy(scans);
	ring_destroy(ring);
	task_guest_free(&made);
}
