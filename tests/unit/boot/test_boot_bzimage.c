/* SPDX-License-Identifier: Apache-2.0 */
#include <asm/bootparam.h>
#include <errno.h>
#include <stdlib.h>

#include "shared/error.h"
#include "tests/unit/boot_fixture.h"
#include "tests/unit/shim/test.h"
#include "vmm/boot/acpi.h"

#define RAM (64u << 20)

static struct boot_params zero_page(const struct boot_fixture *fixture)
{
	struct boot_params params = { 0 };

	CHECK(span_copy(guest_bytes(fixture, fixture->start.rsi, sizeof(params)), 0, &params,
			sizeof(params)));
	return params;
}

static void check_payload(const struct boot_fixture *fixture, uint64_t gpa)
{
	struct span loaded = guest_bytes(fixture, gpa, BZIMAGE_PAYLOAD_SIZE);

	for (size_t i = 0; i < loaded.size; i++)
		if (loaded.data[i] != image_pattern(i)) {
			FAIL_TEST("byte %zu of the kernel is %#x", i, loaded.data[i]);
			return;
		}
}

TEST(boot, bzimage_is_at_its_preferred_address_and_starts_in_long_mode)
{
	struct boot_fixture fixture;
	struct image image;

	image_bzimage(&image);
	fixture_image(&fixture, RAM, &image);
	CHECK_EQUAL(fixture_load(&fixture), 0);
	CHECK_EQUAL(fixture.start.protocol, BOOT_BZIMAGE);
	CHECK(fixture.start.long_mode);
	CHECK_EQUAL(fixture.start.rip, BZIMAGE_ADDRESS + 0x200);
	CHECK(!fixture.start.image);
	check_payload(&fixture, BZIMAGE_ADDRESS);
	fixture_close(&fixture);
}

TEST(boot, zero_page_has_command_line_initrd_rsdp_and_seed)
{
	static const uint8_t initrd[5000] = { 1, 2, 3 };
	struct boot_fixture fixture;
	struct boot_params params;
	struct image image;
	uint32_t seed_type = 0;

	image_bzimage(&image);
	fixture_image(&fixture, RAM, &image);
	fixture_initrd(&fixture, initrd, sizeof(initrd));
	fixture.options.append = "console=ttyS0 quiet";
	fixture.options.rsdp = ACPI_START;
	CHECK_EQUAL(fixture_load(&fixture), 0);
	params = zero_page(&fixture);
	CHECK_EQUAL(params.hdr.header, 0x53726448);
	CHECK_EQUAL(params.hdr.type_of_loader, 0xff);
	CHECK_EQUAL(params.acpi_rsdp_addr, ACPI_START);
	CHECK_EQUAL(params.hdr.code32_start, BZIMAGE_ADDRESS);
	check_command_line(&fixture, params.hdr.cmd_line_ptr, "pci=off console=ttyS0 quiet");
	CHECK_EQUAL(params.hdr.ramdisk_size, sizeof(initrd));
	CHECK_EQUAL(params.hdr.ramdisk_image, (RAM - sizeof(initrd)) & ~0xfffu);
	CHECK(!memcmp(guest_bytes(&fixture, params.hdr.ramdisk_image, sizeof(initrd)).data, initrd,
		      sizeof(initrd)));
	CHECK(span_u32(guest_bytes(&fixture, params.hdr.setup_data, 48), 8, &seed_type));
	CHECK_EQUAL(seed_type, SETUP_RNG_SEED);
	fixture_close(&fixture);
}

/* Registers as boot.rst has them: ESI is the zero page; EBP, EDI and EBX are 0; no paging. */
TEST(boot, bzimage_without_a_64_bit_entry_starts_in_32_bit_mode)
{
	struct boot_fixture fixture;
	struct image image;

	image_bzimage(&image);
	memset(image.bytes + 0x1f1 + offsetof(struct setup_header, xloadflags), 0, 2);
	fixture_image(&fixture, RAM, &image);
	CHECK_EQUAL(fixture_load(&fixture), 0);
	CHECK(!fixture.start.long_mode);
	CHECK_EQUAL(fixture.start.rip, BZIMAGE_ADDRESS);
	CHECK_EQUAL(zero_page(&fixture).hdr.code32_start, BZIMAGE_ADDRESS);
	CHECK_EQUAL(fixture.start.rbx, 0);
	CHECK_EQUAL(fixture.start.cr3, 0);
	fixture_close(&fixture);
}

TEST(boot, memory_map_has_only_ram)
{
	struct boot_fixture fixture;
	struct boot_params params;
	struct image image;
	uint64_t ram = 0, end = 0;

	image_bzimage(&image);
	fixture_image(&fixture, MEMORY_LOW_END + (1ull << 30), &image);
	CHECK_EQUAL(fixture_load(&fixture), 0);
	params = zero_page(&fixture);
	for (unsigned int i = 0; i < params.e820_entries; i++) {
		const struct boot_e820_entry entry = params.e820_table[i];

		CHECK(entry.addr >= end);
		end = entry.addr + entry.size;
		if (entry.type != 1)
			continue;
		ram += entry.size;
		CHECK(end <= 0xa0000 || entry.addr >= 0x100000);
		CHECK(end <= MEMORY_LOW_END || entry.addr >= MEMORY_HIGH_START);
	}
	CHECK_EQUAL(end, MEMORY_HIGH_START + (1ull << 30));
	CHECK_EQUAL(ram, MEMORY_LOW_END + (1ull << 30) - 0x100000 + 0x9fc00);
	fixture_close(&fixture);
}

/* Walks the page tables as the CPU would. */
static uint64_t translate(const struct boot_fixture *fixture, uint64_t address)
{
	uint64_t table = fixture->start.cr3, entry = 0;

	for (int shift = 39; shift >= 21; shift -= 9) {
		CHECK(span_u64(guest_bytes(fixture, table, 4096), (address >> shift & 511) * 8,
			       &entry));
		if (!(entry & 1))
			return UINT64_MAX;
		table = entry & 0xffffffffff000ull;
	}
	CHECK(entry & 0x80);
	return table | (address & 0x1fffff);
}

TEST(boot, page_tables_map_four_gigabytes_one_to_one)
{
	struct boot_fixture fixture;
	struct image image;
	uint64_t code = 0, data = 0;

	image_bzimage(&image);
	fixture_image(&fixture, RAM, &image);
	CHECK_EQUAL(fixture_load(&fixture), 0);
	for (uint64_t address = 0; address < 0x100000000; address += 0x1234567)
		CHECK_EQUAL(translate(&fixture, address), address);
	CHECK_EQUAL(translate(&fixture, 0x100000000), UINT64_MAX);
	CHECK(span_u64(guest_bytes(&fixture, fixture.start.gdt, fixture.start.gdt_size), 0x10,
		       &code));
	CHECK(span_u64(guest_bytes(&fixture, fixture.start.gdt, fixture.start.gdt_size), 0x18,
		       &data));
	CHECK_EQUAL(code >> 52 & 0xf, 0xa); /* 4 KiB granularity, 64-bit */
	CHECK_EQUAL(data >> 40 & 0xff, 0x93);
	fixture_close(&fixture);
}

TEST(boot, bzimage_that_does_not_fit_reports_its_size)
{
	static const uint8_t initrd[1 << 20] = { 1 };
	struct boot_fixture fixture;
	struct image image;

	image_bzimage(&image);
	fixture_image(&fixture, 17 << 20, &image);
	CHECK_EQUAL(fixture_load(&fixture), -ENOSPC);
	CHECK(strstr(error_message(), "18 MiB"));
	fixture_close(&fixture);
	/* init_size fits, the initrd after it does not */
	fixture_image(&fixture, 18 << 20, &image);
	CHECK_EQUAL(fixture_load(&fixture), 0);
	fixture_initrd(&fixture, initrd, sizeof(initrd));
	CHECK_EQUAL(fixture_load(&fixture), -ENOSPC);
	fixture_close(&fixture);
}

TEST(boot, initrd_stays_below_the_kernels_limit)
{
	static const uint8_t initrd[4096] = { 1 };
	const uint32_t limit = 0x1ffffff;
	struct boot_fixture fixture;
	struct image image;

	image_bzimage(&image);
	memcpy(image.bytes + 0x1f1 + offsetof(struct setup_header, initrd_addr_max), &limit,
	       sizeof(limit));
	fixture_image(&fixture, RAM, &image);
	fixture_initrd(&fixture, initrd, sizeof(initrd));
	CHECK_EQUAL(fixture_load(&fixture), 0);
	CHECK_EQUAL(zero_page(&fixture).hdr.ramdisk_image, limit + 1 - 4096);
	fixture_close(&fixture);
}

static void check_refused(size_t offset, uint32_t value, size_t size, int error, const char *word)
{
	struct boot_fixture fixture;
	struct image image;

	image_bzimage(&image);
	memcpy(image.bytes + 0x1f1 + offset, &value, size);
	fixture_image(&fixture, RAM, &image);
	check_load_fails(&fixture, error, word);
}

TEST(boot, bzimage_headers_out_of_line_are_refused_by_name)
{
	check_refused(offsetof(struct setup_header, version), 0x20b, 2, -ENOEXEC, "2.11");
	check_refused(offsetof(struct setup_header, loadflags), 0, 1, -ENOEXEC, "zImage");
	check_refused(offsetof(struct setup_header, syssize), 0x7fffffff, 4, -ENOEXEC, "truncated");
	check_refused(offsetof(struct setup_header, setup_sects), 200, 1, -ENOEXEC, "truncated");
	check_refused(offsetof(struct setup_header, init_size), 0xffffffff, 4, -ENOSPC,
		      "does not fit");
	check_refused(offsetof(struct setup_header, pref_address) + 4, 1, 4, -ENOEXEC,
		      "load address");
}

TEST(boot, command_line_that_is_too_long_is_refused)
{
	struct boot_fixture fixture;
	struct image image;
	char *line = malloc(3000);

	memset(line, 'a', 2999);
	line[2999] = '\0';
	image_bzimage(&image);
	fixture_image(&fixture, RAM, &image);
	fixture.options.append = line;
	CHECK_EQUAL(fixture_load(&fixture), -E2BIG);
	line[2047] = '\0';
	CHECK_EQUAL(fixture_load(&fixture), 0);
	fixture_close(&fixture);
	free(line);
}

static void check_linux_line(const char *append, const char *expected)
{
	struct boot_fixture fixture;
	struct image image;

	image_bzimage(&image);
	fixture_image(&fixture, RAM, &image);
	fixture.options.append = append;
	CHECK_EQUAL(fixture_load(&fixture), 0);
	check_command_line(&fixture, zero_page(&fixture).hdr.cmd_line_ptr, expected);
	fixture_close(&fixture);
}

TEST(boot, linux_does_not_search_for_pci_unless_its_command_line_says_so)
{
	char line[2048] = { 0 };

	check_linux_line("", "pci=off ");
	check_linux_line("quiet -- pci=conf1", "pci=off quiet -- pci=conf1");
	check_linux_line("quiet xpci=1", "pci=off quiet xpci=1");
	check_linux_line("quiet pci=conf1", "quiet pci=conf1");
	check_linux_line("pci=conf1", "pci=conf1");
	memset(line, 'a', sizeof(line) - 1);
	check_linux_line(line, line); /* no room */
}

TEST(boot, bzimage_truncated_anywhere_is_an_error)
{
	struct image image;

	image_bzimage(&image);
	check_truncated(&image, BOOT_AUTO, image.size - 16);
	check_truncated(&image, BOOT_BZIMAGE, image.size - 16);
}

TEST(boot, bzimage_corrupted_anywhere_does_no_harm)
{
	struct image image;

	image_bzimage(&image);
	check_corrupted(&image, BOOT_AUTO);
	check_corrupted(&image, BOOT_BZIMAGE);
}
