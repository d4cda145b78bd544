/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of a guest's library out of its page cache: build/rig/remap/alpha, whose .dynsym is in its
 * page 0, .dynamic in page 2, .symtab and the headers of sections in page 3.
 */
#include "vmm/record/user_symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/user_guest.h"
#include "vmm/symbols/build_id_cache.h"
#include "vmm/symbols/elf_symbols.h"

#define LIBRARY    "build/rig/remap/alpha"
#define PAGE       4096u
#define PAGES      4u
#define CODE_FLAGS 5 /* VM_READ, VM_EXEC */
#define START      0x7f0000000000ull
#define SECOND     1000000000ull

/* A library that is mapped, and a home of its own with an empty cache. */
struct place {
	struct user_guest guest;
	uint64_t file;
	struct user_symbols *symbols;
	uint8_t content[PAGES * PAGE];
	char home[64];
	char former_home[256];
};

static void put_page(struct place *place, unsigned int page)
{
	memcpy(place->guest.guest.memory + user_guest_cache(&place->guest, place->file, page, 1),
	       place->content + page * (size_t)PAGE, PAGE);
}

static void put_all(struct place *place)
{
	for (unsigned int page = 1; page < PAGES; page++)
		put_page(place, page);
}

static void read_library(struct place *place)
{
	int fd = open(LIBRARY, O_RDONLY | O_CLOEXEC);

	REQUIRE(fd >= 0);
	CHECK(read(fd, place->content, sizeof(place->content)) > (ssize_t)(3 * PAGE));
	close(fd);
}

static void prepare(struct place *place)
{
	read_library(place);
	snprintf(place->former_home, sizeof(place->former_home), "%s",
		 getenv("HOME") ? getenv("HOME") : "/");
	snprintf(place->home, sizeof(place->home), "/tmp/kvmscope-names-XXXXXX");
	REQUIRE(mkdtemp(place->home));
	setenv("HOME", place->home, 1);
	REQUIRE(!user_symbols_create(&place->symbols, NULL, user_guest_parser()));
	user_guest_make(&place->guest, true);
	place->file =
		user_guest_file(&place->guest, place->guest.root_mount,
				user_guest_dentry(&place->guest, place->guest.root, "alpha"), 7);
	put_page(place, 0);
	user_guest_map(&place->guest, START, START + PAGES * PAGE, 0, CODE_FLAGS, place->file);
	user_guest_build(&place->guest);
	REQUIRE(user_guest_lookup(&place->guest, START));
	user_images_load(place->guest.kernel.images, &place->guest.kernel,
			 &place->guest.guest.view);
}

static struct place *begin(void)
{
	struct place *place = calloc(1, sizeof(*place));

	if (!place)
		abort();
	prepare(place);
	return place;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status, (void)type, (void)walk;
	return remove(path);
}

static void end(struct place *place)
{
	user_symbols_free(place->symbols);
	user_guest_free(&place->guest);
	setenv("HOME", place->former_home, 1);
	nftw(place->home, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	free(place);
}

static bool turn_if(struct place *place, uint64_t now, bool certain)
{
	bool more = user_symbols_step(place->symbols, place->guest.kernel.images,
				      &place->guest.kernel, &place->guest.guest.view, now);

	if (more)
		user_symbols_commit(place->symbols, certain, now);
	return more;
}

static bool turn(struct place *place, uint64_t now)
{
	return turn_if(place, now, true);
}

/* The file of names; false: there is none. */
static bool find_file(const struct place *place, char *path, size_t size)
{
	uint8_t build_id[ELF_BUILD_ID_MAX];
	int length = elf_build_id(LIBRARY, build_id);
	int end = snprintf(path, size, "%s/.debug/" BUILD_ID_CACHE_IMAGES "/", place->home);

	CHECK_EQUAL(length, 20);
	for (int i = 0; i < length; i++)
		end += snprintf(path + end, size - (size_t)end, "%02x", build_id[i]);
	snprintf(path + end, size - (size_t)end, "/elf");
	return !access(path, R_OK);
}

static void check_names(const char *path)
{
	struct symbols *symbols;
	struct symbol symbol;

	REQUIRE_EQUAL(elf_symbols_load(&symbols, path, ELF_VIRTUAL_ADDRESSES, (struct span){ 0 }),
		      0);
	CHECK(symbols_find(symbols, 0x1103, &symbol));
	CHECK_STRING(symbol.name, "spin_alpha");
	CHECK_EQUAL(symbol.end, 0x1106);
	symbols_free(symbols);
}

/* The sections that perf searches when it has found a .dynsym only: tools/perf/util/symbol.c,
 * dso__load(). */
static bool is_dynamic(const char *path)
{
	_Alignas(8) uint8_t bytes[8192] = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	const Elf64_Ehdr *header = (const void *)bytes;
	const Elf64_Shdr *sections;
	bool found = false;

	CHECK(fd >= 0 && read(fd, bytes, sizeof(bytes)) > (ssize_t)sizeof(*header));
	close(fd);
	sections = (const void *)(bytes + header->e_shoff);
	for (unsigned int i = 0; i < header->e_shnum; i++) {
		CHECK(sections[i].sh_type != SHT_SYMTAB);
		found |= sections[i].sh_type == SHT_DYNSYM;
	}
	return found;
}

TEST(user_symbols, are_those_of_the_whole_file_where_it_is_in_memory)
{
	struct place *place = begin();
	char path[256];

	put_all(place);
	CHECK(turn(place, SECOND));
	REQUIRE(find_file(place, path, sizeof(path)));
	check_names(path);
	CHECK(!turn(place, 100 * SECOND));
	end(place);
}

TEST(user_symbols, are_the_exported_ones_where_no_more_is_in_memory)
{
	struct place *place = begin();
	char path[256];

	CHECK(turn(place, SECOND));
	CHECK(!find_file(place, path, sizeof(path)));
	CHECK(!turn(place, SECOND)); /* not again at once */
	put_page(place, 2);
	CHECK(turn(place, 2 * SECOND));
	REQUIRE(find_file(place, path, sizeof(path)));
	check_names(path);
	CHECK(is_dynamic(path));
	CHECK(!turn(place, 100 * SECOND));
	end(place);
}

TEST(user_symbols, are_searched_again_at_the_end)
{
	struct place *place = begin();
	char path[256];

	CHECK(turn(place, SECOND));
	put_page(place, 2);
	CHECK(!turn(place, SECOND));
	user_symbols_expire(place->symbols);
	CHECK(turn(place, SECOND));
	CHECK(find_file(place, path, sizeof(path)));
	end(place);
}

/* Somebody else may bring more of them before, and what was seen before the delay was set waits as
 * well. */
TEST(user_symbols, are_left_to_others_for_a_while)
{
	struct place *place = begin();
	char path[256];

	CHECK(turn(place, SECOND));
	put_all(place);
	user_symbols_delay(place->symbols, 10 * SECOND);
	CHECK(!turn(place, 11 * SECOND - 1));
	CHECK(!find_file(place, path, sizeof(path)));
	CHECK(turn(place, 11 * SECOND));
	REQUIRE(find_file(place, path, sizeof(path)));
	check_names(path);
	end(place);
}

TEST(user_symbols, are_searched_at_the_end_in_spite_of_the_delay)
{
	struct place *place = begin();
	char path[256];

	put_all(place);
	user_symbols_delay(place->symbols, 10 * SECOND);
	CHECK(!turn(place, SECOND));
	user_symbols_expire(place->symbols);
	CHECK(turn(place, SECOND));
	CHECK(find_file(place, path, sizeof(path)));
	end(place);
}

/* The memory that was read may be another one's. */
TEST(user_symbols, are_not_taken_where_the_kernel_may_have_ended)
{
	struct place *place = begin();
	char path[256];

	put_all(place);
	CHECK(turn_if(place, SECOND, false));
	CHECK(!find_file(place, path, sizeof(path)));
	CHECK(turn(place, 2 * SECOND));
	CHECK(find_file(place, path, sizeof(path)));
	end(place);
}

TEST(user_symbols, a_program_with_the_build_id_of_a_module_provides_no_symbols)
{
	struct place *place = begin();
	struct guest_module module = { .name = "virtio_net" };
	char path[256];

	module.build_id_size = (size_t)elf_build_id(LIBRARY, module.build_id);
	place->guest.kernel.modules = &module;
	place->guest.kernel.module_count = 1;
	put_all(place);
	CHECK(turn(place, SECOND));
	CHECK(!find_file(place, path, sizeof(path)));
	place->guest.kernel.modules = NULL;
	place->guest.kernel.module_count = 0;
	end(place);
}

/* The same build id with the code at another offset: what is found by it would be wrong for one of
 * them. */
TEST(user_symbols, of_a_build_whose_parts_were_moved_are_none)
{
	struct place *place = begin();
	char path[256];
	Elf64_Phdr *segments = (Elf64_Phdr *)(place->content + sizeof(Elf64_Ehdr));

	put_all(place);
	CHECK(turn(place, SECOND));
	CHECK(find_file(place, path, sizeof(path)));
	segments[1].p_vaddr += PAGE;
	place->file =
		user_guest_file(&place->guest, place->guest.root_mount,
				user_guest_dentry(&place->guest, place->guest.root, "moved"), 8);
	put_page(place, 0);
	put_all(place);
	user_guest_map(&place->guest, 2 * START, 2 * START + PAGES * PAGE, 0, CODE_FLAGS,
		       place->file);
	user_guest_build(&place->guest);
	CHECK(user_guest_lookup(&place->guest, 2 * START));
	user_images_load(place->guest.kernel.images, &place->guest.kernel,
			 &place->guest.guest.view);
	CHECK(turn(place, 2 * SECOND));
	CHECK(!find_file(place, path, sizeof(path)));
	end(place);
}
