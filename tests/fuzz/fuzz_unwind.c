/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: struct header, then the one page that repeats over the whole address space. Its end holds
 * ORC tables of 64 entries; the walk covers the rest. With by_rules its start holds unwind rules
 * for user code, one for each 32 bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "vmm/guest/linux/orc_table.h"
#include "vmm/guest/unwind/cfi_table.h"
#include "vmm/guest/unwind/unwind.h"

#define ENTRIES   64
#define TABLES_AT (4096 - ENTRIES * (4 + ORC_ENTRY_SIZE))

struct header {
	uint64_t rip, rsp, rbp;
	uint8_t format, cpl, long_mode, by_orc;
	uint16_t capacity;
	uint8_t by_rules, reserved;
};

#define RULES      32
#define RULE_BYTES 32 /* of code */

static uint32_t starts[RULES];
static uint16_t rule_of[RULES];
static struct cfi_rule rules[RULES];
static const struct cfi_table user_table = {
	.count = RULES, .rule_count = RULES, .starts = starts, .rule_of = rule_of, .rules = rules
};

/* Anything that the table compiler can produce: register numbers are in range. */
static void make_rules(const uint8_t *bytes)
{
	memcpy(rules, bytes, sizeof(rules));
	for (uint16_t i = 0; i < RULES; i++) {
		starts[i] = (uint32_t)i * RULE_BYTES;
		rule_of[i] = i;
		rules[i].cfa_register %= DWARF_RIP;
		if (rules[i].bp == CFI_REGISTER)
			rules[i].bp_offset &= DWARF_RIP - 1;
		if (rules[i].bx == CFI_REGISTER)
			rules[i].bx_offset &= DWARF_RIP - 1;
		if (rules[i].ip == CFI_REGISTER)
			rules[i].ip_offset &= DWARF_RIP - 1;
	}
}

/* One image, mapped at 0. */
static struct user_map *make_map(void)
{
	static struct user_images *images;
	static struct user_map map;
	struct user_image_key key = { .kind = USER_IMAGE_FILE };

	if (!images && user_images_create(&images))
		abort();
	map.count = 1;
	map.mappings[0] = (struct user_mapping){ .end = RULES * RULE_BYTES,
						 .flags = USER_MAPPING_EXEC,
						 .image = user_images_find(images, &key) };
	user_image_set_cfi(map.mappings[0].image, &user_table);
	return &map;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static _Alignas(4096) uint8_t page[4096];
	static uint64_t addresses[64];
	struct guest_region flat[16];
	struct guest_view view = { .regions = flat, .region_count = 16 };
	struct orc_table table = { .start = 0xffffffff80000000ull,
				   .end = UINT64_MAX,
				   .ips_gva = 0xffffffff81000000ull,
				   .ips = page + TABLES_AT,
				   .entries = page + TABLES_AT + ENTRIES * 4,
				   .count = ENTRIES };
	struct kernel_orc unwinder = { .tables = &table, .table_count = 1 };
	struct guest_registers registers = { 0 };
	struct guest_callchain chain = { .addresses = addresses };
	struct header header;

	if (size < sizeof(header))
		return 0;
	memcpy(&header, data, sizeof(header));
	memset(page, 0, sizeof(page));
	size -= sizeof(header);
	memcpy(page, data + sizeof(header), size < sizeof(page) ? size : sizeof(page));
	/*
	 * Paging is off: addresses have 32 bits; stack reads pass through 16 pages of the same
	 * bytes.
	 */
	for (size_t i = 0; i < 16; i++)
		flat[i] = (struct guest_region){ .gpa = i * 4096, .size = 4096, .hva = page };
	registers.rip = header.rip;
	registers.rsp = header.rsp;
	registers.rbp = header.rbp;
	registers.cpl = header.cpl & 3;
	registers.long_mode = header.long_mode & 1;
	unwinder.format = (enum orc_format)(header.format % 6);
	chain.capacity = header.capacity % 65;
	make_rules(page);
	guest_unwind(header.by_orc & 1 ? &unwinder : NULL, &view, &registers,
		     header.by_rules & 1 ? make_map() : NULL, &chain);
	if (chain.kernel_depth + chain.user_depth > chain.capacity)
		abort();
	orc_detect_format(&table);
	return 0;
}
