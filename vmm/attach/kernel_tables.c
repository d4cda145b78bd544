/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/kernel_tables.h"

#include <errno.h>
#include <string.h>

#include "vmm/guest/page_walk.h"

#define PAGE     4096u
#define ENTRIES  512u
#define PRESENT  1ull
#define LARGE    (1ull << 7)
#define ADDRESS  0x000ffffffffff000ull
#define LARGE_2M (2ull << 20)

/* Indices in the top table and in the one below it: SDM vol. 3A 4.5. */
#define TOP_ENTRY_AREA 508
#define TOP_IMAGE      511
#define SECOND_IMAGE   510

/* Minimum number of large pages of a kernel image. */
#define LARGE_PAGES_MIN 2

#define SKIP_MAX 16

struct search {
	const struct guest_view *view;
	size_t skip;
	uint64_t rip;            /* has to be mapped; 0: unknown */
	uint64_t seen[SKIP_MAX]; /* second tables of earlier candidates: all processes share the
				    kernel's */
	size_t seen_count;
	uint64_t root;   /* GPA of the top table of four levels; 0: not found */
	uint64_t parent; /* GPA of the table above it, with five levels; 0: not found */
};

static uint64_t entry_of(const uint8_t *table, unsigned int index)
{
	uint64_t entry;

	memcpy(&entry, table + (size_t)index * sizeof(entry), sizeof(entry));
	return entry;
}

static bool is_table(uint64_t entry)
{
	return entry & PRESENT && !(entry & LARGE) && entry & ADDRESS;
}

/* True if the large pages map consecutive physical memory. */
static bool maps_image(const uint8_t *table)
{
	uint64_t base = 0;
	unsigned int count = 0;

	for (unsigned int i = 0; i < ENTRIES; i++) {
		uint64_t entry = entry_of(table, i), offset = (entry & ADDRESS) - i * LARGE_2M;

		if (!(entry & PRESENT) || !(entry & LARGE))
			continue;
		if (count && offset != base)
			return false;
		base = offset;
		count++;
	}
	return count >= LARGE_PAGES_MIN;
}

static bool leads_to_image(const struct guest_view *view, uint64_t second)
{
	uint8_t table[PAGE];
	uint64_t entry;

	return !guest_read_physical(view, second + SECOND_IMAGE * sizeof(entry), &entry,
				    sizeof(entry)) &&
	       is_table(entry) &&
	       !guest_read_physical(view, entry & ADDRESS, table, sizeof(table)) &&
	       maps_image(table);
}

static struct guest_paging paging_of(uint64_t root, bool five_levels)
{
	return (struct guest_paging){
		.cr0 = CR0_PE | CR0_PG,
		.cr3 = root,
		.cr4 = CR4_PAE | (five_levels ? CR4_LA57 : 0),
		.efer = EFER_LME | EFER_LMA,
	};
}

static bool maps_rip(const struct search *search, uint64_t root)
{
	const struct guest_paging paging = paging_of(root, false);
	struct guest_translation translation;

	return !search->rip || !guest_translate(search->view, &paging, search->rip, &translation);
}

/* True if this is a new candidate, and enough were skipped. */
static bool is_next(struct search *search, uint64_t root, uint64_t second)
{
	for (size_t i = 0; i < search->seen_count; i++)
		if (search->seen[i] == second)
			return false;
	if (search->seen_count == SKIP_MAX || !leads_to_image(search->view, second) ||
	    !maps_rip(search, root))
		return false;
	search->seen[search->seen_count++] = second;
	return search->seen_count > search->skip;
}

static bool check_for_root(void *context, uint64_t gpa, const uint8_t *bytes, size_t size)
{
	struct search *search = context;

	for (size_t at = 0; at < size; at += PAGE) {
		uint64_t image = entry_of(bytes + at, TOP_IMAGE);

		if (is_table(image) && is_table(entry_of(bytes + at, TOP_ENTRY_AREA)) &&
		    is_next(search, gpa + at, image & ADDRESS)) {
			search->root = gpa + at;
			return false;
		}
	}
	return true;
}

/* With five levels, the table found as the root is the last one of the top level. */
static bool check_for_parent(void *context, uint64_t gpa, const uint8_t *bytes, size_t size)
{
	struct search *search = context;

	for (size_t at = 0; at < size; at += PAGE) {
		uint64_t last = entry_of(bytes + at, TOP_IMAGE);

		if (is_table(last) && (last & ADDRESS) == search->root &&
		    gpa + at != search->root) {
			search->parent = gpa + at;
			return false;
		}
	}
	return true;
}

int kernel_tables_find(struct vmm_memory *memory, size_t skip, uint64_t rip,
		       struct guest_paging *paging)
{
	struct search search = { .view = &memory->view, .skip = skip, .rip = rip };

	vmm_memory_each_page(memory, check_for_root, &search);
	if (!search.root)
		return -ENOENT;
	vmm_memory_each_page(memory, check_for_parent, &search);
	*paging = search.parent ? paging_of(search.parent, true) : paging_of(search.root, false);
	return 0;
}

void kernel_tables_registers(const struct guest_paging *paging, struct guest_registers *registers)
{
	*registers = (struct guest_registers){
		.paging = *paging,
		.idt_base = LINUX_IDT_GVA,
		.idt_limit = LINUX_IDT_LIMIT,
		.long_mode = true,
	};
}
