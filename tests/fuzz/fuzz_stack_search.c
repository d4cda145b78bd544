/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: struct header, then the page that repeats over the stacks and the kernel, whose tables,
 * code and data it is at once. The search must stay within its bounds.
 */
#include <stdlib.h>
#include <string.h>

#include "vmm/guest/page_walk.h"
#include "vmm/guest/unwind/stack_search.h"

#define ENTRIES   64
#define TABLES_AT (4096 - ENTRIES * (4 + ORC_ENTRY_SIZE))
#define TEXT      0xffffffff80000000ull
#define TEXT_SIZE 0x8000ull
#define STACK     0xffffc90000000000ull
#define FUNCTIONS 64

struct header {
	uint64_t rip, rbp, rbx;
	uint8_t format, stacks;
	uint16_t reserved;
};

static uint8_t page[4096];

/* Every address has the bytes of the page. */
static int translate(const struct guest_view *view, uint64_t gva,
		     struct guest_translation *translation)
{
	(void)view;
	*translation = (struct guest_translation){ .gpa = gva % 4096, .page_size = 4096 };
	return 0;
}

static struct symbols *make_symbols(void)
{
	static const char *const names[] = { "__x86_return_thunk", "kthread", "ret_from_fork",
					     "function.cold" };
	struct symbols *symbols = symbols_new();

	if (!symbols)
		abort();
	for (uint64_t i = 0; i < FUNCTIONS; i++)
		symbols_add(symbols, TEXT + i * TEXT_SIZE / FUNCTIONS, 0, 't',
			    i % 16 < 4 ? names[i % 16] : "function", NULL);
	symbols_add(symbols, TEXT, 0, 'T', "_text", NULL);
	symbols_add(symbols, TEXT + TEXT_SIZE, 0, 'T', "_etext", NULL);
	symbols_add(symbols, TEXT + TEXT_SIZE + 4096, 0, 'B', "_end", NULL);
	symbols_finish(symbols);
	return symbols;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct symbols *symbols;
	static struct stack_search_result result;
	struct guest_region region = { .size = 4096, .hva = page };
	struct guest_view view = { .regions = &region, .region_count = 1, .translate = translate };
	struct orc_table table = { .start = TEXT,
				   .end = TEXT + TEXT_SIZE,
				   .ips_gva = TEXT + 0x1000000,
				   .ips = page + TABLES_AT,
				   .entries = page + TABLES_AT + ENTRIES * 4,
				   .count = ENTRIES };
	struct kernel_orc orc = { .tables = &table, .table_count = 1 };
	struct guest_registers registers = { 0 };
	struct stack_search_input input = { .orc = &orc, .view = &view, .registers = &registers };
	struct stack_search *search;
	struct header header;

	if (size < sizeof(header))
		return 0;
	if (!symbols)
		symbols = make_symbols();
	memcpy(&header, data, sizeof(header));
	size -= sizeof(header);
	memset(page, 0, sizeof(page));
	memcpy(page, data + sizeof(header), size < sizeof(page) ? size : sizeof(page));
	orc.format = (enum orc_format)(header.format % 6);
	registers.rip = TEXT + header.rip % TEXT_SIZE;
	registers.rbp = STACK + header.rbp % 0x4000;
	registers.rbx = header.rbx;
	input.stack_count = header.stacks % (STACK_SEARCH_STACKS + 1);
	for (unsigned int i = 0; i < input.stack_count; i++)
		input.stacks[i] = (struct stack_bounds){ STACK + i * 0x10000,
							 STACK + i * 0x10000 + 0x4000, !i };
	search = stack_search_new(symbols, &view, &orc.paging);
	if (!search)
		abort();
	stack_search_run(search, &input, &result);
	if (!result.depth || result.depth > STACK_SEARCH_DEPTH ||
	    result.steps > STACK_SEARCH_STEPS_MAX || result.addresses[0] != registers.rip)
		abort();
	stack_search_free(search);
	return 0;
}
