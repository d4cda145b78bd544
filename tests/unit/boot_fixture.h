/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel images made in memory, and guest RAM to load them into. */
#ifndef KVMSCOPE_TESTS_UNIT_BOOT_FIXTURE_H
#define KVMSCOPE_TESTS_UNIT_BOOT_FIXTURE_H

#include <stdbool.h>

#include "vmm/boot/kernel_boot.h"

#define IMAGE_SIZE_MAX 8192

struct image {
	uint8_t bytes[IMAGE_SIZE_MAX];
	size_t size;
};

struct boot_fixture {
	struct memory memory;
	struct boot_options options;
	struct boot_start start;
	int kernel_fd, initrd_fd;
	char kernel_path[32], initrd_path[32];
};

/* Guest RAM of SIZE bytes without a kernel. fixture_close() releases everything. */
void fixture_open(struct boot_fixture *fixture, uint64_t size);
void fixture_close(struct boot_fixture *fixture);

/* fixture_open() with IMAGE as the kernel. */
void fixture_image(struct boot_fixture *fixture, uint64_t size, const struct image *image);

/* Sets the file that boot_load() gets. */
void fixture_kernel(struct boot_fixture *fixture, const void *bytes, size_t size);
void fixture_initrd(struct boot_fixture *fixture, const void *bytes, size_t size);

/* Calls boot_load() with the fixture's options and start. */
int fixture_load(struct boot_fixture *fixture);

/* boot_load() must fail with ERROR and a message that contains WORD. Closes the fixture. */
void check_load_fails(struct boot_fixture *fixture, int error, const char *word);

/*
 * Loads a valid image cut at each size below LIMIT and with each byte changed: an error with a
 * message, or success, but no crash.
 */
void check_truncated(const struct image *image, enum boot_protocol protocol, size_t limit);
void check_corrupted(const struct image *image, enum boot_protocol protocol);

/* Guest memory as a span. If it is not RAM, the test fails and the span is empty. */
struct span guest_bytes(const struct boot_fixture *fixture, uint64_t gpa, uint64_t size);

/* The guest has EXPECTED as its command line at GPA. */
void check_command_line(const struct boot_fixture *fixture, uint64_t gpa, const char *expected);

/* The pattern that fills images: the byte at OFFSET of the loaded part. */
uint8_t image_pattern(size_t offset);

#define BZIMAGE_SETUP_SIZE   1024
#define BZIMAGE_PAYLOAD_SIZE 4096
#define BZIMAGE_ADDRESS      0x1000000ull
#define BZIMAGE_INIT_SIZE    0x200000ull
void image_bzimage(struct image *image);

/* One segment of ELF_FILE_SIZE bytes at ELF_ADDRESS, followed by bss. */
#define ELF_OFFSET      0x1000
#define ELF_FILE_SIZE   0x800
#define ELF_MEMORY_SIZE 0x3000ull
#define ELF_ADDRESS     0x1000000ull
#define ELF_VIRTUAL     0xffffffff81000000ull
struct elf_spec {
	bool is_64;
	uint64_t entry;
	uint32_t pvh_entry; /* 0: no note */
	bool linux_note;    /* beside the one of the entry */
	bool symbols;
	bool multiboot; /* a header without addresses at 0x200 */
};
void image_elf(struct image *image, const struct elf_spec *spec);

/* An image with no format but the addresses in the multiboot header. */
#define FLAT_ADDRESS       0x400000u
#define FLAT_HEADER_OFFSET 0x20
#define FLAT_SIZE          0x1000u
void image_flat_multiboot(struct image *image);

#endif
