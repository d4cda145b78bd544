/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program in a guest's page cache, of which its first page, with all but its
 * code, is there from the start.
 */
#include <elf.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/user_guest.h"
#include "vmm/guest/unwind/cfi_table.h"
#include "vmm/record/user_tables.h"

#define PAGE        4096u
#define CODE_FLAGS  5 /* VM_READ, VM_EXEC */
#define START       0x400000ull
#define CODE_OFFSET PAGE
#define FILE_SIZE   (2 * PAGE)
#define SECOND      1000000000ull

enum { NOTE = 0x200, HEADER = 0x300, FRAMES = 0x320 };

static const Elf64_Ehdr elf_header = {
	.e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
	.e_type = ET_DYN,
	.e_machine = EM_X86_64,
	.e_version = EV_CURRENT,
	.e_phoff = sizeof(Elf64_Ehdr),
	.e_ehsize = sizeof(Elf64_Ehdr),
	.e_phentsize = sizeof(Elf64_Phdr),
	.e_phnum = 3,
};

static const Elf64_Phdr segments[3] = {
	{ .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = FILE_SIZE, .p_memsz = FILE_SIZE },
	{ .p_type = PT_GNU_EH_FRAME, .p_offset = HEADER, .p_vaddr = HEADER, .p_filesz = 8 },
	{ .p_type = PT_NOTE, .p_offset = NOTE, .p_vaddr = NOTE, .p_filesz = 36 },
};

static const uint8_t note[16] = { 4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0 };

/* Without a table: the frames are read from begin to end. */
static const uint8_t header[8] = { 1, 0x1b, 0xff, 0xff, FRAMES - HEADER - 4 };

/* A CIE, and an FDE for 64 bytes at CODE_OFFSET: the CFA is RSP + 8. */
static const uint8_t frames[] = {
	20,   0,    0, 0, 0,    0, 0, 0, 1,  'z', 'R', 0, 1,  0x78, 16, 1,
	0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0, 16, 0,   0,   0, 28, 0,    0,  0
};

static void make_program(uint8_t *content, uint8_t build)
{
	int32_t from_here = (int32_t)(CODE_OFFSET - (FRAMES + sizeof(frames))), size = 64;

	memset(content, 0, FILE_SIZE);
	memcpy(content, &elf_header, sizeof(elf_header));
	memcpy(content + sizeof(elf_header), segments, sizeof(segments));
	memcpy(content + NOTE, note, sizeof(note));
	memset(content + NOTE + sizeof(note), build, 20);
	memcpy(content + HEADER, header, sizeof(header));
	memcpy(content + FRAMES, frames, sizeof(frames));
	memcpy(content + FRAMES + sizeof(frames), &from_here, sizeof(from_here));
	memcpy(content + FRAMES + sizeof(frames) + 4, &size, sizeof(size));
}

static void put_page(struct user_guest *guest, uint64_t file, unsigned int page,
		     const uint8_t *content)
{
	memcpy(guest->guest.memory + user_guest_cache(guest, file, page, 1),
	       content + page * (size_t)PAGE, PAGE);
}

static uint64_t add_program(struct user_guest *guest, const char *name, uint64_t start,
			    const uint8_t *content)
{
	uint64_t file = user_guest_file(guest, guest->root_mount,
					user_guest_dentry(guest, guest->root, name), start);

	put_page(guest, file, 0, content);
	user_guest_map(guest, start, start + FILE_SIZE, 0, CODE_FLAGS, file);
	return file;
}

/* As it is known after a stop at START and a turn of the collector. */
static struct user_image *settled(struct user_guest *guest, uint64_t start)
{
	const struct user_mapping *mapping = user_guest_lookup(guest, start);

	user_images_load(guest->kernel.images, &guest->kernel, &guest->guest.view);
	return mapping ? mapping->image : NULL;
}

static bool turn(struct user_tables *tables, struct user_guest *guest, uint64_t now)
{
	return user_tables_step(tables, guest->kernel.images, &guest->kernel, &guest->guest.view,
				now);
}

static void check_table(const struct user_image *image)
{
	const struct cfi_table *table = user_image_cfi(image);

	REQUIRE(table);
	CHECK_EQUAL(cfi_table_find(table, CODE_OFFSET + 63)->cfa, CFI_CFA_REGISTER);
	CHECK_EQUAL(cfi_table_find(table, CODE_OFFSET + 64)->cfa, CFI_CFA_NONE);
}

static struct user_tables *new_tables(const char *symfs)
{
	return user_tables_new(symfs, user_guest_parser());
}

TEST(user_tables, are_made_once_all_of_the_file_is_in_memory)
{
	struct user_tables *tables = new_tables(NULL);
	struct user_guest guest;
	uint8_t content[FILE_SIZE];
	struct user_image *image;
	uint64_t file;

	REQUIRE(tables);
	make_program(content, 1);
	user_guest_make(&guest, true);
	file = add_program(&guest, "program", START, content);
	user_guest_build(&guest);
	image = settled(&guest, START);
	REQUIRE(image);
	CHECK(turn(tables, &guest, SECOND));
	CHECK(!user_image_cfi(image));
	CHECK(!turn(tables, &guest, SECOND)); /* not again at once */
	put_page(&guest, file, 1, content);
	CHECK(turn(tables, &guest, 2 * SECOND));
	check_table(image);
	CHECK(!turn(tables, &guest, 100 * SECOND));
	user_guest_free(&guest);
	user_tables_free(tables);
}

TEST(user_tables, are_made_of_a_file_that_made_no_sense_at_first)
{
	struct user_tables *tables = new_tables(NULL);
	struct user_guest guest;
	uint8_t content[FILE_SIZE], nothing[FILE_SIZE] = { 0 };
	struct user_image *image;
	uint64_t file;

	REQUIRE(tables);
	make_program(content, 1);
	user_guest_make(&guest, true);
	file = add_program(&guest, "program", START, nothing);
	user_guest_build(&guest);
	image = settled(&guest, START);
	REQUIRE(image);
	CHECK(turn(tables, &guest, SECOND));
	CHECK(!user_image_cfi(image));
	put_page(&guest, file, 0, content);
	put_page(&guest, file, 1, content);
	CHECK(!turn(tables, &guest, SECOND));
	CHECK(turn(tables, &guest, 2 * SECOND));
	check_table(image);
	user_guest_free(&guest);
	user_tables_free(tables);
}

TEST(user_tables, are_shared_by_images_of_one_build)
{
	struct user_tables *tables = new_tables(NULL);
	struct user_guest guest;
	uint8_t content[FILE_SIZE];
	struct user_image *first, *second;

	REQUIRE(tables);
	make_program(content, 1);
	user_guest_make(&guest, true);
	put_page(&guest, add_program(&guest, "one", START, content), 1, content);
	add_program(&guest, "two", 2 * START, content); /* its code is not in memory */
	user_guest_build(&guest);
	first = settled(&guest, START);
	REQUIRE(first);
	CHECK(turn(tables, &guest, SECOND));
	second = settled(&guest, 2 * START);
	REQUIRE(second && second != first);
	CHECK(turn(tables, &guest, SECOND));
	check_table(second);
	CHECK(user_image_cfi(first) == user_image_cfi(second));
	user_guest_free(&guest);
	user_tables_free(tables);
}

/* The same build, whose second program header has another offset, by which nothing goes. */
static void make_moved(uint8_t *content)
{
	make_program(content, 1);
	content[sizeof(elf_header) + sizeof(Elf64_Phdr) + offsetof(Elf64_Phdr, p_offset)] ^= 1;
}

TEST(user_tables, are_not_shared_where_parts_were_moved)
{
	struct user_tables *tables = new_tables(NULL);
	struct user_guest guest;
	uint8_t content[FILE_SIZE], moved[FILE_SIZE];
	struct user_image *first, *second;

	REQUIRE(tables);
	make_program(content, 1);
	make_moved(moved);
	user_guest_make(&guest, true);
	put_page(&guest, add_program(&guest, "one", START, content), 1, content);
	put_page(&guest, add_program(&guest, "two", 2 * START, moved), 1, moved);
	user_guest_build(&guest);
	first = settled(&guest, START);
	second = settled(&guest, 2 * START);
	REQUIRE(first && second && second != first);
	CHECK(turn(tables, &guest, SECOND));
	CHECK(turn(tables, &guest, SECOND));
	check_table(first);
	check_table(second);
	CHECK(user_image_cfi(first) != user_image_cfi(second));
	user_guest_free(&guest);
	user_tables_free(tables);
}

/* A vCPU may still look at the images of a boot that has ended, and at their tables. */
TEST(user_tables, live_as_long_as_the_images_of_their_boot)
{
	struct user_tables *tables = new_tables(NULL);
	struct user_images *earlier;
	struct user_guest guest;
	uint8_t content[FILE_SIZE];
	struct user_image *image, *again;

	REQUIRE(tables);
	make_program(content, 1);
	user_guest_make(&guest, true);
	put_page(&guest, add_program(&guest, "program", START, content), 1, content);
	user_guest_build(&guest);
	image = settled(&guest, START);
	CHECK(turn(tables, &guest, SECOND));
	earlier = guest.kernel.images;
	REQUIRE_EQUAL(user_images_create(&guest.kernel.images), 0);
	again = settled(&guest, START);
	CHECK(turn(tables, &guest, SECOND));
	check_table(image);
	check_table(again);
	CHECK(user_image_cfi(image) != user_image_cfi(again));
	CHECK(user_images_shared(earlier));
	user_images_free(earlier);
	/* Both are gone at the next turn: sanitizers see it if they are not. */
	CHECK(!turn(tables, &guest, SECOND));
	check_table(again);
	user_guest_free(&guest);
	user_tables_free(tables);
}

static void write_file(const char *directory, const char *name, const uint8_t *content, size_t size)
{
	char path[300];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "w");
	REQUIRE(file);
	CHECK_EQUAL(fwrite(content, 1, size, file), size);
	fclose(file);
}

TEST(user_tables, come_from_the_host_s_copy_of_the_same_build_only)
{
	char directory[] = "/tmp/kvmscope-symfs-XXXXXX";
	struct user_tables *tables;
	struct user_guest guest;
	uint8_t content[FILE_SIZE], other[FILE_SIZE];
	struct user_image *image;
	char path[300];

	REQUIRE(mkdtemp(directory));
	tables = new_tables(directory);
	REQUIRE(tables);
	make_program(content, 1);
	make_program(other, 2);
	user_guest_make(&guest, true);
	add_program(&guest, "program", START, content);
	user_guest_build(&guest);
	image = settled(&guest, START);
	REQUIRE(image);
	write_file(directory, "program", other, FILE_SIZE);
	CHECK(turn(tables, &guest, SECOND));
	CHECK(!user_image_cfi(image));
	make_moved(other);
	write_file(directory, "program", other, FILE_SIZE);
	CHECK(turn(tables, &guest, 2 * SECOND));
	CHECK(!user_image_cfi(image));
	write_file(directory, "program", content, FILE_SIZE);
	CHECK(turn(tables, &guest, 4 * SECOND));
	check_table(image);
	user_guest_free(&guest);
	user_tables_free(tables);
	snprintf(path, sizeof(path), "%s/program", directory);
	unlink(path);
	rmdir(directory);
}

#define LARGE_SIZE (1u << 20) /* of the program with more frames than are read at once */

/* FRAMES and, behind them, one FDE that has nothing but room: DW_CFA_nop is 0. */
static void make_large_program(uint8_t *content)
{
	uint32_t length = LARGE_SIZE / 2;

	memset(content, 0, LARGE_SIZE);
	make_program(content, 1);
	for (size_t i = 0; i < 3; i++)
		if (segments[i].p_type == PT_LOAD)
			((Elf64_Phdr *)(void *)(content + sizeof(elf_header)))[i].p_filesz =
				LARGE_SIZE;
	memcpy(content + FRAMES + sizeof(frames) - 8, &length, sizeof(length));
}

/* Of which the guest has the first page in memory, and the host the rest. A turn began to make its
 * table. */
struct large_program {
	char directory[32], path[64];
	struct user_tables *tables;
	struct user_guest guest;
	struct user_image *image;
};

static void begin_large_program(struct large_program *program)
{
	static uint8_t content[LARGE_SIZE];

	make_large_program(content);
	strcpy(program->directory, "/tmp/kvmscope-symfs-XXXXXX");
	REQUIRE(mkdtemp(program->directory));
	snprintf(program->path, sizeof(program->path), "%s/program", program->directory);
	write_file(program->directory, "program", content, sizeof(content));
	program->tables = new_tables(program->directory);
	REQUIRE(program->tables);
	user_guest_make(&program->guest, true);
	add_program(&program->guest, "program", START, content);
	user_guest_build(&program->guest);
	program->image = settled(&program->guest, START);
	REQUIRE(program->image);
	CHECK(turn(program->tables, &program->guest, SECOND));
}

static void end_large_program(struct large_program *program)
{
	user_guest_free(&program->guest);
	user_tables_free(program->tables);
	unlink(program->path);
	rmdir(program->directory);
}

TEST(user_tables, of_large_images_are_made_beside)
{
	struct large_program program;

	begin_large_program(&program);
	while (!user_image_cfi(program.image)) {
		turn(program.tables, &program.guest, SECOND);
		sched_yield();
	}
	check_table(program.image);
	CHECK(!turn(program.tables, &program.guest, 100 * SECOND));
	end_large_program(&program);
}

/* The recording ends meanwhile. */
TEST(user_tables, of_large_images_need_not_be_ready_at_the_end)
{
	struct large_program program;

	begin_large_program(&program);
	end_large_program(&program);
}
