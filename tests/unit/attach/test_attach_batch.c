/* SPDX-License-Identifier: Apache-2.0 */
/* The view of a batch of samples: each page is read once, and not before a sample was taken. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/sample_views.h"

#define PAGE  4096ull
#define PAGES 200 /* more than fit */
#define REST  100 /* bytes of RAM after them */

/* A guest whose reads are counted. */
struct called {
	struct guest_view view;
	struct guest_region region;
	uint8_t bytes[PAGES * PAGE + REST];
	unsigned int reads;
	struct batch_view batch;
};

static int read_called(const struct guest_view *view, uint64_t gpa, void *to, size_t size)
{
	struct called *called = view->context;

	called->reads++;
	memcpy(to, called->bytes + gpa, size);
	return 0;
}

/* Each page contains its number. */
static struct called *make(void)
{
	static struct called called;

	memset(&called, 0, sizeof(called));
	for (size_t i = 0; i < sizeof(called.bytes); i++)
		called.bytes[i] = (uint8_t)(i / PAGE);
	called.region = (struct guest_region){ .size = sizeof(called.bytes) };
	called.view = (struct guest_view){ .regions = &called.region,
					   .region_count = 1,
					   .read = read_called,
					   .context = &called };
	return &called;
}

static uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC_RAW);
}

static int byte_at(struct called *called, uint64_t time, uint64_t gpa)
{
	uint8_t byte = 0;

	CHECK_EQUAL(guest_read_physical(batch_view_for(&called->batch, &called->view, time), gpa,
					&byte, sizeof(byte)),
		    0);
	return byte;
}

TEST(attach_batch, a_page_is_read_once_for_samples_that_were_taken_before)
{
	struct called *called = make();
	uint64_t before = now();

	for (uint64_t i = 0; i < 100; i++)
		CHECK_EQUAL(byte_at(called, before + i % 2, 3 * PAGE + i * 40), 3);
	CHECK_EQUAL(called->reads, 1);
	CHECK_EQUAL(byte_at(called, before, 4 * PAGE), 4);
	CHECK_EQUAL(called->reads, 2);
}

TEST(attach_batch, no_page_is_older_than_the_sample)
{
	struct called *called = make();
	uint64_t before = now();

	CHECK_EQUAL(byte_at(called, before, PAGE), 1);
	called->bytes[PAGE] = 0x55;
	CHECK_EQUAL(byte_at(called, before, PAGE), 1);
	CHECK_EQUAL(byte_at(called, now(), PAGE), 0x55);
	CHECK_EQUAL(byte_at(called, before, PAGE), 0x55);
	CHECK_EQUAL(called->reads, 2);
}

TEST(attach_batch, more_pages_than_fit_are_read_correctly)
{
	struct called *called = make();
	uint64_t before = now();

	for (int round = 0; round < 3; round++)
		for (uint64_t i = 0; i < PAGES; i++)
			CHECK_EQUAL(byte_at(called, before, i * PAGE + 7), (uint8_t)i);
	called->reads = 0;
	for (uint64_t i = PAGES - BATCH_VIEW_PAGES; i < PAGES; i++)
		CHECK_EQUAL(byte_at(called, before, i * PAGE), (uint8_t)i);
	CHECK_EQUAL(called->reads, 0);
}

TEST(attach_batch, reads_cross_pages)
{
	struct called *called = make();
	const struct guest_view *view = batch_view_for(&called->batch, &called->view, now());
	uint8_t bytes[2 * PAGE];

	CHECK_EQUAL(guest_read_physical(view, 5 * PAGE - 8, bytes, sizeof(bytes)), 0);
	CHECK_EQUAL(bytes[7], 4);
	CHECK_EQUAL(bytes[8], 5);
	CHECK_EQUAL(bytes[PAGE + 7], 5);
	CHECK_EQUAL(bytes[PAGE + 8], 6);
}

/* In a page that is only partly RAM. */
TEST(attach_batch, only_ram_is_readable)
{
	struct called *called = make();
	const struct guest_view *view = batch_view_for(&called->batch, &called->view, now());
	uint8_t bytes[REST + 1];

	CHECK_EQUAL(guest_read_physical(view, PAGES * PAGE, bytes, REST), 0);
	CHECK_EQUAL(bytes[0], PAGES);
	CHECK_EQUAL(guest_read_physical(view, PAGES * PAGE, bytes, REST + 1), -EFAULT);
	CHECK_EQUAL(guest_read_physical(view, (PAGES + 1) * PAGE, bytes, 1), -EFAULT);
	CHECK_EQUAL(guest_read_physical(view, UINT64_MAX - 3, bytes, 1), -EFAULT);
	CHECK_EQUAL(byte_at(called, 0, (PAGES - 1) * PAGE), PAGES - 1);
}
