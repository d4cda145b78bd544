/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_guest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY     (8ull << 20)
#define TEXT_GPA   0x400000ull /* one 2 MiB page */
#define MODULE_GPA 0x200000ull /* the module's page table maps 4 KiB pages from here */

static void set_entry(struct fake_guest *guest, uint64_t table, unsigned int index, uint64_t value)
{
	memcpy(guest->memory + table + 8 * index, &value, sizeof(value));
}

/* Tables from 0x1000 on; bit 0 present, bit 1 writable, bit 7 a large page. */
static void map_pages(struct fake_guest *guest, uint64_t text, uint64_t module)
{
	set_entry(guest, 0x1000, text >> 39 & 511, 0x2003);
	set_entry(guest, 0x2000, text >> 30 & 511, 0x3003);
	set_entry(guest, 0x2000, module >> 30 & 511, 0x4003);
	set_entry(guest, 0x3000, text >> 21 & 511, TEXT_GPA | 0x83);
	set_entry(guest, 0x4000, module >> 21 & 511, 0x5003);
	for (unsigned int page = 0; page < 2; page++)
		set_entry(guest, 0x5000, (module >> 12 & 511) + page,
			  (MODULE_GPA + page * 0x1000) | 3);
}

/*
 * push rbp; mov rbp,rsp; 13 times nop; pop rbp; ret, then int3: the code that perf annotate shows.
 */
static void write_function(uint8_t *to)
{
	static const uint8_t begin[] = { 0x55, 0x48, 0x89, 0xe5 }, end[] = { 0x5d, 0xc3 };

	memset(to, 0xcc, FAKE_FUNCTION_SIZE);
	memcpy(to, begin, sizeof(begin));
	memset(to + sizeof(begin), 0x90, 13);
	memcpy(to + sizeof(begin) + 13, end, sizeof(end));
}

static void add_functions(struct fake_guest *guest, uint64_t start, uint64_t gpa,
			  const char *prefix, const char *module)
{
	char name[32];

	for (unsigned int i = 0; i < FAKE_FUNCTIONS; i++) {
		snprintf(name, sizeof(name), "%s_%u", prefix, i);
		write_function(guest->memory + gpa + i * FAKE_FUNCTION_SIZE);
		symbols_add(guest->symbols, start + i * FAKE_FUNCTION_SIZE, FAKE_FUNCTION_SIZE, 't',
			    name, module);
	}
}

void fake_guest_make(struct fake_guest *guest, uint8_t tag, uint64_t slide, uint64_t module_start)
{
	uint64_t text = FAKE_TEXT + slide, end = text + FAKE_FUNCTIONS * FAKE_FUNCTION_SIZE;

	*guest = (struct fake_guest){ .memory = calloc(1, MEMORY), .symbols = symbols_new() };
	guest->region = (struct guest_region){ 0, MEMORY, guest->memory };
	guest->view = (struct guest_view){ .regions = &guest->region, .region_count = 1 };
	guest->paging = (struct guest_paging){
		.cr0 = 0x80000001, .cr3 = 0x1000, .cr4 = 0x20, .efer = 0x500
	};
	map_pages(guest, text, module_start);
	symbols_add(guest->symbols, text, 0, 'T', "_text", NULL);
	symbols_add(guest->symbols, text, 0, 'T', "_stext", NULL);
	add_functions(guest, text, TEXT_GPA, "guest_function", NULL);
	symbols_add(guest->symbols, end, 0, 'T', "_etext", NULL);
	symbols_add(guest->symbols, text + FAKE_INIT, 0x100, 't', "init_function", NULL);
	symbols_add(guest->symbols, text + FAKE_INIT + 0x1000, 0, 'B', "_end", NULL);
	add_functions(guest, module_start, MODULE_GPA, "module_function", "fake_module");
	symbols_finish(guest->symbols);
	guest->module = (struct guest_module){ .name = "fake_module",
					       .start = module_start,
					       .size = 0x1000 };
	memset(guest->build_id, tag, sizeof(guest->build_id));
	guest->image = (struct kernel_image){
		.build_id = guest->build_id,
		.build_id_size = sizeof(guest->build_id),
		.start = text,
		.text_end = end,
		.end = text + FAKE_INIT + 0x1000,
		.symbols = guest->symbols,
		.modules = &guest->module,
		.module_count = 1,
	};
}

void fake_guest_free(struct fake_guest *guest)
{
	symbols_free(guest->symbols);
	free(guest->memory);
}

uint8_t *fake_guest_code(struct fake_guest *guest)
{
	return guest->memory + TEXT_GPA;
}
