/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/btf_types.h"

#include "tests/unit/btf_image.h"
#include "tests/unit/shim/test.h"

/* Names of any length and with any first letter; of two, the first is found. */
TEST(btf, structs_are_found_by_their_whole_names)
{
	static const char *const names[] = { "b",         "begin",      "beginnin",
					     "beginning", "beginnings", "beginnind" };
	const struct btf_image_member member[] = { { "member", 0 }, { 0 } };
	const uint32_t count = sizeof(names) / sizeof(names[0]);
	struct btf_image image;
	struct btf btf;

	btf_image_start(&image);
	for (uint32_t i = 0; i < count; i++)
		btf_image_add_struct(&image, names[i], 8 * (i + 1), member);
	btf_image_add_struct(&image, names[1], 800, member);
	REQUIRE_EQUAL(btf_open(&btf, btf_image_finish(&image)), 0);
	for (uint32_t i = 0; i < count; i++)
		CHECK_EQUAL(btf_size(&btf, btf_find_struct(&btf, names[i])), 8 * (i + 1));
	CHECK_EQUAL(btf_find_struct(&btf, "be"), 0);
	CHECK_EQUAL(btf_find_struct(&btf, "beginninx"), 0);
	CHECK_EQUAL(btf_find_struct(&btf, "beginningsx"), 0);
	CHECK_EQUAL(btf_find_struct(&btf, "member"), 0);
	btf_close(&btf);
}

/* Its last name has no end. */
TEST(btf, name_without_a_nul_is_not_found)
{
	const struct btf_image_member member[] = { { "member", 0 }, { 0 } };
	struct btf_image image;
	struct btf btf;

	btf_image_start(&image);
	btf_image_add_struct(&image, "first", 8, member);
	btf_image_add_struct(&image, "last", 8, (struct btf_image_member[]){ { 0 } });
	image.strings_size--;
	REQUIRE_EQUAL(btf_open(&btf, btf_image_finish(&image)), 0);
	CHECK(btf_find_struct(&btf, "first"));
	CHECK_EQUAL(btf_find_struct(&btf, "last"), 0);
	btf_close(&btf);
}
