/* SPDX-License-Identifier: Apache-2.0 */
#include <elf.h>
#include <errno.h>
#include <stddef.h>

#include "shared/error.h"
#include "tests/unit/boot_fixture.h"
#include "tests/unit/shim/test.h"

#define RAM (64u << 20)

static void check_loaded(const struct boot_fixture *fixture)
{
	struct span loaded = guest_bytes(fixture, ELF_ADDRESS, ELF_MEMORY_SIZE);

	for (size_t i = 0; i < loaded.size; i++) {
		uint8_t wanted = i < ELF_FILE_SIZE ? image_pattern(i) : 0;

		if (loaded.data[i] != wanted) {
			FAIL_TEST("byte %zu of the kernel is %#x, expected %#x", i, loaded.data[i],
				  wanted);
			return;
		}
	}
}

TEST(boot, pvh_note_is_found_and_start_info_is_complete)
{
	static const uint8_t initrd[100] = { 9 };
	struct boot_fixture fixture;
	struct image image;
	uint32_t info[4] = { 0 };
	uint64_t modules = 0, line = 0, rsdp = 0, map = 0, module[2] = { 0 };

	image_elf(&image, &(struct elf_spec){ .is_64 = true,
					      .entry = ELF_ADDRESS,
					      .pvh_entry = ELF_ADDRESS + 0x40 });
	fixture_image(&fixture, RAM, &image);
	fixture_initrd(&fixture, initrd, sizeof(initrd));
	fixture.options.append = "quiet";
	fixture.options.rsdp = 0xe0000;
	CHECK_EQUAL(fixture_load(&fixture), 0);
	CHECK_EQUAL(fixture.start.protocol, BOOT_PVH);
	CHECK(!fixture.start.long_mode);
	CHECK_EQUAL(fixture.start.rip, ELF_ADDRESS + 0x40);
	check_loaded(&fixture);
	struct span page = guest_bytes(&fixture, fixture.start.rbx, 4096);

	CHECK(span_copy(page, 0, info, sizeof(info)));
	CHECK_EQUAL(info[0], 0x336ec578);
	CHECK_EQUAL(info[1], 1);
	CHECK_EQUAL(info[3], 1);
	CHECK(span_u64(page, 16, &modules) && span_u64(page, 24, &line) &&
	      span_u64(page, 32, &rsdp) && span_u64(page, 40, &map));
	CHECK_EQUAL(rsdp, 0xe0000);
	check_command_line(&fixture, line, "quiet");
	CHECK(span_copy(guest_bytes(&fixture, modules, 32), 0, module, sizeof(module)));
	CHECK_EQUAL(module[1], sizeof(initrd));
	CHECK_EQUAL(guest_bytes(&fixture, module[0], 1).data[0], 9);
	CHECK_EQUAL(guest_bytes(&fixture, map, 24).data[16], 1); /* the first range is RAM */
	fixture_close(&fixture);
}

TEST(boot, linux_by_pvh_does_not_search_for_pci)
{
	struct boot_fixture fixture;
	struct image image;
	uint64_t line = 0;

	image_elf(&image, &(struct elf_spec){ .is_64 = true,
					      .linux_note = true,
					      .entry = ELF_ADDRESS,
					      .pvh_entry = ELF_ADDRESS + 0x40 });
	fixture_image(&fixture, RAM, &image);
	fixture.options.append = "quiet";
	CHECK_EQUAL(fixture_load(&fixture), 0);
	CHECK(span_u64(guest_bytes(&fixture, fixture.start.rbx, 4096), 24, &line));
	check_command_line(&fixture, line, "pci=off quiet");
	fixture_close(&fixture);
}

TEST(boot, elf64_starts_at_its_physical_entry_with_a_zero_page)
{
	struct boot_fixture fixture;
	struct image image;

	image_elf(&image, &(struct elf_spec){
				  .is_64 = true, .entry = ELF_VIRTUAL + 0x80, .symbols = true });
	fixture_image(&fixture, RAM, &image);
	CHECK_EQUAL(fixture_load(&fixture), 0);
	CHECK_EQUAL(fixture.start.protocol, BOOT_ELF64);
	CHECK(fixture.start.long_mode);
	CHECK_EQUAL(fixture.start.rip, ELF_ADDRESS + 0x80);
	CHECK_STRING(fixture.start.image, fixture.kernel_path);
	CHECK_EQUAL(guest_bytes(&fixture, fixture.start.rsi + 0x202, 1).data[0], 'H');
	check_loaded(&fixture);
	fixture_close(&fixture);
}

TEST(boot, requested_protocol_is_used_or_refused)
{
	struct boot_fixture fixture;
	struct image image;

	image_elf(&image, &(struct elf_spec){ .is_64 = true,
					      .entry = ELF_ADDRESS,
					      .pvh_entry = ELF_ADDRESS + 8 });
	fixture_image(&fixture, RAM, &image);
	fixture.options.protocol = BOOT_ELF64;
	CHECK_EQUAL(fixture_load(&fixture), 0);
	CHECK(fixture.start.long_mode);
	fixture.options.protocol = BOOT_BZIMAGE;
	CHECK_EQUAL(fixture_load(&fixture), -ENOEXEC);
	fixture.options.protocol = BOOT_MULTIBOOT;
	CHECK_EQUAL(fixture_load(&fixture), -ENOEXEC);
	image_elf(&image, &(struct elf_spec){ .is_64 = false, .entry = ELF_ADDRESS });
	fixture_kernel(&fixture, image.bytes, image.size);
	fixture.options.protocol = BOOT_PVH;
	CHECK_EQUAL(fixture_load(&fixture), -ENOEXEC);
	CHECK(strstr(error_message(), "PVH"));
	fixture.options.protocol = BOOT_AUTO;
	CHECK_EQUAL(fixture_load(&fixture), -ENOEXEC);
	fixture_close(&fixture);
}

static void check_refused(size_t offset, uint64_t value, size_t size, int error, const char *word)
{
	struct boot_fixture fixture;
	struct image image;

	image_elf(&image, &(struct elf_spec){
				  .is_64 = true, .entry = ELF_ADDRESS, .pvh_entry = ELF_ADDRESS });
	memcpy(image.bytes + offset, &value, size);
	fixture_image(&fixture, RAM, &image);
	check_load_fails(&fixture, error, word);
}

#define PROGRAM(member) (sizeof(Elf64_Ehdr) + offsetof(Elf64_Phdr, member))

TEST(boot, elf_headers_out_of_line_are_refused_by_name)
{
	check_refused(offsetof(Elf64_Ehdr, e_machine), EM_AARCH64, 2, -ENOEXEC, "another machine");
	check_refused(offsetof(Elf64_Ehdr, e_type), ET_REL, 2, -ENOEXEC, "not a linked image");
	check_refused(offsetof(Elf64_Ehdr, e_phoff), UINT64_MAX - 8, 8, -ENOEXEC, "truncated");
	check_refused(offsetof(Elf64_Ehdr, e_phnum), 0xffff, 2, -ENOEXEC, ":");
	check_refused(offsetof(Elf64_Ehdr, e_entry), 0x10, 8, -ENOEXEC, "entry");
	check_refused(PROGRAM(p_offset), UINT64_MAX, 8, -ENOEXEC, "truncated");
	check_refused(PROGRAM(p_filesz), ELF_MEMORY_SIZE + 1, 8, -ENOEXEC, "truncated");
	check_refused(PROGRAM(p_memsz), 1, 8, -ENOEXEC, "broken ELF");
	check_refused(PROGRAM(p_memsz), UINT64_MAX, 8, -ENOEXEC, "below 4 GiB");
	check_refused(PROGRAM(p_paddr), 0x8000, 8, -ENOEXEC, "entry");
	check_refused(PROGRAM(p_paddr), RAM - 0x1000, 8, -ENOEXEC, "entry");
	check_refused(PROGRAM(p_memsz), RAM, 8, -ENOSPC, "does not fit");
}

TEST(boot, elf_truncated_anywhere_is_an_error)
{
	struct image image;

	image_elf(&image, &(struct elf_spec){
				  .is_64 = true, .entry = ELF_ADDRESS, .pvh_entry = ELF_ADDRESS });
	check_truncated(&image, BOOT_AUTO, image.size);
	check_truncated(&image, BOOT_PVH, image.size);
	check_truncated(&image, BOOT_ELF64, image.size);
}

TEST(boot, elf_corrupted_anywhere_does_no_harm)
{
	struct image image;

	image_elf(&image, &(struct elf_spec){ .is_64 = true,
					      .entry = ELF_ADDRESS,
					      .pvh_entry = ELF_ADDRESS,
					      .symbols = true });
	check_corrupted(&image, BOOT_AUTO);
	check_corrupted(&image, BOOT_ELF64);
	image_elf(&image, &(struct elf_spec){
				  .is_64 = false, .entry = ELF_ADDRESS, .pvh_entry = ELF_ADDRESS });
	check_corrupted(&image, BOOT_AUTO);
}

TEST(boot, files_that_are_not_kernels_are_refused_with_advice)
{
	static const char gzip[] = "\x1f\x8b\x08 a packed kernel";
	struct boot_fixture fixture;

	fixture_open(&fixture, RAM);
	fixture.options.kernel = "/nonexistent/vmlinuz";
	CHECK_EQUAL(fixture_load(&fixture), -ENOENT);
	fixture.options.kernel = "/proc/self";
	CHECK_EQUAL(fixture_load(&fixture), -EINVAL);
	fixture_kernel(&fixture, "", 0);
	CHECK_EQUAL(fixture_load(&fixture), -EINVAL);
	fixture_kernel(&fixture, "just some text", 14);
	CHECK_EQUAL(fixture_load(&fixture), -ENOEXEC);
	fixture_kernel(&fixture, gzip, sizeof(gzip));
	CHECK_EQUAL(fixture_load(&fixture), -ENOEXEC);
	CHECK(strstr(error_message(), "gunzip"));
	fixture_close(&fixture);
}
