/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/memory_layout.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/kernel_tables.h"
#include "vmm/attach/proc_files.h"
#include "vmm/guest/page_walk.h"

#define FOUR_GIB (4ull << 30)
/* GPAs have at most 52 bits (SDM vol. 3A 4.1.4). */
#define GPA_END    (1ull << 52)
#define BLOCK_MIN  (16ull << 20)
#define BLOCK_MAX  (4ull << 40)
#define BLOCKS_MAX 8
/* Maximum size of a block, in multiples of the host's memory. */
#define HOST_MAX 4

/* Starts of the hole: QEMU's q35 and pc by size, crosvm, kvmtool, Firecracker; the first: no
 * hole. */
static const uint64_t holes[] = { FOUR_GIB,   0x80000000, 0xc0000000,
				  0xe0000000, 0xb0000000, 0xd0000000 };

/* struct e820_table (kernel: arch/x86/include/asm/e820/types.h) */
#define E820_MAX 256
#define E820_RAM 1

struct e820_entry {
	uint64_t start, size;
	uint32_t type;
} __attribute__((packed));

struct block {
	uint64_t hva, size;
};

/* Programs reserve more than they use, e.g. for sanitizers and managed heaps. Guest memory fits
 * into the host's, and searching larger mappings would take minutes. */
static uint64_t block_max(void)
{
	struct sysinfo host;
	uint64_t most = sysinfo(&host) ? BLOCK_MAX
				       : HOST_MAX * ((uint64_t)host.totalram + host.totalswap) *
						 host.mem_unit;

	return most < BLOCK_MAX ? most : BLOCK_MAX;
}

bool memory_layout_parse(const char *line, uint64_t *hva, uint64_t *size)
{
	uint64_t end;
	char mode[5];

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", hva, &end, mode) != 3 || end <= *hva ||
	    strncmp(mode, "rw", 2) != 0 || strstr(line, "[stack") || strstr(line, "[heap"))
		return false;
	*size = end - *hva;
	return *size >= BLOCK_MIN && *size <= block_max();
}

/* Keeps the largest ones in order. */
static void keep(struct block *blocks, size_t *count, uint64_t hva, uint64_t size)
{
	size_t at = *count < BLOCKS_MAX ? (*count)++ : BLOCKS_MAX - 1;

	if (at == BLOCKS_MAX - 1 && blocks[at].size >= size)
		return;
	for (; at && blocks[at - 1].size < size; at--)
		blocks[at] = blocks[at - 1];
	blocks[at] = (struct block){ hva, size };
}

static size_t read_blocks(const struct vmm_process *process, struct block *blocks)
{
	FILE *maps = proc_open_file(process->directory, "maps");
	uint64_t hva, size;
	size_t count = 0, room = 0;
	char *line = NULL;

	while (maps && getline(&line, &room, maps) > 0)
		if (memory_layout_parse(line, &hva, &size))
			keep(blocks, &count, hva, size);
	free(line);
	if (maps)
		fclose(maps);
	return count;
}

size_t memory_layout_split(uint64_t hva, uint64_t size, uint64_t hole, struct vmm_slot slots[2])
{
	slots[0] = (struct vmm_slot){ .gpa = 0, .size = size < hole ? size : hole, .hva = hva };
	if (size <= hole)
		return 1;
	slots[1] = (struct vmm_slot){ .gpa = FOUR_GIB, .size = size - hole, .hva = hva + hole };
	return 2;
}

static bool fits(struct vmm_memory *memory, const struct block *block, uint64_t hole)
{
	struct vmm_slot slots[2];
	struct guest_paging paging;

	vmm_memory_set_slots(memory, slots,
			     memory_layout_split(block->hva, block->size, hole, slots));
	return !kernel_tables_find(memory, 0, 0, &paging);
}

static bool try_block(struct vmm_memory *memory, const struct block *block)
{
	for (size_t i = 0; i < sizeof(holes) / sizeof(holes[0]); i++) {
		/* All holes beyond the block are alike. */
		if (i && holes[i] >= block->size)
			continue;
		if (fits(memory, block, holes[i]))
			return true;
	}
	return false;
}

int memory_layout_guess(struct vmm_memory *memory, const struct vmm_process *process)
{
	struct block blocks[BLOCKS_MAX] = { 0 };
	size_t count = read_blocks(process, blocks);

	for (size_t i = 0; i < count; i++)
		if (try_block(memory, &blocks[i])) {
			log_debug("guest memory: %" PRIu64 " MiB at %#" PRIx64 " of process %d",
				  blocks[i].size >> 20, blocks[i].hva, process->pid);
			return 0;
		}
	vmm_memory_set_slots(memory, NULL, 0);
	return error_set(-ENOENT, "no memory of process %d is recognized as that of a Linux guest",
			 process->pid);
}

/* Limits the guest's values to what a processor can address. */
static bool is_sensible(const struct e820_entry *entry)
{
	return entry->size <= GPA_END && entry->start <= GPA_END - entry->size;
}

/* The end of the guest's RAM in its own memory map; 0: unknown. */
static uint64_t end_of_ram(struct vmm_memory *memory, const struct guest_kernel *kernel)
{
	struct e820_entry entry;
	struct symbol symbol;
	uint64_t table, end = 0;
	uint32_t count;

	if (!symbols_find_name(kernel->symbols, "e820_table", &symbol) ||
	    guest_read_virtual(&memory->view, &kernel->paging, symbol.start, &table,
			       sizeof(table)) ||
	    guest_read_virtual(&memory->view, &kernel->paging, table, &count, sizeof(count)) ||
	    count > E820_MAX)
		return 0;
	for (uint32_t i = 0; i < count; i++) {
		if (guest_read_virtual(&memory->view, &kernel->paging,
				       table + sizeof(count) + i * sizeof(entry), &entry,
				       sizeof(entry)))
			return 0;
		if (entry.type == E820_RAM && is_sensible(&entry) && entry.start + entry.size > end)
			end = entry.start + entry.size;
	}
	return end;
}

void memory_layout_correct(struct vmm_memory *memory, const struct guest_kernel *kernel)
{
	uint64_t end = end_of_ram(memory, kernel), size = 0, hole = FOUR_GIB;
	struct vmm_slot slots[2];

	if (!end || !memory->slot_count)
		return;
	for (size_t i = 0; i < memory->slot_count; i++)
		size += memory->slots[i].size;
	if (end > FOUR_GIB && end - FOUR_GIB < size)
		hole = size - (end - FOUR_GIB);
	if (hole > FOUR_GIB)
		return;
	vmm_memory_set_slots(memory, slots,
			     memory_layout_split(memory->slots[0].hva, size, hole, slots));
}
