/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "shared/error.h"
#include "tests/unit/boot_fixture.h"
#include "tests/unit/shim/test.h"

#define RAM (64u << 20)

enum {
	INFO_FLAGS = 0,
	INFO_UPPER = 8,
	INFO_LINE = 16,
	INFO_MODULE_COUNT = 20,
	INFO_MODULES = 24,
	INFO_MAP_SIZE = 44,
	INFO_MAP = 48
};

static uint32_t info(const struct boot_fixture *fixture, uint64_t offset)
{
	uint32_t value = 0;

	CHECK(span_u32(guest_bytes(fixture, fixture->start.rbx, 4096), offset, &value));
	return value;
}

static const char *info_string(const struct boot_fixture *fixture, uint64_t offset)
{
	return (const char *)guest_bytes(fixture, info(fixture, offset), 4096).data;
}

static void check_elf(bool is_64)
{
	struct boot_fixture fixture;
	struct image image;

	image_elf(&image, &(struct elf_spec){
				  .is_64 = is_64, .entry = ELF_ADDRESS + 4, .multiboot = true });
	fixture_image(&fixture, RAM, &image);
	fixture.options.append = "one two";
	CHECK_EQUAL(fixture_load(&fixture), 0);
	CHECK_EQUAL(fixture.start.protocol, BOOT_MULTIBOOT);
	CHECK(!fixture.start.long_mode);
	CHECK_EQUAL(fixture.start.rip, ELF_ADDRESS + 4);
	CHECK_EQUAL(fixture.start.rax, 0x2badb002);
	CHECK_EQUAL(info(&fixture, INFO_FLAGS) & 0x4d, 0x45);
	CHECK_EQUAL(info(&fixture, INFO_UPPER), (RAM >> 10) - 1024);
	CHECK(strstr(info_string(&fixture, INFO_LINE), " one two"));
	CHECK_EQUAL(info(&fixture, INFO_MAP_SIZE) % 24, 0);
	CHECK_EQUAL(guest_bytes(&fixture, info(&fixture, INFO_MAP), 4).data[0], 20);
	fixture_close(&fixture);
}

/* Xen places its trampoline below what these say. */
TEST(boot, bios_data_area_describes_memory_below_the_ebda)
{
	struct boot_fixture fixture;
	struct image image;
	uint16_t ebda = 0, kib = 0;

	image_elf(&image, &(struct elf_spec){ .entry = ELF_ADDRESS + 4, .multiboot = true });
	fixture_image(&fixture, RAM, &image);
	CHECK_EQUAL(fixture_load(&fixture), 0);
	CHECK(span_u16(guest_bytes(&fixture, 0x400, 0x100), 0xe, &ebda));
	CHECK(span_u16(guest_bytes(&fixture, 0x400, 0x100), 0x13, &kib));
	CHECK_EQUAL(ebda, 0x9fc0);
	CHECK_EQUAL(kib, 639);
	fixture_close(&fixture);
}

TEST(boot, multiboot_takes_elf32_and_elf64)
{
	check_elf(false);
	check_elf(true);
}

TEST(boot, multiboot_header_addresses_place_a_flat_image)
{
	struct boot_fixture fixture;
	struct image image;
	struct span loaded;

	image_flat_multiboot(&image);
	fixture_image(&fixture, RAM, &image);
	CHECK_EQUAL(fixture_load(&fixture), 0);
	CHECK_EQUAL(fixture.start.rip, FLAT_ADDRESS + 0x100);
	loaded = guest_bytes(&fixture, FLAT_ADDRESS, FLAT_SIZE);
	CHECK(!memcmp(loaded.data, image.bytes, FLAT_SIZE));
	fixture_close(&fixture);
}

/* A flat image from START up to END, the last part of which is not in the file. */
static void image_flat_at(struct image *image, uint32_t start, uint32_t end)
{
	const uint32_t addresses[5] = { start + FLAT_HEADER_OFFSET, start, start + FLAT_SIZE, end,
					start + 0x100 };

	image_flat_multiboot(image);
	memcpy(image->bytes + FLAT_HEADER_OFFSET + 12, addresses, sizeof(addresses));
}

static int load_flat(struct boot_fixture *fixture, struct image *image, uint32_t start,
		     uint32_t end)
{
	image_flat_at(image, start, end);
	fixture_image(fixture, RAM, image);
	fixture->options.append = "one two";
	return fixture_load(fixture);
}

static void check_outside(uint64_t gpa, uint64_t start, uint64_t end)
{
	if (gpa >= start && gpa < end)
		FAIL_TEST("%#llx is in the image", (unsigned long long)gpa);
}

/* The loader's data is elsewhere: nothing of it is in the image or its bss. */
static void check_placed(uint32_t start, uint32_t end)
{
	struct boot_fixture fixture;
	struct image image;
	struct span loaded;

	REQUIRE_EQUAL(load_flat(&fixture, &image, start, end), 0);
	CHECK_EQUAL(fixture.start.rip, start + 0x100);
	loaded = guest_bytes(&fixture, start, end - start);
	CHECK(!memcmp(loaded.data, image.bytes, FLAT_SIZE));
	for (size_t i = FLAT_SIZE; i < loaded.size; i++)
		CHECK_EQUAL(loaded.data[i], 0);
	check_outside(fixture.start.gdt, start, end);
	check_outside(fixture.start.rsp - 1, start, end);
	check_outside(fixture.start.rsp - 0x1000, start, end);
	check_outside(fixture.start.rbx, start, end);
	CHECK(strstr(info_string(&fixture, INFO_LINE), " one two"));
	fixture_close(&fixture);
}

TEST(boot, multiboot_image_below_1_mib_has_its_memory_to_itself)
{
	check_placed(0x1000, 0x3000);
	check_placed(0x8000, 0xa000);
	check_placed(0x20000, 0x70000);
	check_placed(0x8000, 0x9fc00);
}

TEST(boot, multiboot_image_in_reserved_memory_is_refused)
{
	static const uint32_t ranges[][2] = {
		{ 0, 0x2000 }, { 0x800, 0x3000 }, { 0x8000, 0x9fc01 }, { 0xa0000, 0xa2000 }
	};
	struct boot_fixture fixture;
	struct image image;

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		CHECK_EQUAL(load_flat(&fixture, &image, ranges[i][0], ranges[i][1]), -ENOEXEC);
		CHECK(strstr(error_message(), "below 1 MiB, a kernel can be from 0x1000 to "));
		fixture_close(&fixture);
	}
}

/* The block of the loader, which is above 1 MiB here, fills the RAM. */
TEST(boot, multiboot_module_does_not_overlap_the_loader_s_data)
{
	struct boot_fixture fixture;
	struct image image;

	image_flat_at(&image, 0x8000, 0x9fc00);
	fixture_image(&fixture, 0x100000 + 0x2b000, &image);
	CHECK_EQUAL(fixture_load(&fixture), 0);
	fixture_initrd(&fixture, "x", 1);
	check_load_fails(&fixture, -ENOSPC, "does not fit between");
}

TEST(boot, multiboot_command_line_is_valid_even_without_arguments)
{
	struct boot_fixture fixture;
	struct image image;
	char name[40];

	image_flat_multiboot(&image);
	fixture_image(&fixture, RAM, &image);
	fixture.options.append = NULL;
	CHECK_EQUAL(fixture_load(&fixture), 0);
	CHECK(info(&fixture, INFO_FLAGS) & 4);
	snprintf(name, sizeof(name), "%d", fixture.kernel_fd);
	CHECK_STRING(info_string(&fixture, INFO_LINE), name);
	CHECK_EQUAL(info(&fixture, INFO_MODULE_COUNT), 0);
	fixture_close(&fixture);
}

TEST(boot, multiboot_environment_text_is_its_one_module)
{
	static const char text[] = "NR_CPUS=4\nMEMSIZE=128\n";
	struct boot_fixture fixture;
	struct image image;
	uint32_t module[2] = { 0 };

	image_flat_multiboot(&image);
	fixture_image(&fixture, RAM, &image);
	fixture.options.module_text = text;
	CHECK_EQUAL(fixture_load(&fixture), 0);
	CHECK(info(&fixture, INFO_FLAGS) & 8);
	CHECK_EQUAL(info(&fixture, INFO_MODULE_COUNT), 1);
	CHECK(span_copy(guest_bytes(&fixture, info(&fixture, INFO_MODULES), 16), 0, module,
			sizeof(module)));
	CHECK_EQUAL(module[1] - module[0], sizeof(text) - 1);
	CHECK_STRING((const char *)guest_bytes(&fixture, module[0], sizeof(text)).data, text);
	fixture_initrd(&fixture, "x", 1);
	CHECK_EQUAL(fixture_load(&fixture), -EINVAL);
	fixture.options.module_text = NULL;
	CHECK_EQUAL(fixture_load(&fixture), 0);
	CHECK(span_copy(guest_bytes(&fixture, info(&fixture, INFO_MODULES), 16), 0, module,
			sizeof(module)));
	CHECK_EQUAL(module[1] - module[0], 1);
	fixture_close(&fixture);
}

static void check_refused(size_t offset, uint32_t value, int error, const char *word)
{
	struct boot_fixture fixture;
	struct image image;

	image_flat_multiboot(&image);
	memcpy(image.bytes + FLAT_HEADER_OFFSET + offset, &value, sizeof(value));
	fixture_image(&fixture, RAM, &image);
	check_load_fails(&fixture, error, word);
}

TEST(boot, multiboot_headers_out_of_line_are_refused_by_name)
{
	enum { CHECKSUM = 8, HEADER = 12, LOAD = 16, LOAD_END = 20, BSS_END = 24, ENTRY = 28 };

	check_refused(CHECKSUM, 1, -ENOEXEC, "not a bootable kernel");
	check_refused(HEADER, FLAT_ADDRESS - 4, -ENOEXEC, "broken");
	check_refused(HEADER, FLAT_ADDRESS + FLAT_HEADER_OFFSET + 4, -ENOEXEC, "broken");
	check_refused(LOAD, 0x1000, -ENOEXEC, "broken");
	check_refused(LOAD_END, FLAT_ADDRESS - 1, -ENOEXEC, "broken");
	check_refused(LOAD_END, FLAT_ADDRESS + FLAT_SIZE + 1, -ENOEXEC, "truncated");
	check_refused(BSS_END, FLAT_ADDRESS, -ENOEXEC, "broken");
	check_refused(BSS_END, 0xfffffff0, -ENOSPC, "does not fit");
	check_refused(ENTRY, FLAT_ADDRESS - 1, -ENOEXEC, "entry");
}

TEST(boot, multiboot_truncated_anywhere_is_an_error)
{
	struct image image;

	image_flat_multiboot(&image);
	check_truncated(&image, BOOT_AUTO, image.size);
	image_elf(&image, &(struct elf_spec){ .entry = ELF_ADDRESS, .multiboot = true });
	check_truncated(&image, BOOT_MULTIBOOT, image.size);
}

TEST(boot, multiboot_corrupted_anywhere_does_no_harm)
{
	struct image image;

	image_flat_multiboot(&image);
	check_corrupted(&image, BOOT_MULTIBOOT);
	image_elf(&image, &(struct elf_spec){ .entry = ELF_ADDRESS, .multiboot = true });
	check_corrupted(&image, BOOT_MULTIBOOT);
}
