/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "vmm/guest/linux/module_list.h"

/* Since 6.4: mem[MOD_TEXT] of struct module_memory. */
static bool read_text_of_memory(struct module_layout *layout, const struct btf *btf)
{
	struct btf_member memory, base, size;
	uint32_t element, index, start;

	if (!btf_find_path(btf, "module", "mem", &memory) ||
	    !btf_find_enumerator(btf, "MOD_TEXT", &index) ||
	    index >= btf_array_length(btf, memory.type))
		return false;
	element = btf_element(btf, memory.type);
	start = memory.offset + index * btf_size(btf, element);
	if (!btf_find_member(btf, element, "base", &base) ||
	    !btf_find_member(btf, element, "size", &size))
		return false;
	layout->text_base = start + base.offset;
	layout->text_size = start + size.offset;
	return true;
}

/* Until 6.3: core_layout, whose first text_size bytes are text. */
static bool read_text_of_core(struct module_layout *layout, const struct btf *btf)
{
	const struct btf_offset offsets[] = {
		{ "module", "core_layout.base", 8, &layout->text_base },
		{ "module", "core_layout.text_size", 4, &layout->text_size },
	};

	return BTF_FIND_OFFSETS(btf, offsets);
}

/*
 * The notes in /sys/module/NAME/notes: until about 6.13 an array with a count, later a
 * NULL-terminated list in a group.
 */
static bool read_notes(struct module_layout *layout, const struct btf *btf)
{
	const struct btf_offset offsets[] = {
		{ "module", "notes_attrs", 8, &layout->notes_attrs },
		{ "module_notes_attrs", "attrs", 0, &layout->attrs },
		{ "bin_attribute", "size", 8, &layout->attr_size },
		{ "bin_attribute", "private", 8, &layout->attr_address },
	};

	layout->attr_stride = btf_size(btf, btf_find_struct(btf, "bin_attribute"));
	layout->notes_in_group =
		!btf_find_offset(btf, "module_notes_attrs", "notes", 4, &layout->notes);
	return BTF_FIND_OFFSETS(btf, offsets) &&
	       (!layout->notes_in_group ||
		btf_find_offset(btf, "module_notes_attrs", "grp.bin_attrs", 8, &layout->notes));
}

static bool read_orc(struct module_layout *layout, const struct btf *btf)
{
	const struct btf_offset offsets[] = {
		{ "module", "arch.num_orcs", 4, &layout->num_orcs },
		{ "module", "arch.orc_unwind_ip", 8, &layout->orc_ips },
		{ "module", "arch.orc_unwind", 8, &layout->orc_entries },
	};

	return BTF_FIND_OFFSETS(btf, offsets);
}

/* Kernels without SMP have none. */
static bool read_per_cpu(struct module_layout *layout, const struct btf *btf)
{
	return btf_find_offset(btf, "module", "percpu", 8, &layout->per_cpu) &&
	       btf_find_offset(btf, "module", "percpu_size", 4, &layout->per_cpu_size);
}

int module_layout_read(struct module_layout *layout, const struct btf *btf)
{
	const struct btf_offset offsets[] = {
		{ "module", "name", 0, &layout->name },
		{ "module", "state", 4, &layout->state },
		{ "module", "list", 16, &layout->list },
		{ "module", "kallsyms", 8, &layout->kallsyms },
		{ "mod_kallsyms", "symtab", 8, &layout->symtab },
		{ "mod_kallsyms", "num_symtab", 4, &layout->num_symtab },
		{ "mod_kallsyms", "strtab", 8, &layout->strtab },
	};
	struct btf_member name;

	memset(layout, 0, sizeof(*layout));
	if (!BTF_FIND_OFFSETS(btf, offsets) ||
	    !(read_text_of_memory(layout, btf) || read_text_of_core(layout, btf)))
		return -ENOENT;
	btf_find_path(btf, "module", "name", &name);
	layout->name_size = btf_array_length(btf, name.type);
	layout->has_types = btf_find_offset(btf, "mod_kallsyms", "typetab", 8, &layout->typetab);
	layout->has_notes = read_notes(layout, btf);
	layout->has_per_cpu = read_per_cpu(layout, btf);
	layout->has_orc = read_orc(layout, btf);
	return 0;
}
