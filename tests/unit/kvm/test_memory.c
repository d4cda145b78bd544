/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "vmm/kvm/guest_ram.h"
#include "vmm/sample/vm_view.h"

TEST(memory, is_split_at_the_pci_hole)
{
	struct memory memory;

	REQUIRE_EQUAL(memory_create(&memory, 5ull << 30), 0);
	CHECK_EQUAL(memory.region_count, 2);
	CHECK_EQUAL(memory.regions[0].size, MEMORY_LOW_END);
	CHECK_EQUAL(memory.regions[1].gpa, MEMORY_HIGH_START);
	CHECK_EQUAL(memory.regions[1].size, (5ull << 30) - MEMORY_LOW_END);
	CHECK(memory_pointer(&memory, MEMORY_LOW_END - 8, 8));
	CHECK(!memory_pointer(&memory, MEMORY_LOW_END - 8, 9));
	/* KVM uses huge pages only if both addresses have the same offset in them. */
	for (size_t i = 0; i < memory.region_count; i++)
		CHECK_EQUAL((uintptr_t)memory.regions[i].hva % (2 << 20), 0);
	CHECK(!memory_pointer(&memory, MEMORY_LOW_END, 1));
	CHECK(memory_pointer(&memory, MEMORY_HIGH_START, 1));
	CHECK(!memory_pointer(&memory, MEMORY_HIGH_START + memory.regions[1].size, 1));
	CHECK(!memory_pointer(&memory, UINT64_MAX, 2));
	CHECK(!memory_pointer(&memory, 16, UINT64_MAX));
	memory_destroy(&memory);
}

/* The VmFlags in /proc/self/smaps of the mapping that has ADDRESS; false if there are none. */
static bool flags_of(const void *address, char *flags, size_t size)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	unsigned long begin, end;
	bool inside = false, found = false;
	char line[4096];

	while (file && !found && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			inside = (uintptr_t)address >= begin && (uintptr_t)address < end;
		found = inside && !strncmp(line, "VmFlags:", 8);
	}
	if (file)
		fclose(file);
	snprintf(flags, size, "%.*s", (int)size - 1, found ? line : "");
	return found;
}

TEST(memory, can_use_huge_pages)
{
	struct memory memory;
	char flags[256];

	if (access("/sys/kernel/mm/transparent_hugepage", F_OK))
		SKIP("the kernel has no transparent huge pages");
	REQUIRE_EQUAL(memory_create(&memory, 5ull << 30), 0);
	for (size_t i = 0; i < memory.region_count; i++) {
		CHECK(flags_of(memory.regions[i].hva, flags, sizeof(flags)));
		CHECK(strstr(flags, " hg"));
	}
	memory_destroy(&memory);
}

TEST(memory, copies_inside_only)
{
	struct memory memory;
	uint64_t value = 0x1234;

	REQUIRE_EQUAL(memory_create(&memory, 1 << 20), 0);
	CHECK_EQUAL(memory_write(&memory, (1 << 20) - 8, &value, 8), 0);
	CHECK_EQUAL(memory_write(&memory, (1 << 20) - 7, &value, 8), -EFAULT);
	value = 0;
	CHECK_EQUAL(memory_read(&memory, (1 << 20) - 8, &value, 8), 0);
	CHECK_EQUAL(value, 0x1234);
	memory_destroy(&memory);
}

TEST(memory, patch_is_not_seen_by_readers_of_the_guest)
{
	struct vm_view view;
	struct memory memory;
	uint8_t bytes[4] = { 0x90, 0x0f, 0x33, 0xcc }, read[4];

	REQUIRE_EQUAL(memory_create(&memory, 1 << 20), 0);
	vm_view_init(&view, &memory);
	CHECK_EQUAL(memory_write(&memory, 0x1000, bytes, 4), 0);
	CHECK_EQUAL(memory_patch(&memory, 0x1001, 0x0f), 0);
	CHECK_EQUAL(memory_read(&memory, 0x1000, read, 4), 0);
	CHECK_EQUAL(read[1], PATCHES_INT3);
	/* Reads that start before, at and after the patch. The guest's own INT3 stays visible. */
	for (unsigned int from = 0; from < 4; from++) {
		CHECK_EQUAL(guest_read_physical(&view.view, 0x1000 + from, read, 4 - from), 0);
		CHECK(!memcmp(read, bytes + from, 4 - from));
	}
	/* The guest has written other code there. */
	bytes[1] = 0x55;
	CHECK_EQUAL(memory_write(&memory, 0x1000, bytes, 4), 0);
	CHECK_EQUAL(guest_read_physical(&view.view, 0x1000, read, 4), 0);
	CHECK_EQUAL(read[1], 0x55);
	CHECK_EQUAL(memory_patch(&memory, 1 << 20, 0x0f), -EFAULT);
	for (unsigned int i = 1; i < PATCHES_MAX; i++)
		CHECK_EQUAL(memory_patch(&memory, i, 0), 0);
	CHECK_EQUAL(memory_patch(&memory, 0x2000, 0), -ENOSPC);
	memory_destroy(&memory);
}

/* Another kernel was loaded there. */
TEST(memory, patch_ends_when_other_code_is_written)
{
	static const uint8_t rdpmc[] = { 0x0f, 0x33 }, breakpoint[] = { 0xcc, 0x90 };
	struct vm_view view;
	struct memory memory;
	uint8_t read[2];

	REQUIRE_EQUAL(memory_create(&memory, 1 << 20), 0);
	vm_view_init(&view, &memory);
	CHECK_EQUAL(memory_write(&memory, 0x1100, rdpmc, 2), 0);
	CHECK_EQUAL(memory_patch(&memory, 0x1100, 0x0f), 0);
	CHECK(memory_is_patched(&memory, 0x1100));
	CHECK(!memory_is_patched(&memory, 0x1101));
	CHECK_EQUAL(memory_write(&memory, 0x1100, breakpoint, 2), 0);
	CHECK(!memory_is_patched(&memory, 0x1100));
	for (unsigned int size = 1; size <= 2; size++) {
		CHECK_EQUAL(guest_read_physical(&view.view, 0x1100, read, size), 0);
		CHECK_EQUAL(read[0], 0xcc);
	}
	memory_destroy(&memory);
}

/* The instruction continues in another page, which need not be the next physical one. */
TEST(memory, patch_may_be_at_the_end_of_a_page)
{
	struct vm_view view;
	struct memory memory;
	uint8_t other = 0x55, read;

	REQUIRE_EQUAL(memory_create(&memory, 1 << 20), 0);
	vm_view_init(&view, &memory);
	for (uint64_t gpa = 0x1fff; gpa <= 0xfffff; gpa += 0xfe000) {
		CHECK_EQUAL(memory_patch(&memory, gpa, 0x0f), 0);
		(void)memory_write(&memory, gpa + 1, &other, 1);
		CHECK(memory_is_patched(&memory, gpa));
		CHECK_EQUAL(guest_read_physical(&view.view, gpa, &read, 1), 0);
		CHECK_EQUAL(read, 0x0f);
	}
	memory_destroy(&memory);
}

TEST(memory, refuses_odd_sizes)
{
	struct memory memory;

	CHECK_EQUAL(memory_create(&memory, 4096), -EINVAL);
	CHECK_EQUAL(memory_create(&memory, (1 << 20) + 1), -EINVAL);
	CHECK_EQUAL(memory_create(&memory, UINT64_MAX & ~0xfffull), -ENOMEM);
}
