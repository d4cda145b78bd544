/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "shared/unconst.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/guest_view.h"

static const uint8_t low[16] = "0123456789abcdef", high[16] = "ghijklmnopqrstuv";
static const struct guest_region regions[] = {
	{ .gpa = 0x1000, .size = 16, .hva = low },
	{ .gpa = 0x1010, .size = 16, .hva = high },
	{ .gpa = UINT64_MAX - 15, .size = 16, .hva = low },
};
static const struct guest_view view = { .regions = regions, .region_count = 3 };

TEST(view, reads_across_adjacent_regions)
{
	char text[7] = "";

	CHECK_EQUAL(guest_read_physical(&view, 0x100d, text, 6), 0);
	CHECK_STRING(text, "defghi");
}

TEST(view, refuses_addresses_outside_of_ram)
{
	char text[32];

	CHECK_EQUAL(guest_read_physical(&view, 0xfff, text, 2), -EFAULT);
	CHECK_EQUAL(guest_read_physical(&view, 0x101f, text, 2), -EFAULT);
	CHECK_EQUAL(guest_read_physical(&view, UINT64_MAX, text, 2), -EFAULT);
	CHECK_EQUAL(guest_read_physical(&view, 0, text, 0), 0);
}

TEST(view, pointer_needs_one_mapped_region)
{
	CHECK(guest_physical_pointer(&view, 0x1004, 12) == low + 4);
	CHECK(!guest_physical_pointer(&view, 0x1004, 13));
	CHECK(!guest_physical_pointer(&view, 0x1004, SIZE_MAX));
	CHECK(!guest_physical_pointer(&view, 0x2000, 1));
}

static int read_from_context(const struct guest_view *from, uint64_t gpa, void *to, size_t size)
{
	memset(to, *(const char *)from->context, size);
	return gpa == 0x5008 ? -EIO : 0;
}

TEST(view, reads_another_process_through_its_function)
{
	const struct guest_region far_away = { .gpa = 0x5000, .size = 4096 };
	struct guest_view other = { .regions = &far_away,
				    .region_count = 1,
				    .read = read_from_context,
				    .context = unconst("x") };
	char text[3] = "";

	CHECK_EQUAL(guest_read_physical(&other, 0x5000, text, 2), 0);
	CHECK_STRING(text, "xx");
	CHECK_EQUAL(guest_read_physical(&other, 0x5008, text, 2), -EFAULT);
	CHECK(!guest_physical_pointer(&other, 0x5000, 1));
	other.read = NULL;
	CHECK_EQUAL(guest_read_physical(&other, 0x5000, text, 2), -EFAULT);
}
