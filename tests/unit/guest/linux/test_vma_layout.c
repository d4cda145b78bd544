/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "tests/unit/btf_image.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/linux/vma_layout.h"

#define SLOTS  17
#define LEVELS 8 /* of anonymous members that are in each other */

static uint32_t add_one(struct btf_image *image, const char *name, const char *part,
			uint32_t offset, uint32_t type)
{
	return btf_image_add_parts(image, name, offset + 8,
				   &(struct btf_image_part){ part, offset, type }, 1);
}

/* Adds a type of maple nodes with SIZE bytes, whose slots are at LEVELS times AT. */
static void add_node(struct btf_image *image, const char *name, uint32_t size, uint32_t at)
{
	uint32_t pivots = btf_image_add_array(image, SLOTS - 1);
	uint32_t meta = add_one(image, "", "end", 0, BTF_IMAGE_WORD);
	uint32_t inner = add_one(image, "", "slot", 0, btf_image_add_array(image, SLOTS));

	for (int level = 1; level < LEVELS; level++)
		inner = add_one(image, "", "", at, inner);
	btf_image_add_parts(image, name, size,
			    (struct btf_image_part[]){ { "pivot", 0, pivots },
						       { "", at, inner },
						       { "meta", 128, meta } },
			    3);
}

/* Whether a kernel with such nodes is detected as one with maple trees. Everything else is missing.
 */
static bool is_maple(uint32_t size, uint32_t at)
{
	static const char *const kinds[] = { "maple_dense", "maple_leaf_64", "maple_range_64",
					     "maple_arange_64", NULL };
	struct symbols *symbols = symbols_new();
	struct guest_vma_layout layout;
	struct btf_image image;
	struct btf btf;

	btf_image_start(&image);
	add_one(&image, "mm_struct", "mm_mt", 8, add_one(&image, "", "ma_root", 0, BTF_IMAGE_WORD));
	btf_image_add_enum(&image, kinds);
	add_node(&image, "maple_range_64", size, at);
	add_node(&image, "maple_arange_64", size, at);
	symbols_finish(symbols);
	CHECK_EQUAL(btf_open(&btf, btf_image_finish(&image)), 0);
	CHECK_EQUAL(guest_vma_layout_read(&layout, symbols, &btf), -ENOENT);
	btf_close(&btf);
	symbols_free(symbols);
	return layout.is_maple;
}

TEST(vma_layout, slots_are_inside_a_maple_node)
{
	CHECK(is_maple(256, 15));
	CHECK(!is_maple(256, 16));
	/* Hostile offsets: slots start 128 bytes before 4 GiB and wrap around into the node. */
	CHECK(!is_maple(UINT32_MAX, 0x1ffffff0));
}

/* --- the page cache ------------------------------------------------------------------- */

/* Adds a struct NAME of up to 8 words with NAMES, which ends with NULL. Returns its ID. */
static uint32_t add_words(struct btf_image *image, const char *name, const char *const *names)
{
	struct btf_image_part parts[8];
	uint32_t count = 0;

	for (; names[count]; count++)
		parts[count] = (struct btf_image_part){ names[count], 8 * count, BTF_IMAGE_WORD };
	return btf_image_add_parts(image, name, 8 * count, parts, count);
}

#define WORDS(image, name, ...) add_words(image, name, (const char *const[]){ __VA_ARGS__, NULL })

static void add_memory(struct btf_image *image)
{
	uint32_t context = WORDS(image, "", "ctx_id", "tlb_gen", "vdso", "vdso_image");
	uint32_t root = WORDS(image, "", "rb_node"),
		 node = WORDS(image, "rb_node", "rb_left", "rb_right", "pad");
	const struct btf_image_part mm[] = {
		{ "mm_rb", 0, root },
		{ "start_stack", 8, BTF_IMAGE_WORD },
		{ "start_brk", 16, BTF_IMAGE_WORD },
		{ "brk", 24, BTF_IMAGE_WORD },
		{ "context", 32, context },
	};
	const struct btf_image_part vma[] = {
		{ "vm_start", 0, BTF_IMAGE_WORD },
		{ "vm_end", 8, BTF_IMAGE_WORD },
		{ "vm_rb", 16, node },
		{ "vm_mm", 40, BTF_IMAGE_WORD },
		{ "vm_flags", 48, BTF_IMAGE_WORD },
		{ "vm_pgoff", 56, BTF_IMAGE_WORD },
		{ "vm_file", 64, BTF_IMAGE_WORD },
		{ "vm_ops", 72, BTF_IMAGE_WORD },
	};

	btf_image_add_parts(image, "mm_struct", 64, mm, 5);
	btf_image_add_parts(image, "vm_area_struct", 80, vma, 8);
	WORDS(image, "vdso_image", "data", "size");
}

static void add_files(struct btf_image *image)
{
	const struct btf_image_part file[] = { { "f_path", 0, WORDS(image, "", "mnt", "dentry") },
					       { "f_inode", 16, BTF_IMAGE_WORD } };
	const struct btf_image_part dentry[] = {
		{ "d_parent", 0, BTF_IMAGE_WORD },
		{ "d_name", 8, WORDS(image, "", "hash_len", "name") },
		{ "d_hash", 24, WORDS(image, "", "next", "pprev") }
	};
	const struct btf_image_part inode[] = { { "i_ino", 0, BTF_IMAGE_WORD },
						{ "i_generation", 8, BTF_IMAGE_WORD },
						{ "i_sb", 16, BTF_IMAGE_WORD },
						{ "i_ctime", 24,
						  WORDS(image, "", "tv_sec", "tv_nsec") },
						{ "i_mapping", 40, BTF_IMAGE_WORD } };

	btf_image_add_parts(image, "file", 24, file, 2);
	btf_image_add_parts(image, "dentry", 40, dentry, 3);
	btf_image_add_parts(image, "inode", 48, inode, 5);
	WORDS(image, "mount", "mnt", "mnt_parent", "mnt_mountpoint", "mnt_ns");
	WORDS(image, "vfsmount", "mnt_root");
	WORDS(image, "super_block", "s_dev");
}

/*
 * The kernel has the pages of files in TREE of struct address_space, with member ROOT and nodes of
 * type NODE.
 */
struct page_tree {
	const char *tree, *root, *node;
	bool known, is_radix_tree;
};

static void add_pages(struct btf_image *image, const struct page_tree *pages)
{
	static const char *const flags[] = { "PG_locked", "PG_error", "PG_referenced",
					     "PG_uptodate", NULL };
	const struct btf_image_part node[] = { { "shift", 0, BTF_IMAGE_WORD },
					       { "slots", 40, btf_image_add_array(image, 64) } };
	const struct btf_image_part space = { pages->tree, 8,
					      WORDS(image, "", "flags", pages->root) };

	btf_image_add_enum(image, flags);
	btf_image_add_parts(image, pages->node, 40 + 64 * 8, node, 2);
	btf_image_add_parts(image, "address_space", 24, &space, 1);
	WORDS(image, "page", "flags", "mapping");
}

static void check_pages(const struct page_tree *pages)
{
	struct symbols *symbols = symbols_new();
	struct guest_vma_layout layout;
	struct btf_image image;
	struct btf btf;

	btf_image_start(&image);
	add_memory(&image);
	add_files(&image);
	add_pages(&image, pages);
	CHECK_EQUAL(symbols_add(symbols, 0xffffffff82000000, 8, 'd', "vmemmap_base", NULL), 0);
	symbols_finish(symbols);
	CHECK_EQUAL(btf_open(&btf, btf_image_finish(&image)), 0);
	CHECK_EQUAL(guest_vma_layout_read(&layout, symbols, &btf), 0);
	CHECK(layout.known && !layout.is_maple && layout.has_changes);
	CHECK_EQUAL(layout.has_pages, pages->known);
	if (pages->known) {
		CHECK_EQUAL(layout.is_radix_tree, pages->is_radix_tree);
		CHECK_EQUAL(layout.mapping_pages, 16);
		CHECK_EQUAL(layout.xarray_slots, 40);
		CHECK_EQUAL(layout.xarray_slot_count, 64);
	}
	btf_close(&btf);
	symbols_free(symbols);
}

TEST(vma_layout, trees_of_pages_of_all_kernel_versions)
{
	static const struct page_tree ages[] = {
		{ "i_pages", "xa_head", "xa_node", true, false },
		{ "i_pages", "rnode", "radix_tree_node", true, true },   /* 4.17 to 4.19 */
		{ "page_tree", "rnode", "radix_tree_node", true, true }, /* to 4.16 */
		{ "page_tree", "rnode", "xa_node", false, false },
		{ "pages", "xa_head", "xa_node", false, false },
	};

	for (size_t i = 0; i < sizeof(ages) / sizeof(ages[0]); i++)
		check_pages(&ages[i]);
}
