/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "tests/unit/flat_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/page_walk.h"

#define GUEST_SIZE (1 << 20)
#define KERNEL     0xffffffff81000000ull

static uint64_t translate(const struct flat_guest *guest, uint64_t gva)
{
	struct guest_translation translation;

	return guest_translate(&guest->view, &guest->registers.paging, gva, &translation)
		       ? UINT64_MAX
		       : translation.gpa;
}

static void write_u32(struct flat_guest *guest, uint64_t gpa, uint32_t value)
{
	memcpy(guest->memory + gpa, &value, sizeof(value));
}

TEST(page_walk, four_levels_with_all_page_sizes)
{
	struct guest_translation translation;
	uint64_t cr3;

	FIXTURE(struct flat_guest, guest, flat_guest_create, flat_guest_destroy, GUEST_SIZE);
	cr3 = guest.registers.paging.cr3;
	flat_guest_map(&guest, cr3, KERNEL, 0x5000, 4096, 1ull << 63);
	flat_guest_map(&guest, cr3, KERNEL + (2 << 20), 0x40000000, 2 << 20, 0);
	flat_guest_map(&guest, cr3, 0x4000000000, 0x80000000, 1 << 30, 4);
	CHECK_EQUAL(translate(&guest, KERNEL + 0x123), 0x5123);
	CHECK_EQUAL(translate(&guest, KERNEL + (2 << 20) + 0x12345), 0x40012345);
	CHECK_EQUAL(translate(&guest, 0x4012345678), 0x92345678);
	CHECK_EQUAL(translate(&guest, KERNEL + 4096), UINT64_MAX);
	CHECK_EQUAL(translate(&guest, KERNEL & 0xffffffffffffull), UINT64_MAX);
	REQUIRE_EQUAL(guest_translate(&guest.view, &guest.registers.paging, KERNEL, &translation),
		      0);
	CHECK_EQUAL(translation.flags, 1ull << 63 | 1);
	CHECK_EQUAL(translation.page_size, 4096);
}

TEST(page_walk, five_levels)
{
	uint64_t four, five;

	FIXTURE(struct flat_guest, guest, flat_guest_create, flat_guest_destroy, GUEST_SIZE);
	four = guest.registers.paging.cr3;
	flat_guest_map(&guest, four, KERNEL, 0x5000, 4096, 0);
	five = flat_guest_table(&guest);
	flat_guest_write_u64(&guest, five + 511 * 8, four | 3);
	flat_guest_write_u64(&guest, five + 0x11 * 8, four | 3);
	guest.registers.paging.cr3 = five | 0x1f; /* PCID bits are not part of the address */
	guest.registers.paging.cr4 |= 1 << 12;
	CHECK_EQUAL(translate(&guest, KERNEL + 1), 0x5001);
	CHECK_EQUAL(translate(&guest, 0x0011ff8000000000ull | (KERNEL & 0x7fffffffff)), 0x5000);
	CHECK_EQUAL(translate(&guest, 0x0111ffff81000000ull), UINT64_MAX);
}

TEST(page_walk, large_page_bit_is_reserved_in_the_top_table)
{
	FIXTURE(struct flat_guest, guest, flat_guest_create, flat_guest_destroy, GUEST_SIZE);
	flat_guest_write_u64(&guest, guest.registers.paging.cr3, 0x81);
	CHECK_EQUAL(translate(&guest, 0), UINT64_MAX);
}

TEST(page_walk, pae)
{
	FIXTURE(struct flat_guest, guest, flat_guest_create, flat_guest_destroy, GUEST_SIZE);
	guest.registers.paging =
		(struct guest_paging){ .cr0 = 1u << 31, .cr3 = 0x1020, .cr4 = 1 << 5 };
	flat_guest_write_u64(&guest, 0x1020 + 3 * 8, 0x2001);
	flat_guest_write_u64(&guest, 0x2000 + 2 * 8, 0x3001);
	flat_guest_write_u64(&guest, 0x2000 + 3 * 8, 0x10000000 | 0x81);
	flat_guest_write_u64(&guest, 0x3000 + 5 * 8, 0x7001);
	CHECK_EQUAL(translate(&guest, 0xc0405678), 0x7678);
	CHECK_EQUAL(translate(&guest, 0xc0612345), 0x10012345);
	CHECK_EQUAL(translate(&guest, 0x80405678), UINT64_MAX);
	CHECK_EQUAL(translate(&guest, 0x1c0405678), UINT64_MAX);
}

TEST(page_walk, thirty_two_bit)
{
	FIXTURE(struct flat_guest, guest, flat_guest_create, flat_guest_destroy, GUEST_SIZE);
	guest.registers.paging =
		(struct guest_paging){ .cr0 = 1u << 31, .cr3 = 0x1000, .cr4 = 1 << 4 };
	write_u32(&guest, 0x1000 + 4 * 0x300, 0x2001);
	write_u32(&guest, 0x1000 + 4 * 0x301,
		  0x00c02081); /* 0x1_00c0_0000: bit 13 is address bit 32 */
	write_u32(&guest, 0x2000 + 4 * 5, 0x7001);
	CHECK_EQUAL(translate(&guest, 0xc0005678), 0x7678);
	CHECK_EQUAL(translate(&guest, 0xc0412345), 0x100c12345);
	guest.registers.paging.cr4 = 0;
	CHECK_EQUAL(translate(&guest, 0xc0412345), UINT64_MAX);
}

TEST(page_walk, paging_off)
{
	FIXTURE(struct flat_guest, guest, flat_guest_create, flat_guest_destroy, GUEST_SIZE);
	guest.registers.paging.cr0 = 1;
	guest.registers.paging.efer = 0;
	CHECK_EQUAL(translate(&guest, 0xfffff), 0xfffff);
	CHECK_EQUAL(translate(&guest, KERNEL), UINT64_MAX);
}

TEST(page_walk, tables_outside_of_ram_are_refused)
{
	FIXTURE(struct flat_guest, guest, flat_guest_create, flat_guest_destroy, GUEST_SIZE);
	guest.registers.paging.cr3 = 1ull << 40;
	CHECK_EQUAL(translate(&guest, KERNEL), UINT64_MAX);
}

TEST(page_walk, reads_and_strings_cross_pages)
{
	char text[16];
	uint64_t cr3;

	FIXTURE(struct flat_guest, guest, flat_guest_create, flat_guest_destroy, GUEST_SIZE);
	cr3 = guest.registers.paging.cr3;
	flat_guest_map(&guest, cr3, KERNEL, 0x9000, 4096, 0);
	flat_guest_map(&guest, cr3, KERNEL + 4096, 0x3000, 4096, 0);
	memcpy(guest.memory + 0x9ffd, "abc", 3);
	memcpy(guest.memory + 0x3000, "def", 4);
	memset(guest.memory + 0x3ff8, 'x', 8);
	CHECK_EQUAL(
		guest_read_virtual(&guest.view, &guest.registers.paging, KERNEL + 4093, text, 7),
		0);
	CHECK_STRING(text, "abcdef");
	CHECK_EQUAL(
		guest_read_string(&guest.view, &guest.registers.paging, KERNEL + 4094, text, 16),
		0);
	CHECK_STRING(text, "bcdef");
	CHECK_EQUAL(guest_read_string(&guest.view, &guest.registers.paging, KERNEL + 4093, text, 6),
		    -ENAMETOOLONG);
	CHECK_EQUAL(
		guest_read_string(&guest.view, &guest.registers.paging, KERNEL + 8184, text, 16),
		-EFAULT);
	CHECK_EQUAL(
		guest_read_virtual(&guest.view, &guest.registers.paging, KERNEL + 8190, text, 3),
		-EFAULT);
}
