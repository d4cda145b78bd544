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
