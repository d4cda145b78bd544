/* SPDX-License-Identifier: Apache-2.0 */
#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/user_guest.h"
#include "vmm/guest/linux/guest_file.h"
#include "vmm/guest/linux/vma.h"

#define CODE (VMA_READ | VMA_EXEC)

static uint64_t file_at(struct user_guest *guest, const char *name, uint64_t number)
{
	return user_guest_file(guest, guest->root_mount,
			       user_guest_dentry(guest, guest->root, name), number);
}

/* The name of the image at ADDRESS after the next load of images; "" for none. */
static const char *name_at(struct user_guest *guest, uint64_t address)
{
	const struct user_mapping *mapping = user_guest_lookup(guest, address);
	const char *name;

	user_images_load(guest->kernel.images, &guest->kernel, &guest->guest.view);
	name = mapping && mapping->image ? user_image_name(mapping->image) : NULL;
	return name ? name : "";
}

static uint64_t start_of(unsigned int index)
{
	return 0x400000 + index * 0x5000ull + index % 3 * 0x1000ull;
}

/* Some touch, some have a gap between them. */
static uint64_t end_of(unsigned int index)
{
	return index % 4 ? start_of(index) + 0x3000 : start_of(index + 1);
}

static void check_all(bool is_maple, unsigned int count)
{
	struct user_guest guest;

	user_guest_make(&guest, is_maple);
	for (unsigned int i = 0; i < count; i++)
		user_guest_map(&guest, start_of(i), end_of(i), i, i % 16, 0);
	user_guest_build(&guest);
	for (unsigned int i = 0; i < count; i++) {
		const struct user_mapping *first = user_guest_lookup(&guest, start_of(i));

		CHECK(first && first->start == start_of(i) && first->end == end_of(i));
		CHECK(first && first->flags == i % 16 && first->offset == start_of(i));
		CHECK(user_guest_lookup(&guest, end_of(i) - 1));
		CHECK_EQUAL(guest.map.mappings[0].start, start_of(i));
		if (end_of(i) != start_of(i + 1))
			CHECK(!user_guest_lookup(&guest, end_of(i)));
	}
	CHECK(!user_guest_lookup(&guest, 0x3ff000));
	CHECK(!user_guest_lookup(&guest, end_of(count - 1)));
	CHECK(!user_guest_lookup(&guest, 0x7ffffffff000));
	CHECK(!user_guest_lookup(&guest, 0xffffffff81000000));
	user_guest_free(&guest);
}

TEST(user_map, finds_each_mapping_and_no_gap_in_either_tree)
{
	static const unsigned int counts[] = { 1, 2, 7, 8, 15, 16, 40, 130, 500 };

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		check_all(true, counts[i]);
		check_all(false, counts[i]);
	}
}

TEST(user_map, empty_tree_has_no_mappings)
{
	for (int is_maple = 0; is_maple < 2; is_maple++) {
		struct user_guest guest;

		user_guest_make(&guest, is_maple);
		CHECK(!user_guest_lookup(&guest, 0x400000));
		guest.mm = 0;
		CHECK(!user_guest_lookup(&guest, 0x400000));
		guest.mm = 0xffff900000000000;
		CHECK(!user_guest_lookup(&guest, 0x400000));
		user_guest_free(&guest);
	}
}

TEST(user_map, results_of_one_stop_are_cached_and_bounded)
{
	FIXTURE(struct user_guest, guest, user_guest_make, user_guest_free, true);
	for (unsigned int i = 0; i < 40; i++)
		user_guest_map(&guest, start_of(i), end_of(i), 0, CODE, 0);
	user_guest_build(&guest);
	user_map_begin(&guest.map, &guest.kernel, &guest.guest.view, guest.mm);
	for (unsigned int i = 0; i < USER_MAP_MAX; i++)
		CHECK(user_map_find(&guest.map, start_of(i)));
	CHECK(!user_map_find(&guest.map, start_of(USER_MAP_MAX)));
	CHECK(user_map_find(&guest.map, start_of(3) + 5) == &guest.map.mappings[3]);
	CHECK_EQUAL(guest.map.count, USER_MAP_MAX);
}

TEST(user_map, after_the_deadline_only_earlier_results_are_known)
{
	FIXTURE(struct user_guest, guest, user_guest_make, user_guest_free, true);
	for (unsigned int i = 0; i < 3; i++)
		user_guest_map(&guest, start_of(i), end_of(i), 0, CODE, 0);
	user_guest_build(&guest);
	user_map_begin(&guest.map, &guest.kernel, &guest.guest.view, guest.mm);
	CHECK(user_map_find(&guest.map, start_of(0)));
	guest.map.memory.deadline = 1;
	CHECK(!user_map_find(&guest.map, start_of(1)));
	CHECK(guest.map.memory.timed_out);
	CHECK(user_map_find(&guest.map, start_of(0) + 1));
	CHECK_EQUAL(guest.map.count, 1);
	user_map_begin(&guest.map, &guest.kernel, &guest.guest.view, guest.mm);
	guest.map.memory.deadline = UINT64_MAX;
	CHECK(user_map_find(&guest.map, start_of(0)) && user_map_find(&guest.map, start_of(1)));
	CHECK(!guest.map.memory.timed_out);
	user_map_begin(&guest.map, &guest.kernel, &guest.guest.view, guest.mm);
	CHECK(user_map_find(&guest.map, start_of(1)) && user_map_find(&guest.map, start_of(2)));
}

/* Counts reads of a guest's memory. The deadline passes at read number LAST. */
struct slow_reads {
	unsigned int count, last;
	struct user_map *map;
	const uint8_t *memory;
};

static int read_slowly(const struct guest_view *view, uint64_t gpa, void *to, size_t size)
{
	struct slow_reads *reads = view->context;

	if (++reads->count == reads->last)
		reads->map->memory.deadline = 1;
	memcpy(to, reads->memory + gpa, size);
	return 0;
}

/* Returns the number of reads of a lookup whose deadline passed at read LAST; WHOLE: whether it was
 * complete. */
static unsigned int look_slowly(struct user_guest *guest, unsigned int last, bool *whole)
{
	struct slow_reads reads = { .last = last,
				    .map = &guest->map,
				    .memory = guest->guest.memory };
	const struct guest_region region = { .size = guest->guest.view.regions[0].size };
	const struct guest_view view = {
		.regions = &region, .region_count = 1, .read = read_slowly, .context = &reads
	};

	user_map_begin(&guest->map, &guest->kernel, &view, guest->mm);
	*whole = user_map_find(&guest->map, start_of(0));
	CHECK(*whole || guest->map.memory.timed_out);
	return reads.count;
}

/* For any tree, a lookup ends soon after the deadline, including the one for RIP. */
TEST(user_map, lookup_ends_at_the_deadline)
{
	/* An address may have to be translated, by four reads. */
	const unsigned int few = KERNEL_MEMORY_READS + 4;

	for (int is_maple = 0; is_maple < 2; is_maple++) {
		struct user_guest guest;
		unsigned int all;
		bool whole;

		user_guest_make(&guest, is_maple);
		for (unsigned int i = 0; i < 500; i++)
			user_guest_map(&guest, start_of(i), end_of(i), 0, CODE,
				       i ? 0 : file_at(&guest, "program", 7));
		user_guest_build(&guest);
		all = look_slowly(&guest, 0, &whole);
		CHECK(whole && all > few + KERNEL_MEMORY_READS);
		for (unsigned int last = 1; last < all; last++) {
			CHECK(look_slowly(&guest, last, &whole) <= last + few);
			CHECK(!whole || last + few >= all);
		}
		look_slowly(&guest, 1, &whole);
		CHECK(!whole);
		user_guest_free(&guest);
	}
}

/* Freed and reused for another address space, or moved, or partly written. */
TEST(user_map, inconsistent_vma_is_refused)
{
	struct {
		uint32_t offset;
		uint64_t value;
	} lies[] = {
		{ 64, USER_GUEST_DIRECT },  /* another mm */
		{ 0, 0x500000 },            /* start */
		{ 8, 0x400000 },            /* end */
		{ 8, 0xffffffff81000000 },  /* an end in the kernel */
		{ 8, 0x401fff },            /* no page's */
		{ 152, 1ull << 52 },        /* an offset that no file has */
		{ 160, 0xffffc90000000000 } /* a file that is not there */
	};

	for (size_t i = 0; i < 2 * sizeof(lies) / sizeof(lies[0]); i++) {
		struct user_guest guest;
		uint64_t vma;

		user_guest_make(&guest, i % 2);
		vma = user_guest_map(&guest, 0x400000, 0x402000, 0, CODE, 0);
		user_guest_build(&guest);
		CHECK(user_guest_lookup(&guest, 0x401000));
		user_guest_put(&guest, vma + lies[i / 2].offset, lies[i / 2].value);
		CHECK(!user_guest_lookup(&guest, 0x401000));
		user_guest_free(&guest);
	}
}

TEST(user_map, endless_trees_are_refused)
{
	struct user_guest guest;
	uint64_t node, slot, vma;

	user_guest_make(&guest, true);
	for (unsigned int i = 0; i < 40; i++)
		user_guest_map(&guest, start_of(i), end_of(i), 0, CODE, 0);
	user_guest_build(&guest);
	node = user_guest_get(&guest, guest.mm + 8) & ~255ull;
	slot = node + guest.kernel.vmas.arange.slots;
	CHECK(user_guest_lookup(&guest, start_of(0)));
	/* The first slot leads to the node itself. */
	user_guest_put(&guest, slot, node | 3 << 3 | 4);
	CHECK(!user_guest_lookup(&guest, start_of(0)));
	/* It is one of no kind. */
	user_guest_put(&guest, slot, node | 7 << 3 | 4);
	CHECK(!user_guest_lookup(&guest, start_of(0)));
	/* The node was removed from the tree. */
	CHECK(user_guest_lookup(&guest, start_of(39)));
	user_guest_put(&guest, node, node | 1);
	CHECK(!user_guest_lookup(&guest, start_of(39)));
	user_guest_free(&guest);

	user_guest_make(&guest, false);
	vma = user_guest_map(&guest, 0x400000, 0x402000, 0, CODE, 0);
	user_guest_build(&guest);
	user_guest_put(&guest, vma + 0x20 + 8, vma + 0x20);
	CHECK(!user_guest_lookup(&guest, 0x500000));
	user_guest_free(&guest);
}

TEST(user_map, files_have_their_paths)
{
	uint64_t directory, mounted, root, point;

	FIXTURE(struct user_guest, guest, user_guest_make, user_guest_free, true);
	directory = user_guest_dentry(&guest, guest.root, "usr");
	point = user_guest_dentry(&guest, directory, "data");
	mounted = user_guest_mount(&guest, guest.root_mount, point, &root);
	user_guest_map(&guest, 0x400000, 0x402000, 3, CODE,
		       user_guest_file(&guest, guest.root_mount,
				       user_guest_dentry(&guest, directory, "program"), 1));
	user_guest_map(
		&guest, 0x500000, 0x502000, 0, CODE,
		user_guest_file(&guest, mounted, user_guest_dentry(&guest, root, "library.so"), 2));
	user_guest_build(&guest);
	CHECK_STRING(name_at(&guest, 0x401234), "/usr/program");
	CHECK_EQUAL(guest.map.mappings[0].offset, 0x3000);
	CHECK_EQUAL(guest.map.mappings[0].flags, USER_MAPPING_READ | USER_MAPPING_EXEC);
	CHECK_STRING(name_at(&guest, 0x500000), "/usr/data/library.so");
}

/* A program of an overlay: its pages are those of the file in the upper or lower directory. */
TEST(user_map, backing_file_has_the_path_of_its_user)
{
	uint64_t file, layer, layer_root, merged, merged_root;

	FIXTURE(struct user_guest, guest, user_guest_make, user_guest_free, true);
	layer = user_guest_mount(&guest, guest.root_mount,
				 user_guest_dentry(&guest, guest.root, "lower"), &layer_root);
	merged = user_guest_mount(&guest, guest.root_mount,
				  user_guest_dentry(&guest, guest.root, "merged"), &merged_root);
	file = user_guest_file(&guest, layer, user_guest_dentry(&guest, layer_root, "inside"), 1);
	user_guest_map(&guest, 0x400000, 0x402000, 0, CODE, file);
	user_guest_build(&guest);
	CHECK_STRING(name_at(&guest, 0x400000), "/lower/inside");
	user_guest_back(&guest, file, merged, user_guest_dentry(&guest, merged_root, "program"));
	CHECK_STRING(name_at(&guest, 0x400000), "/merged/program");
}

TEST(user_map, mappings_without_a_file_have_the_names_of_linux)
{
	uint64_t vdso;

	FIXTURE(struct user_guest, guest, user_guest_make, user_guest_free, true);
	user_guest_put(&guest, guest.mm + 0x108, 0x600000);
	user_guest_put(&guest, guest.mm + 0x110, 0x601000);
	user_guest_put(&guest, guest.mm + 0x100, 0x7ffe1800);
	user_guest_map(&guest, 0x600000, 0x610000, 0x600, VMA_READ | VMA_WRITE, 0);
	user_guest_map(&guest, 0x700000, 0x710000, 0x700, CODE, 0);
	user_guest_map(&guest, 0x7ffe0000, 0x7fff0000, 0x7ffe0, VMA_READ | VMA_WRITE, 0);
	vdso = user_guest_map(&guest, 0x80000000, 0x80002000, 0, CODE, 0);
	user_guest_put(&guest, vdso + guest.kernel.vmas.vma_operations,
		       guest.kernel.vmas.special_operations);
	user_guest_build(&guest);
	CHECK_STRING(name_at(&guest, 0x600000), "[heap]");
	CHECK_STRING(name_at(&guest, 0x700000), "//anon");
	CHECK_EQUAL(guest.map.mappings[0].offset, 0x700000);
	CHECK_STRING(name_at(&guest, 0x7ffe1000), "[stack]");
	CHECK_STRING(name_at(&guest, 0x80000000), "");
	user_guest_put(&guest, guest.mm + guest.kernel.vmas.mm_vdso, 0x80000000);
	CHECK_STRING(name_at(&guest, 0x80000010), "[vdso]");
	CHECK_EQUAL(guest.map.mappings[0].offset, 0);
}

/* The inode number differs: it may not be the file that was looked up. */
TEST(user_map, file_that_is_closed_before_its_name_is_read_has_none)
{
	uint64_t file;

	FIXTURE(struct user_guest, guest, user_guest_make, user_guest_free, true);
	file = file_at(&guest, "program", 1);
	user_guest_map(&guest, 0x400000, 0x402000, 0, CODE, file);
	user_guest_build(&guest);
	CHECK(user_guest_lookup(&guest, 0x400000));
	user_guest_put(&guest, user_guest_inode(&guest, file) + guest.kernel.vmas.inode_number, 2);
	user_images_load(guest.kernel.images, &guest.kernel, &guest.guest.view);
	CHECK(!user_image_name(guest.map.mappings[0].image));
}

/* As cp does over a program that does not run: the inode stays, with all of its addresses. */
TEST(user_map, a_file_that_was_written_to_is_another_image)
{
	struct user_image *before;
	uint64_t file;

	FIXTURE(struct user_guest, guest, user_guest_make, user_guest_free, true);
	file = file_at(&guest, "program", 1);
	user_guest_map(&guest, 0x400000, 0x402000, 0, CODE, file);
	user_guest_build(&guest);
	CHECK_STRING(name_at(&guest, 0x400000), "/program");
	before = guest.map.mappings[0].image;
	CHECK(user_guest_lookup(&guest, 0x400000)->image == before);
	user_guest_put(&guest, user_guest_inode(&guest, file) + guest.kernel.vmas.inode_nanoseconds,
		       7);
	CHECK(user_guest_lookup(&guest, 0x400000)->image != before);
}

static int path_of(struct user_guest *guest, uint64_t mount, uint64_t dentry, char *path)
{
	struct kernel_memory memory = { .view = &guest->guest.view,
					.paging = &guest->kernel.paging };

	return guest_file_path(&memory, &guest->kernel.vmas, mount, dentry, path);
}

TEST(guest_file_path, deleted_file_is_marked)
{
	char path[PATH_TAIL_MAX];
	uint64_t dentry;

	FIXTURE(struct user_guest, guest, user_guest_make, user_guest_free, true);
	dentry = user_guest_dentry(&guest, guest.root, "program");
	user_guest_put(&guest, dentry + guest.kernel.vmas.dentry_unhashed, 0);
	CHECK_EQUAL(path_of(&guest, guest.root_mount, dentry, path), 0);
	CHECK_STRING(path, "/program (deleted)");
	/* Shared memory has no path. */
	dentry = user_guest_dentry(&guest, 0, "memfd:code");
	user_guest_put(&guest, dentry + guest.kernel.vmas.dentry_unhashed, 0);
	CHECK_EQUAL(path_of(&guest, guest.root_mount, dentry, path), 0);
	CHECK_STRING(path, "/memfd:code (deleted)");
}

/* As umount_tree() leaves it where the last process of a mount namespace has ended. */
TEST(guest_file_path, unmounted_mount_has_none)
{
	uint64_t dentry, point, root, mount, own;
	char path[PATH_TAIL_MAX];

	FIXTURE(struct user_guest, guest, user_guest_make, user_guest_free, true);
	point = user_guest_dentry(&guest, guest.root, "merged");
	mount = user_guest_mount(&guest, guest.root_mount, point, &root);
	own = mount - guest.kernel.vmas.mount_embedded;
	dentry = user_guest_dentry(&guest, root, "layered");
	CHECK_EQUAL(path_of(&guest, mount, dentry, path), 0);
	CHECK_STRING(path, "/merged/layered");
	user_guest_put(&guest, own + guest.kernel.vmas.mount_namespace, 0);
	CHECK_EQUAL(path_of(&guest, mount, dentry, path), -EFAULT);
	user_guest_put(&guest, own + guest.kernel.vmas.mount_parent, own);
	user_guest_put(&guest, own + guest.kernel.vmas.mount_point, root);
	CHECK_EQUAL(path_of(&guest, mount, dentry, path), -EFAULT);
}

TEST(guest_file_path, endless_path_is_refused)
{
	char path[PATH_TAIL_MAX], name[200];
	uint64_t dentry, above, root, mount;

	FIXTURE(struct user_guest, guest, user_guest_make, user_guest_free, true);
	above = user_guest_dentry(&guest, guest.root, "a");
	dentry = user_guest_dentry(&guest, above, "b");
	user_guest_put(&guest, above + guest.kernel.vmas.dentry_parent, dentry);
	CHECK_EQUAL(path_of(&guest, guest.root_mount, dentry, path), -EFAULT);
	/* Longer than any path. */
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	dentry = guest.root;
	for (int i = 0; i < 20; i++)
		dentry = user_guest_dentry(&guest, dentry, name);
	CHECK_EQUAL(path_of(&guest, guest.root_mount, dentry, path), 0);
	dentry = user_guest_dentry(&guest, dentry, name);
	CHECK_EQUAL(path_of(&guest, guest.root_mount, dentry, path), -EFAULT);
	/* A mount below itself. */
	mount = user_guest_mount(&guest, guest.root_mount, above, &root);
	user_guest_put(&guest, guest.root_mount - 32 + 16, mount - 32);
	user_guest_put(&guest, guest.root_mount - 32 + 24, root);
	CHECK_EQUAL(path_of(&guest, mount, user_guest_dentry(&guest, root, "c"), path), -EFAULT);
	/* A name of no letters, and of too many. */
	dentry = user_guest_dentry(&guest, guest.root, "d");
	user_guest_put(&guest, dentry + guest.kernel.vmas.dentry_hash, 0);
	CHECK_EQUAL(path_of(&guest, guest.root_mount, dentry, path), -EFAULT);
	user_guest_put(&guest, dentry + guest.kernel.vmas.dentry_hash, 300ull << 32);
	CHECK_EQUAL(path_of(&guest, guest.root_mount, dentry, path), -EFAULT);
}

/* An ELF header, a program header, and a note with a build id of bytes 0xb1. */
static void put_elf(uint8_t *page)
{
	const Elf64_Ehdr header = { .e_ident = ELFMAG "\2\1\1",
				    .e_phoff = 64,
				    .e_phentsize = sizeof(Elf64_Phdr),
				    .e_phnum = 1 };
	const Elf64_Phdr program = { .p_type = PT_NOTE, .p_offset = 0x2010, .p_filesz = 36 };
	const uint32_t note[] = { 4, 20, 3 };

	memcpy(page, &header, sizeof(header));
	memcpy(page + 64, &program, sizeof(program));
	memcpy(page + 0x2010, note, sizeof(note));
	memcpy(page + 0x201c, "GNU", 4);
	memset(page + 0x2020, 0xb1, 20);
}

/* The last time in a radix tree, where each page has its own slot. */
TEST(user_image, has_the_build_id_of_its_file_in_the_page_cache)
{
	static const unsigned int folios[][3] = {
		{ 3, 0, 0 }, { 1, 2, 0 }, { 1, 1, 1 }, { 1, 1, 1 }
	};

	for (size_t i = 0; i < 4; i++) {
		uint8_t content[3 * 4096] = { 0 }, read[32];
		const uint8_t *build_id;
		struct user_guest guest;
		unsigned int first = 0;
		uint64_t file, inode, generation;
		uint32_t device;

		put_elf(content);
		user_guest_make(&guest, true);
		guest.kernel.vmas.is_radix_tree = i == 3;
		file = file_at(&guest, "program", 77);
		for (int part = 0; part < 3 && folios[i][part]; part++) {
			uint64_t memory = user_guest_cache(&guest, file, first, folios[i][part]);

			memcpy(guest.guest.memory + memory, content + first * 4096ul,
			       folios[i][part] * 4096ul);
			first += folios[i][part];
		}
		user_guest_map(&guest, 0x400000, 0x402000, 0, CODE, file);
		user_guest_build(&guest);
		CHECK_STRING(name_at(&guest, 0x400000), "/program");
		REQUIRE_EQUAL(user_image_build_id(guest.map.mappings[0].image, &build_id), 20);
		CHECK_EQUAL(build_id[0], 0xb1);
		CHECK_EQUAL(build_id[19], 0xb1);
		user_image_file(guest.map.mappings[0].image, &device, &inode, &generation);
		CHECK_EQUAL(device, 8 << 20 | 1);
		CHECK_EQUAL(inode, 77);
		/* Across pages, and past what is in memory. */
		CHECK_EQUAL(user_image_read(guest.map.mappings[0].image, &guest.kernel,
					    &guest.guest.view, 0x1ff8, read, sizeof(read)),
			    0);
		CHECK(!memcmp(read, content + 0x1ff8, sizeof(read)));
		CHECK_EQUAL(user_image_read(guest.map.mappings[0].image, &guest.kernel,
					    &guest.guest.view, 0x2ff8, read, sizeof(read)),
			    -EFAULT);
		user_guest_free(&guest);
	}
}

static struct user_image *map_program(struct user_guest *guest, uint64_t file)
{
	const struct user_mapping *mapping;

	user_guest_map(guest, 0x400000, 0x402000, 0, CODE, file);
	user_guest_build(guest);
	mapping = user_guest_lookup(guest, 0x400000);
	return mapping ? mapping->image : NULL;
}

static int read_page(struct user_guest *guest, const struct user_image *image, uint64_t page)
{
	uint8_t bytes[16];

	return user_image_read(image, &guest->kernel, &guest->guest.view, page * 4096, bytes,
			       sizeof(bytes));
}

/*
 * The tree is only as high as needed: higher indexes are not in memory, and do not alias lower
 * ones.
 */
TEST(user_image, refuses_pages_outside_of_its_tree)
{
	struct user_image *image;
	uint64_t file, head, node;

	FIXTURE(struct user_guest, guest, user_guest_make, user_guest_free, true);
	file = file_at(&guest, "program", 77);
	user_guest_cache(&guest, file, 0, 4);
	image = map_program(&guest, file);
	REQUIRE(image);
	CHECK_EQUAL(read_page(&guest, image, 3), 0);
	CHECK_EQUAL(read_page(&guest, image, 64), -EFAULT);
	CHECK_EQUAL(read_page(&guest, image, 128 + 3), -EFAULT);
	/* Without a node: page 0 alone. */
	head = user_guest_get(&guest,
			      user_guest_inode(&guest, file) + guest.kernel.vmas.inode_mapping) +
	       guest.kernel.vmas.mapping_pages;
	node = user_guest_get(&guest, head) - 2;
	user_guest_put(&guest, head, user_guest_get(&guest, node + guest.kernel.vmas.xarray_slots));
	CHECK_EQUAL(read_page(&guest, image, 0), 0);
	CHECK_EQUAL(read_page(&guest, image, 1), -EFAULT);
	CHECK_EQUAL(read_page(&guest, image, 5), -EFAULT);
}

/* As during readahead, until the disk has answered. */
TEST(user_image, refuses_pages_that_are_not_uptodate)
{
	struct user_image *image;
	uint64_t file, flags;

	FIXTURE(struct user_guest, guest, user_guest_make, user_guest_free, true);
	file = file_at(&guest, "program", 77);
	flags = USER_GUEST_DIRECT + 0x100000 + user_guest_cache(&guest, file, 0, 4) / 4096 * 64 +
		guest.kernel.vmas.page_flags;
	image = map_program(&guest, file);
	REQUIRE(image);
	user_guest_put(&guest, flags, ~(1ull << guest.kernel.vmas.page_uptodate));
	CHECK_EQUAL(read_page(&guest, image, 0), -EFAULT);
	CHECK_EQUAL(read_page(&guest, image, 3),
		    -EFAULT); /* the state of the folio's first page counts for all */
	user_guest_put(&guest, flags, 1ull << guest.kernel.vmas.page_uptodate);
	CHECK_EQUAL(read_page(&guest, image, 0), 0);
	CHECK_EQUAL(read_page(&guest, image, 3), 0);
}

/* A change by the guest just after the read of one address. */
struct change {
	struct user_guest *guest;
	uint64_t read;      /* GPA */
	uint64_t at, value; /* GVA */
	bool made;
};

static int read_and_change(const struct guest_view *view, uint64_t gpa, void *to, size_t size)
{
	struct change *change = view->context;

	memcpy(to, change->guest->guest.memory + gpa, size);
	if (change->read >= gpa && change->read < gpa + size) {
		user_guest_put(change->guest, change->at, change->value);
		change->made = true;
	}
	return 0;
}

static void change_after(struct user_guest *guest, struct change *change)
{
	guest->guest.region.hva = NULL;
	guest->guest.view.read = read_and_change;
	guest->guest.view.context = change;
}

TEST(user_image, refuses_a_page_that_moves_during_the_read)
{
	struct user_guest guest;
	struct change change = { .guest = &guest };
	struct user_image *image;
	uint64_t file;

	user_guest_make(&guest, true);
	file = file_at(&guest, "program", 77);
	change.read = user_guest_cache(&guest, file, 0, 1);
	change.at = USER_GUEST_DIRECT + 0x100000 + change.read / 4096 * 64 +
		    guest.kernel.vmas.page_mapping;
	change.value = user_guest_get(&guest, change.at);
	image = map_program(&guest, file);
	REQUIRE(image);
	change_after(&guest, &change);
	CHECK_EQUAL(read_page(&guest, image, 0), 0);
	CHECK(change.made);
	change.value = 0;
	CHECK_EQUAL(read_page(&guest, image, 0), -EFAULT);
	user_guest_free(&guest);
}

/* Its memory has not changed yet, but its file is already that of another mapping. */
TEST(user_map, vma_that_is_unmapped_during_the_read_is_refused)
{
	for (int is_maple = 0; is_maple < 2; is_maple++) {
		struct user_guest guest;
		struct change change = { .guest = &guest };
		uint64_t file;

		user_guest_make(&guest, is_maple);
		file = file_at(&guest, "program", 77);
		CHECK(map_program(&guest, file));
		change.read = user_guest_inode(&guest, file) - USER_GUEST_DIRECT +
			      guest.kernel.vmas.inode_number;
		change.at = guest.mm + guest.kernel.vmas.mm_root;
		change.value = user_guest_get(&guest, change.at);
		change_after(&guest, &change);
		CHECK(user_guest_lookup(&guest, 0x400000));
		CHECK(change.made);
		change.value = 0;
		CHECK(!user_guest_lookup(&guest, 0x400000));
		user_guest_free(&guest);
	}
}

/* A page that meanwhile belongs to another file. */
TEST(user_image, does_not_use_a_page_of_another_file)
{
	const uint8_t *build_id;
	uint64_t file, page, memory;

	FIXTURE(struct user_guest, guest, user_guest_make, user_guest_free, true);
	file = file_at(&guest, "program", 77);
	memory = user_guest_cache(&guest, file, 0, 3);
	put_elf(guest.guest.memory + memory);
	page = USER_GUEST_DIRECT + 0x100000 + memory / 4096 * 64;
	user_guest_put(&guest, page + guest.kernel.vmas.page_mapping, USER_GUEST_DIRECT);
	user_guest_map(&guest, 0x400000, 0x402000, 0, CODE, file);
	user_guest_build(&guest);
	CHECK_STRING(name_at(&guest, 0x400000), "/program");
	CHECK_EQUAL(user_image_build_id(guest.map.mappings[0].image, &build_id), 0);
}

#define THREADS 4
#define KEYS    3000

struct finder {
	struct user_images *images;
	const struct user_image *found[KEYS];
};

static void *find_all(void *argument)
{
	struct finder *finder = argument;

	for (unsigned int i = 0; i < KEYS; i++) {
		const struct user_image_key key = { .kind = USER_IMAGE_ANONYMOUS,
						    .inode = i * 64ull };

		while (!finder->found[i])
			finder->found[i] = user_images_find(finder->images, &key);
	}
	return NULL;
}

TEST(user_image, is_one_for_all_threads)
{
	static struct finder finders[THREADS];
	struct user_images *images;
	struct guest_kernel kernel = { 0 };
	struct guest_view view = { 0 };
	pthread_t threads[THREADS];

	REQUIRE_EQUAL(user_images_create(&images), 0);
	for (int i = 0; i < THREADS; i++) {
		finders[i] = (struct finder){ .images = images };
		REQUIRE_EQUAL(pthread_create(&threads[i], NULL, find_all, &finders[i]), 0);
	}
	user_images_load(images, &kernel, &view);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	user_images_load(images, &kernel, &view);
	for (int i = 0; i < KEYS; i++) {
		for (int thread = 1; thread < THREADS; thread++)
			CHECK(finders[thread].found[i] == finders[0].found[i]);
		CHECK_STRING(user_image_name(finders[0].found[i]), "//anon");
		CHECK(user_images_at(images, user_image_number(finders[0].found[i])) ==
		      finders[0].found[i]);
	}
	CHECK(user_images_share(images) == images);
	user_images_free(images);
	user_images_free(images);
}

/* A guest that has more files than we keep: those that came first stay. */
TEST(user_image, table_is_bounded)
{
	struct user_images *images;
	unsigned int found = 0;

	REQUIRE_EQUAL(user_images_create(&images), 0);
	for (uint64_t i = 0; i < 2 * USER_IMAGES_MAX; i++) {
		const struct user_image_key key = { .kind = USER_IMAGE_ANONYMOUS, .inode = i * 64 };

		found += user_images_find(images, &key) != NULL;
	}
	CHECK(found > USER_IMAGES_MAX / 2 && found <= USER_IMAGES_MAX);
	CHECK(user_images_find(images, &(struct user_image_key){ .kind = USER_IMAGE_ANONYMOUS }));
	user_images_free(images);
}
