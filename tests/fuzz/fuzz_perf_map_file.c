/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks from the list of processes to the open files of a process and into the page cache, in
 * arbitrary memory. Input: struct header, which also has the layout, then the pages that repeat
 * over the whole address space.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/mapped_pages.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/perf_map.h"
#include "vmm/guest/linux/perf_map_file.h"

#define MEMBER  0xffu /* largest offset of a member, as BTF would give it */
#define OFFSETS 34
#define READS   3

struct header {
	uint64_t first, page_array, started;
	uint32_t pid;
	uint8_t offsets[OFFSETS];
	uint8_t number_size, change;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void set_layout(struct guest_kernel *kernel, const struct header *header)
{
	struct perf_map_layout *maps = &kernel->perf_maps;
	struct guest_task_layout *tasks = &kernel->tasks;
	struct guest_vma_layout *vmas = &kernel->vmas;
	uint32_t *const offsets[] = {
		&maps->task_files,    &maps->task_cred,    &maps->task_execs,
		&maps->task_pid,      &maps->files_table,  &maps->table_count,
		&maps->table_slots,   &maps->file_mode,    &maps->file_flags,
		&maps->file_position, &maps->file_cred,    &maps->file_inode,
		&maps->file_dentry,   &maps->inode_mode,   &maps->inode_owner,
		&maps->inode_size,    &maps->cred_owner,   &maps->pid_level,
		&maps->pid_numbers,   &maps->number,       &tasks->tgid,
		&tasks->pid,          &tasks->started,     &tasks->list,
		&vmas->dentry_hash,   &vmas->dentry_name,  &vmas->inode_mapping,
		&vmas->mapping_pages, &vmas->xarray_shift, &vmas->xarray_slots,
		&vmas->page_mapping,  &vmas->page_flags,   &vmas->page_uptodate,
		&tasks->parent,
	};

	_Static_assert(sizeof(offsets) / sizeof(offsets[0]) == OFFSETS, "all of them");
	for (size_t i = 0; i < OFFSETS; i++)
		*offsets[i] = header->offsets[i] & MEMBER;
	maps->known = tasks->known = vmas->known = vmas->has_pages = true;
	maps->number_size = header->number_size;
	tasks->first = header->first;
	vmas->page_uptodate &= 63;
	vmas->page_array = header->page_array;
	vmas->page_size = 64;
	vmas->xarray_slot_count = 64;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct guest_region region = { .size = sizeof(guest_memory), .hva = guest_memory };
	struct guest_view view = { .regions = &region, .region_count = 1 };
	struct guest_kernel kernel = { .paging = mapped_pages_paging };
	static uint8_t text[3 * PAGE];
	struct perf_map_file map;
	struct header header;

	if (size < sizeof(header))
		return 0;
	memcpy(&header, data, sizeof(header));
	size -= sizeof(header);
	mapped_pages_fill(data + sizeof(header), size);
	set_layout(&kernel, &header);
	/* The process is known, but is not in the list. */
	if (!perf_map_file_begin(&map, &kernel, &view, header.pid))
		map = (struct perf_map_file){ .pid = header.pid,
					      .started = header.started,
					      .task = header.first };
	for (int i = 0; i < READS; i++) {
		size_t got = sizeof(text);
		enum perf_map_result found = perf_map_file_read(&map, &kernel, &view, text, &got);

		if (got > sizeof(text) || (got && text[got - 1] != '\n') ||
		    map.mark_size > PERF_MAP_MARK ||
		    (got && found != PERF_MAP_MORE && found != PERF_MAP_READ))
			abort();
		guest_memory[header.change * (size_t)PAGES * PAGE / 256] ^= 1;
	}
	return 0;
}
