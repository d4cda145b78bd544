/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: struct header, then the one page that the whole address space maps
 * to. Its end holds ORC tables of 64 entries; the walk goes over the rest.
 */
#include <stdlib.h>
#include <string.h>

#include "vmm/guest/unwind.h"
#include "vmm/guest/unwinder.h"

#define ENTRIES   64
#define TABLES_AT (4096 - ENTRIES * (4 + ORC_ENTRY_SIZE))

struct header {
	uint64_t rip, rsp, rbp;
	uint8_t format, cpl, long_mode, by_orc;
	uint16_t capacity, reserved;
};

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
	struct guest_unwinder unwinder = { .tables = &table, .table_count = 1 };
	struct guest_registers registers = { 0 };
	struct guest_callchain chain = { .addresses = addresses };
	struct header header;

	if (size < sizeof(header))
		return 0;
	memcpy(&header, data, sizeof(header));
	memset(page, 0, sizeof(page));
	size -= sizeof(header);
	memcpy(page, data + sizeof(header), size < sizeof(page) ? size : sizeof(page));
	/* Paging off: addresses are 32 bits; stack reads go through all 16 pages of the same bytes. */
	for (size_t i = 0; i < 16; i++)
		flat[i] = (struct guest_region){ .gpa = i * 4096, .size = 4096, .hva = page };
	registers.rip = header.rip;
	registers.rsp = header.rsp;
	registers.rbp = header.rbp;
	registers.cpl = header.cpl & 3;
	registers.long_mode = header.long_mode & 1;
	unwinder.format = (enum orc_format)(header.format % 5);
	chain.capacity = header.capacity % 65;
	guest_unwind(header.by_orc & 1 ? &unwinder : NULL, &view, &registers, &chain);
	if (chain.kernel_depth + chain.user_depth > chain.capacity)
		abort();
	orc_detect_format(&table);
	return 0;
}
