/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/collector_kernel.h"

#include <errno.h>
#include <time.h>

#include "tests/unit/flat_guest.h"
#include "tests/unit/shim/test.h"

#define MILLISECOND 1000000ull
#define WAIT        (50 * MILLISECOND) /* for the first that is read */
#define NOW         (1000 * MILLISECOND)

/* A guest whose memory is waited for, without use of the CPU, and in which there is no kernel. */
struct waiting {
	struct flat_guest guest;
	struct guest_region region;
	struct guest_view view;
	struct collector_options options;
	struct collector_kernel kernel;
	unsigned int reads;
};

static int wait_and_read(const struct guest_view *view, uint64_t gpa, void *to, size_t size)
{
	struct waiting *waiting = view->context;
	struct timespec left = { .tv_nsec = (long)WAIT };

	if (!waiting->reads++)
		while (nanosleep(&left, &left) && errno == EINTR)
			;
	return guest_read_physical(&waiting->guest.view, gpa, to, size);
}

static bool get_registers(void *context, struct guest_registers *registers)
{
	*registers = ((struct waiting *)context)->guest.registers;
	return true;
}

/* ns of a processor that a search for a kernel is taken to have cost, also when the next boot has
 * begun. */
static uint64_t search_once(bool remote)
{
	struct waiting waiting = { .reads = 0 };

	flat_guest_create(&waiting.guest, 1 << 20);
	waiting.guest.registers.paging.cr4 |=
		1ull << 32; /* FRED: there is no IDT that could not be one yet */
	waiting.region = (struct guest_region){ .gpa = 0, .size = 1 << 20 };
	waiting.view = (struct guest_view){ .regions = &waiting.region,
					    .region_count = 1,
					    .read = wait_and_read,
					    .context = &waiting,
					    .remote = remote };
	waiting.options = (struct collector_options){ .view = &waiting.view,
						      .registers = get_registers,
						      .context = &waiting };
	CHECK_EQUAL(collector_kernel_init(&waiting.kernel, &waiting.options), 0);
	CHECK_EQUAL(collector_kernel_update(&waiting.kernel, NOW), 0);
	CHECK(waiting.reads);
	CHECK(!collector_kernel_newest(&waiting.kernel));
	collector_kernel_end_boot(&waiting.kernel);
	collector_kernel_free(&waiting.kernel);
	flat_guest_destroy(&waiting.guest);
	return waiting.kernel.pace.work.used;
}

TEST(collector_kernel, a_search_that_waits_for_memory_is_followed_by_a_pause)
{
	uint64_t work = search_once(false);

	CHECK(work >= WAIT / CPU_BUDGET_SHARE);
	CHECK(work < WAIT);
}

TEST(collector_kernel, what_others_read_for_us_is_work)
{
	CHECK(search_once(true) >= WAIT);
}
