/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: at most 64 KiB of guest memory at GPA and GVA 0 with paging off. The list of modules is at
 * 0, in a layout that uses every kind of member; the list of BPF programs follows.
 */
#include <stdlib.h>

#include "vmm/guest/linux/bpf_programs.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/module_list.h"
#include "vmm/guest/linux/orc_table.h"

static const struct module_layout layouts[2] = {
	{ .list = 8,
	  .name = 24,
	  .name_size = 16,
	  .text_base = 40,
	  .text_size = 48,
	  .kallsyms = 56,
	  .symtab = 0,
	  .strtab = 8,
	  .has_types = true,
	  .typetab = 16,
	  .num_symtab = 24,
	  .has_notes = true,
	  .notes_attrs = 64,
	  .notes = 0,
	  .attrs = 8,
	  .attr_size = 0,
	  .attr_stride = 24,
	  .attr_address = 8,
	  .has_per_cpu = true,
	  .per_cpu = 96,
	  .per_cpu_size = 104,
	  .has_orc = true,
	  .num_orcs = 72,
	  .orc_ips = 80,
	  .orc_entries = 88 },
	{ .list = 8,
	  .name = 24,
	  .name_size = 16,
	  .text_base = 40,
	  .text_size = 48,
	  .kallsyms = 56,
	  .symtab = 0,
	  .strtab = 8,
	  .num_symtab = 24,
	  .has_notes = true,
	  .notes_in_group = true,
	  .notes_attrs = 64,
	  .notes = 0,
	  .attr_size = 0,
	  .attr_address = 8 },
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_list(const struct guest_view *view, const struct module_layout *layout)
{
	struct guest_paging paging = { 0 };
	struct symbols *symbols = symbols_new(), *per_cpu = symbols_new();
	struct kernel_orc *unwinder;
	struct module_list list;

	if (!symbols || !per_cpu)
		abort();
	module_list_read(&list, view, &paging, 0, layout, symbols, per_cpu);
	symbols_finish(symbols);
	symbols_finish(per_cpu);
	if (!kernel_orc_create(&unwinder, view, &paging, symbols, &list))
		kernel_orc_free(unwinder);
	module_list_free(&list);
	symbols_free(per_cpu);
	symbols_free(symbols);
}

/* The list of BPF programs starts at 8; 0 means that there is no list. */
static void read_programs(const struct guest_view *view)
{
	static const struct bpf_program_layout layout = {
		.head = 8, .name = 16, .name_size = 24, .list = 40
	};
	struct guest_paging paging = { 0 };
	struct guest_module *programs = NULL;
	size_t count = 0;

	if (bpf_programs_read(&programs, &count, view, &paging, &layout))
		abort();
	for (size_t i = 0; i < count; i++) {
		if (i && programs[i].start < programs[i - 1].start + programs[i - 1].size)
			abort();
		bpf_program_is_loaded(&programs[i], view, &paging);
	}
	free(programs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct guest_region region = { .gpa = 0, .size = size, .hva = data };
	struct guest_view view = { .regions = &region, .region_count = 1 };

	if (size > 65536)
		return 0;
	read_list(&view, &layouts[0]);
	read_list(&view, &layouts[1]);
	read_programs(&view);
	return 0;
}
