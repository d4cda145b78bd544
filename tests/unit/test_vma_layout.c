// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "tests/unit/btf_image.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/vma_layout.h"

#define SLOTS  17
#define LEVELS 8 /* of anonymous members that are in each other */

static uint32_t add_one(struct btf_image *image, const char *name, const char *part, uint32_t offset,
			uint32_t type)
{
	return btf_image_add_parts(image, name, offset + 8, &(struct btf_image_part){ part, offset, type },
				   1);
}

/* A kind of maple nodes of SIZE bytes, whose slots lie LEVELS times AT into them. */
static void add_node(struct btf_image *image, const char *name, uint32_t size, uint32_t at)
{
	uint32_t pivots = btf_image_add_array(image, SLOTS - 1);
	uint32_t meta = add_one(image, "", "end", 0, BTF_IMAGE_WORD);
	uint32_t inner = add_one(image, "", "slot", 0, btf_image_add_array(image, SLOTS));

	for (int level = 1; level < LEVELS; level++)
		inner = add_one(image, "", "", at, inner);
	btf_image_add_parts(
		image, name, size,
		(struct btf_image_part[]){ { "pivot", 0, pivots }, { "", at, inner }, { "meta", 128, meta } },
		3);
}

/* Is a kernel with such nodes taken for one that has maple trees? All else of it is missing. */
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

TEST(vma_layout, slots_of_a_maple_node_lie_in_it)
{
	CHECK(is_maple(256, 15));
	CHECK(!is_maple(256, 16));
	/* A guest may say anything: here they begin 128 bytes before 4 GiB, and end behind them, in the node.
	 */
	CHECK(!is_maple(UINT32_MAX, 0x1ffffff0));
}
