/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/boot_fixture.h"

#include <asm/bootparam.h>
#include <elf.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"

#define HEADER_OFFSET 0x1f1

static int memory_file(const void *bytes, size_t size, char path[32])
{
	int fd = memfd_create("image", MFD_CLOEXEC);

	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
		FAIL_TEST("no memory for an image");
	snprintf(path, 32, "/proc/self/fd/%d", fd);
	return fd;
}

static void replace_fd(int *fd, int with)
{
	if (*fd >= 0)
		close(*fd);
	*fd = with;
}

void fixture_open(struct boot_fixture *fixture, uint64_t size)
{
	*fixture = (struct boot_fixture){ .options = { .append = "", .cpus = 1 },
					  .kernel_fd = -1,
					  .initrd_fd = -1 };
	if (memory_create(&fixture->memory, size))
		FAIL_TEST("no guest memory: %s", error_message());
}

void fixture_close(struct boot_fixture *fixture)
{
	replace_fd(&fixture->kernel_fd, -1);
	replace_fd(&fixture->initrd_fd, -1);
	memory_destroy(&fixture->memory);
}

void fixture_kernel(struct boot_fixture *fixture, const void *bytes, size_t size)
{
	replace_fd(&fixture->kernel_fd, memory_file(bytes, size, fixture->kernel_path));
	fixture->options.kernel = fixture->kernel_path;
}

void fixture_initrd(struct boot_fixture *fixture, const void *bytes, size_t size)
{
	replace_fd(&fixture->initrd_fd, memory_file(bytes, size, fixture->initrd_path));
	fixture->options.initrd = fixture->initrd_path;
}

int fixture_load(struct boot_fixture *fixture)
{
	return boot_load(&fixture->options, &fixture->memory, &fixture->start);
}

void check_truncated(const struct image *image, enum boot_protocol protocol, size_t limit)
{
	struct boot_fixture fixture;

	fixture_open(&fixture, 32 << 20);
	fixture.options.protocol = protocol;
	for (size_t size = 0; size < limit; size += size < 1200 ? 1 : 61) {
		fixture_kernel(&fixture, image->bytes, size);
		error_set(0, "%s", "");
		if (fixture_load(&fixture) >= 0)
			FAIL_TEST("%zu of %zu bytes were accepted as a kernel", size, image->size);
		if (!*error_message())
			FAIL_TEST("%zu of %zu bytes failed without a message", size, image->size);
	}
	fixture_close(&fixture);
}

void check_corrupted(const struct image *image, enum boot_protocol protocol)
{
	static const uint8_t values[] = { 0x00, 0x7f, 0x80, 0xff };
	struct image broken = *image;
	struct boot_fixture fixture;

	fixture_open(&fixture, 32 << 20);
	fixture.options.protocol = protocol;
	for (size_t at = 0; at < image->size; at += at < 1200 ? 1 : 61) {
		for (size_t i = 0; i < sizeof(values); i++) {
			broken.bytes[at] = values[i];
			fixture_kernel(&fixture, broken.bytes, broken.size);
			error_set(0, "%s", "");
			if (fixture_load(&fixture) < 0 && !*error_message())
				FAIL_TEST("byte %zu changed to %#x failed without a message", at,
					  values[i]);
		}
		broken.bytes[at] = image->bytes[at];
	}
	fixture_close(&fixture);
}

struct span guest_bytes(const struct boot_fixture *fixture, uint64_t gpa, uint64_t size)
{
	const void *bytes = memory_pointer(&fixture->memory, gpa, size);

	if (!bytes)
		FAIL_TEST("%#llx is not in guest RAM", (unsigned long long)gpa);
	return span_of(bytes, bytes ? size : 0);
}

void check_command_line(const struct boot_fixture *fixture, uint64_t gpa, const char *expected)
{
	CHECK_STRING((const char *)guest_bytes(fixture, gpa, strlen(expected) + 1).data, expected);
}

uint8_t image_pattern(size_t offset)
{
	return (uint8_t)(offset * 7 + (offset >> 8) + 1);
}

static void fill_pattern(uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		bytes[i] = image_pattern(i);
}

void image_bzimage(struct image *image)
{
	const struct setup_header header = {
		.setup_sects = 1,
		.syssize = BZIMAGE_PAYLOAD_SIZE / 16,
		.boot_flag = 0xaa55,
		.jump = 0x6aeb, /* jmp to 0x26c, after the header */
		.header = 0x53726448,
		.version = 0x20f,
		.loadflags = LOADED_HIGH,
		.initrd_addr_max = 0x7fffffff,
		.kernel_alignment = 0x200000,
		.relocatable_kernel = 1,
		.xloadflags = XLF_KERNEL_64 | XLF_CAN_BE_LOADED_ABOVE_4G,
		.cmdline_size = 2047,
		.pref_address = BZIMAGE_ADDRESS,
		.init_size = BZIMAGE_INIT_SIZE,
	};

	*image = (struct image){ .size = BZIMAGE_SETUP_SIZE + BZIMAGE_PAYLOAD_SIZE };
	memcpy(image->bytes + HEADER_OFFSET, &header, sizeof(header));
	fill_pattern(image->bytes + BZIMAGE_SETUP_SIZE, BZIMAGE_PAYLOAD_SIZE);
}

static void put_multiboot(struct image *image, size_t offset, uint32_t flags)
{
	const uint32_t header[3] = { 0x1badb002, flags, -(0x1badb002 + flags) };

	memcpy(image->bytes + offset, header, sizeof(header));
}

#define NOTE_OFFSET     0x300
#define SECTIONS_OFFSET (ELF_OFFSET + ELF_FILE_SIZE)

static size_t put_note(struct image *image, const struct elf_spec *spec)
{
	struct {
		Elf64_Nhdr other;
		char other_name[8];
		uint32_t other_value;
		Elf64_Nhdr header;
		char name[4];
		uint64_t entry;
	} __attribute__((packed)) notes = {
		{ 6, 4, 18 }, "NoXen", 1, { 4, 8, 18 }, "Xen", spec->pvh_entry,
	};

	if (spec->linux_note)
		memcpy(notes.other_name, "Linux", sizeof("Linux"));
	memcpy(image->bytes + NOTE_OFFSET, &notes, sizeof(notes));
	return sizeof(notes);
}

#define PUT_ELF(bits, machine, virtual_address)                                                    \
	static void put_elf##bits(struct image *image, const struct elf_spec *spec,                \
				  size_t note_size)                                                \
	{                                                                                          \
		const Elf##bits##_Ehdr header = { .e_ident = { 0x7f, 'E', 'L', 'F',                \
							       ELFCLASS##bits, ELFDATA2LSB,        \
							       EV_CURRENT },                       \
						  .e_type = ET_EXEC,                               \
						  .e_machine = machine,                            \
						  .e_entry = (Elf##bits##_Addr)spec->entry,        \
						  .e_phoff = sizeof(header),                       \
						  .e_shoff = spec->symbols ? SECTIONS_OFFSET : 0,  \
						  .e_phentsize = sizeof(Elf##bits##_Phdr),         \
						  .e_phnum = note_size ? 2 : 1,                    \
						  .e_shentsize = sizeof(Elf##bits##_Shdr),         \
						  .e_shnum = spec->symbols ? 2 : 0 };              \
		const Elf##bits##_Phdr programs[2] = {                                             \
			{ .p_type = PT_LOAD,                                                       \
			  .p_flags = PF_R | PF_X,                                                  \
			  .p_offset = ELF_OFFSET,                                                  \
			  .p_vaddr = virtual_address,                                              \
			  .p_paddr = ELF_ADDRESS,                                                  \
			  .p_filesz = ELF_FILE_SIZE,                                               \
			  .p_memsz = ELF_MEMORY_SIZE },                                            \
			{ .p_type = PT_NOTE,                                                       \
			  .p_offset = NOTE_OFFSET,                                                 \
			  .p_filesz = note_size,                                                   \
			  .p_memsz = note_size,                                                    \
			  .p_align = 4 },                                                          \
		};                                                                                 \
		const Elf##bits##_Shdr sections[2] = { { .sh_type = SHT_NULL },                    \
						       { .sh_type = SHT_SYMTAB } };                \
                                                                                                   \
		memcpy(image->bytes, &header, sizeof(header));                                     \
		memcpy(image->bytes + sizeof(header), programs, sizeof(programs));                 \
		memcpy(image->bytes + SECTIONS_OFFSET, sections, sizeof(sections));                \
	}

PUT_ELF(64, EM_X86_64, ELF_VIRTUAL)
PUT_ELF(32, EM_386, ELF_ADDRESS)

void image_elf(struct image *image, const struct elf_spec *spec)
{
	size_t note_size;

	*image = (struct image){ .size = SECTIONS_OFFSET +
					 (spec->symbols ? 2 * sizeof(Elf64_Shdr) : 0) };
	note_size = spec->pvh_entry ? put_note(image, spec) : 0;
	if (spec->multiboot)
		put_multiboot(image, 0x200, 0);
	if (spec->is_64)
		put_elf64(image, spec, note_size);
	else
		put_elf32(image, spec, note_size);
	fill_pattern(image->bytes + ELF_OFFSET, ELF_FILE_SIZE);
}

void image_flat_multiboot(struct image *image)
{
	const uint32_t addresses[5] = { FLAT_ADDRESS + FLAT_HEADER_OFFSET, FLAT_ADDRESS,
					FLAT_ADDRESS + FLAT_SIZE, FLAT_ADDRESS + 2 * FLAT_SIZE,
					FLAT_ADDRESS + 0x100 };

	*image = (struct image){ .size = FLAT_SIZE };
	fill_pattern(image->bytes, FLAT_SIZE);
	put_multiboot(image, FLAT_HEADER_OFFSET, 0x10003);
	memcpy(image->bytes + FLAT_HEADER_OFFSET + 12, addresses, sizeof(addresses));
}

void fixture_image(struct boot_fixture *fixture, uint64_t size, const struct image *image)
{
	fixture_open(fixture, size);
	fixture_kernel(fixture, image->bytes, image->size);
}

void check_load_fails(struct boot_fixture *fixture, int error, const char *word)
{
	CHECK_EQUAL(fixture_load(fixture), error);
	if (!strstr(error_message(), word))
		FAIL_TEST("\"%s\" does not contain \"%s\"", error_message(), word);
	fixture_close(fixture);
}
