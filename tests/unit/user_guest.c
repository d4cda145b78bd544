/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/user_guest.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY     (16ull << 20)
#define PAGES      0x100000ull /* GPA of the array of all struct page */
#define PAGES_BASE 0x1000ull   /* GPA of the variable that has its address */
#define FREE       0x200000ull
#define NAMESPACE  (USER_GUEST_DIRECT + 0x2000) /* of mounts; its address does not matter */
#define LEAF       1u
#define RANGE      2u
#define ARANGE     3u

static const struct guest_vma_layout layout = {
	.known = true,
	.mm_root = 8,
	.maple_leaf = LEAF,
	.maple_range = RANGE,
	.maple_arange = ARANGE,
	.range = { .pivots = 8, .slots = 128, .end = 248, .count = 16 },
	.arange = { .pivots = 8, .slots = 80, .end = 240, .count = 10 },
	.vma_node = 0x20,
	.node_left = 16,
	.node_right = 8,
	.mm_stack = 0x100,
	.has_changes = true,
	.mm_space = 0x180,
	.mm_changes = 0x188,
	.mm_heap = 0x108,
	.mm_heap_end = 0x110,
	.mm_vdso = 0x118,
	.mm_vdso_image = 0x120,
	.vma_size = 200,
	.vma_start = 0,
	.vma_end = 8,
	.vma_mm = 64,
	.vma_flags = 80,
	.vma_page = 152,
	.vma_file = 160,
	.vma_operations = 144,
	.special_operations = 0xffffffff81000100,
	.vdso_data = 0,
	.vdso_size = 8,
	.file_mount = 16,
	.file_dentry = 24,
	.file_inode = 32,
	.file_mode = 40,
	.backing_mount = 48,
	.backing_dentry = 56,
	.dentry_super = 8,
	.vfsmount_super = 8,
	.dentry_parent = 24,
	.dentry_hash = 32,
	.dentry_name = 40,
	.dentry_unhashed = 16,
	.mount_embedded = 32,
	.mount_parent = 16,
	.mount_point = 24,
	.mount_namespace = 48,
	.vfsmount_root = 0,
	.inode_number = 64,
	.inode_generation = 72,
	.inode_seconds = 80,
	.inode_nanoseconds = 88,
	.inode_super = 40,
	.super_device = 16,
	.has_pages = true,
	.inode_mapping = 48,
	.mapping_pages = 16,
	.xarray_shift = 0,
	.xarray_slots = 40,
	.xarray_slot_count = 64,
	.page_mapping = 24,
	.page_size = 64,
	.page_flags = 8,
	.page_uptodate = 3,
	.page_array = USER_GUEST_DIRECT + PAGES_BASE,
};

void user_guest_put(struct user_guest *guest, uint64_t gva, uint64_t value)
{
	flat_guest_write_u64(&guest->guest, gva - USER_GUEST_DIRECT, value);
}

uint64_t user_guest_get(struct user_guest *guest, uint64_t gva)
{
	uint64_t value;

	memcpy(&value, guest->guest.memory + (gva - USER_GUEST_DIRECT), sizeof(value));
	return value;
}

uint64_t user_guest_allocate(struct user_guest *guest, uint64_t size, uint64_t alignment)
{
	uint64_t at = (guest->next + alignment - 1) & ~(alignment - 1);

	if (at + size > guest->guest.tables_end)
		abort();
	guest->next = at + size;
	return USER_GUEST_DIRECT + at;
}

uint64_t user_guest_dentry(struct user_guest *guest, uint64_t parent, const char *name)
{
	uint64_t length = strlen(name), dentry = user_guest_allocate(guest, 64 + length, 64);

	memcpy(guest->guest.memory + (dentry - USER_GUEST_DIRECT) + 64, name, length);
	user_guest_put(guest, dentry + layout.dentry_parent, parent ? parent : dentry);
	user_guest_put(guest, dentry + layout.dentry_hash, length << 32 | (uint32_t)(dentry >> 6));
	user_guest_put(guest, dentry + layout.dentry_name, dentry + 64);
	user_guest_put(guest, dentry + layout.dentry_unhashed, 1);
	return dentry;
}

static uint64_t make_mount(struct user_guest *guest, uint64_t *root)
{
	uint64_t mount = user_guest_allocate(guest, 64, 64);

	*root = user_guest_dentry(guest, 0, "/");
	user_guest_put(guest, mount + layout.mount_embedded + layout.vfsmount_root, *root);
	user_guest_put(guest, mount + layout.mount_namespace, NAMESPACE);
	return mount;
}

uint64_t user_guest_mount(struct user_guest *guest, uint64_t parent, uint64_t point, uint64_t *root)
{
	uint64_t mount = make_mount(guest, root);

	user_guest_put(guest, mount + layout.mount_parent, parent - layout.mount_embedded);
	user_guest_put(guest, mount + layout.mount_point, point);
	return mount + layout.mount_embedded;
}

static void make_root(struct user_guest *guest)
{
	uint64_t mount = make_mount(guest, &guest->root);

	user_guest_put(guest, mount + layout.mount_parent, mount);
	user_guest_put(guest, mount + layout.mount_point, guest->root);
	guest->root_mount = mount + layout.mount_embedded;
}

void user_guest_make(struct user_guest *guest, bool is_maple)
{
	memset(guest, 0, sizeof(*guest));
	flat_guest_create(&guest->guest, MEMORY);
	guest->next = FREE;
	guest->kernel.paging = guest->guest.registers.paging;
	guest->kernel.vmas = layout;
	guest->kernel.vmas.is_maple = is_maple;
	if (user_images_create(&guest->kernel.images))
		abort();
	for (uint64_t at = 0; at < MEMORY; at += 2u << 20)
		flat_guest_map(&guest->guest, guest->kernel.paging.cr3, USER_GUEST_DIRECT + at, at,
			       2u << 20, 0);
	user_guest_put(guest, USER_GUEST_DIRECT + PAGES_BASE, USER_GUEST_DIRECT + PAGES);
	guest->mm = user_guest_allocate(guest, 0x200, 64);
	make_root(guest);
}

void user_guest_free(struct user_guest *guest)
{
	user_images_free(guest->kernel.images);
	flat_guest_destroy(&guest->guest);
}

uint64_t user_guest_file(struct user_guest *guest, uint64_t mount, uint64_t dentry, uint64_t number)
{
	uint64_t file = user_guest_allocate(guest, 64, 64),
		 inode = user_guest_allocate(guest, 128, 64);
	uint64_t super = user_guest_allocate(guest, 64, 64),
		 mapping = user_guest_allocate(guest, 64, 64);

	user_guest_put(guest, file + layout.file_mount, mount);
	user_guest_put(guest, file + layout.file_dentry, dentry);
	user_guest_put(guest, file + layout.file_inode, inode);
	user_guest_put(guest, inode + layout.inode_number, number);
	user_guest_put(guest, inode + layout.inode_seconds, 1700000000 + number);
	user_guest_put(guest, inode + layout.inode_super, super);
	user_guest_put(guest, inode + layout.inode_mapping, mapping);
	user_guest_put(guest, super + layout.super_device, 8 << 20 | 1);
	return file;
}

void user_guest_back(struct user_guest *guest, uint64_t file, uint64_t mount, uint64_t dentry)
{
	user_guest_put(guest, file + layout.file_mode, 1u << 24);
	user_guest_put(guest, mount + layout.vfsmount_super, guest->root);
	user_guest_put(guest, dentry + layout.dentry_super, guest->root);
	user_guest_put(guest, file + layout.backing_mount, mount);
	user_guest_put(guest, file + layout.backing_dentry, dentry);
}

uint64_t user_guest_inode(struct user_guest *guest, uint64_t file)
{
	return user_guest_get(guest, file + layout.file_inode);
}

/* One level of the tree: 64 pages. */
static uint64_t page_node(struct user_guest *guest, uint64_t mapping)
{
	uint64_t head = mapping + layout.mapping_pages,
		 tag = guest->kernel.vmas.is_radix_tree ? 1 : 2;

	if (!user_guest_get(guest, head))
		user_guest_put(guest, head, user_guest_allocate(guest, 40 + 64 * 8, 64) | tag);
	return user_guest_get(guest, head) - tag;
}

uint64_t user_guest_cache(struct user_guest *guest, uint64_t file, uint64_t first,
			  unsigned int count)
{
	uint64_t mapping =
		user_guest_get(guest, user_guest_inode(guest, file) + layout.inode_mapping);
	uint64_t memory = user_guest_allocate(guest, count * 4096ull, 4096) - USER_GUEST_DIRECT;
	uint64_t page = USER_GUEST_DIRECT + PAGES + memory / 4096 * layout.page_size;
	uint64_t slots = page_node(guest, mapping) + layout.xarray_slots;

	user_guest_put(guest, page + layout.page_mapping, mapping);
	user_guest_put(guest, page + layout.page_flags, 1u << layout.page_uptodate);
	for (uint64_t i = 0; i < count; i++)
		user_guest_put(guest, slots + 8 * (first + i), i ? first << 2 | 2 : page);
	return memory;
}

uint64_t user_guest_map(struct user_guest *guest, uint64_t start, uint64_t end, uint64_t page,
			uint64_t flags, uint64_t file)
{
	uint64_t vma = user_guest_allocate(guest, layout.vma_size, 64);

	if (guest->vma_count == USER_GUEST_VMAS)
		abort();
	user_guest_put(guest, vma + layout.vma_start, start);
	user_guest_put(guest, vma + layout.vma_end, end);
	user_guest_put(guest, vma + layout.vma_mm, guest->mm);
	user_guest_put(guest, vma + layout.vma_page, page);
	user_guest_put(guest, vma + layout.vma_flags, flags);
	user_guest_put(guest, vma + layout.vma_file, file);
	guest->vmas[guest->vma_count++] = vma;
	return vma;
}

static uint64_t build_red_black(struct user_guest *guest, unsigned int first, unsigned int count)
{
	uint64_t node;

	if (!count)
		return 0;
	node = guest->vmas[first + count / 2] + layout.vma_node;
	user_guest_put(guest, node + layout.node_left, build_red_black(guest, first, count / 2));
	user_guest_put(guest, node + layout.node_right,
		       build_red_black(guest, first + count / 2 + 1, count - count / 2 - 1));
	return node;
}

/* Ranges of indices and what they lead to, including the gaps. */
struct entries {
	struct {
		uint64_t last, value;
	} of[2 * USER_GUEST_VMAS + 1];
	unsigned int count;
};

static void add_entry(struct entries *entries, uint64_t last, uint64_t value)
{
	entries->of[entries->count].last = last;
	entries->of[entries->count++].value = value;
}

static struct entries vma_entries(struct user_guest *guest)
{
	struct entries entries = { .count = 0 };
	uint64_t next = 0;

	for (unsigned int i = 0; i < guest->vma_count; i++) {
		uint64_t start = user_guest_get(guest, guest->vmas[i] + layout.vma_start);

		if (start > next)
			add_entry(&entries, start - 1, 0);
		next = user_guest_get(guest, guest->vmas[i] + layout.vma_end);
		add_entry(&entries, next - 1, guest->vmas[i]);
	}
	add_entry(&entries, UINT64_MAX, 0);
	return entries;
}

/*
 * A node of TYPE with COUNT entries from FIRST on. The last entry has no pivot if it is the tree's
 * last.
 */
static uint64_t make_node(struct user_guest *guest, const struct entries *entries,
			  unsigned int first, unsigned int count, unsigned int type)
{
	const struct maple_node_layout *form = type == ARANGE ? &layout.arange : &layout.range;
	uint64_t node = user_guest_allocate(guest, MAPLE_NODE_SIZE, MAPLE_NODE_SIZE);

	for (unsigned int i = 0; i < count; i++) {
		uint64_t last = entries->of[first + i].last;

		user_guest_put(guest, node + form->slots + 8ull * i, entries->of[first + i].value);
		if (i < form->count - 1 && last != UINT64_MAX)
			user_guest_put(guest, node + form->pivots + 8ull * i, last);
	}
	if (type == ARANGE || count < form->count)
		guest->guest.memory[node - USER_GUEST_DIRECT + form->end] = (uint8_t)(count - 1);
	return node | type << 3 | 4;
}

/* Fills nodes as far as possible, for the fewest levels. */
static uint64_t build_maple(struct user_guest *guest)
{
	struct entries entries = vma_entries(guest);
	unsigned int type = LEAF;

	do {
		unsigned int room = type == ARANGE ? layout.arange.count : layout.range.count;
		struct entries above = { .count = 0 };

		for (unsigned int first = 0; first < entries.count; first += room) {
			unsigned int count =
				entries.count - first < room ? entries.count - first : room;

			add_entry(&above, entries.of[first + count - 1].last,
				  make_node(guest, &entries, first, count, type));
		}
		entries = above;
		type = type == LEAF ? ARANGE : type == ARANGE ? RANGE : ARANGE;
	} while (entries.count > 1);
	return entries.of[0].value | 2;
}

void user_guest_build(struct user_guest *guest)
{
	bool is_maple = guest->kernel.vmas.is_maple;

	user_guest_put(guest, guest->mm + layout.mm_root,
		       is_maple ? build_maple(guest) : build_red_black(guest, 0, guest->vma_count));
}

const struct user_mapping *user_guest_lookup(struct user_guest *guest, uint64_t address)
{
	user_map_begin(&guest->map, &guest->kernel, &guest->guest.view, guest->mm);
	return user_map_find(&guest->map, address);
}

struct image_parser *user_guest_parser(void)
{
	static struct image_parser *parser;

	if (!parser && image_parser_start(&parser, NULL, NULL))
		abort();
	return parser;
}
