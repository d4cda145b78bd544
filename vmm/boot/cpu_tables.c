/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/boot/cpu_tables.h"

#include <errno.h>

#include "shared/error.h"
#include "vmm/boot/address_map.h"

/* Page table entry bits, SDM volume 3, 4.5. */
#define ENTRY_TABLE   0x03ull /* present, writable */
#define ENTRY_2M_PAGE 0x83ull /* present, writable, page size */
#define PAGE_SIZE_4K  0x1000ull
#define PAGE_SIZE_2M  0x200000ull
#define TABLE_ENTRIES 512

#define DIRECTORIES (CPU_TABLES_MAPPED / PAGE_SIZE_2M / TABLE_ENTRIES)

/* Flat descriptors, base 0, limit 4 GiB, accessed; SDM volume 3, 3.4.5. */
#define DESCRIPTOR_CODE_64 0x00af9b000000ffffull
#define DESCRIPTOR_CODE_32 0x00cf9b000000ffffull
#define DESCRIPTOR_DATA    0x00cf93000000ffffull
/* An available 32-bit TSS of 0x68 bytes at 0: the task register must hold one. */
#define DESCRIPTOR_TSS 0x0000890000000067ull

static void fill_directory(uint64_t *directory, uint64_t index)
{
	for (uint64_t i = 0; i < TABLE_ENTRIES; i++)
		directory[i] = ((index * TABLE_ENTRIES + i) * PAGE_SIZE_2M) | ENTRY_2M_PAGE;
}

static int write_page_tables(const struct memory *memory)
{
	uint64_t *tables =
		memory_pointer(memory, LAYOUT_PAGE_TABLES, (2 + DIRECTORIES) * PAGE_SIZE_4K);
	uint64_t *pointers;

	if (!tables)
		return -EFAULT;
	pointers = tables + TABLE_ENTRIES;
	tables[0] = (LAYOUT_PAGE_TABLES + PAGE_SIZE_4K) | ENTRY_TABLE;
	for (uint64_t i = 0; i < DIRECTORIES; i++) {
		pointers[i] = (LAYOUT_PAGE_TABLES + (2 + i) * PAGE_SIZE_4K) | ENTRY_TABLE;
		fill_directory(pointers + (1 + i) * TABLE_ENTRIES, i);
	}
	return 0;
}

int cpu_tables_write(const struct memory *memory, struct boot_start *start)
{
	const uint64_t gdt[] = {
		0,
		0,
		start->long_mode ? DESCRIPTOR_CODE_64 : DESCRIPTOR_CODE_32,
		DESCRIPTOR_DATA,
		DESCRIPTOR_TSS,
	};

	if (memory_write(memory, LAYOUT_GDT, gdt, sizeof(gdt)) ||
	    (start->long_mode && write_page_tables(memory)))
		return error_set(-EFAULT,
				 "the guest has no RAM below 1 MiB for its first page tables");
	start->gdt = LAYOUT_GDT;
	start->gdt_size = sizeof(gdt);
	start->rsp = LAYOUT_STACK_TOP;
	start->cr3 = start->long_mode ? LAYOUT_PAGE_TABLES : 0;
	return 0;
}
