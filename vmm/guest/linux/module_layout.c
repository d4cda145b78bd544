/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "vmm/guest/linux/module_list.h"

/* The offset of member NAME of struct ID; false if there is none. */
static bool offset_of(const struct btf *btf, uint32_t id, const char *name, uint32_t *offset)
{
	struct btf_member member;

	if (!btf_find_member(btf, id, name, &member))
		return false;
	*offset = member.offset;
	return true;
}

/* From 6.4: mem[MOD_TEXT] of struct module_memory. */
static bool read_text_of_memory(struct module_layout *layout, const struct btf *btf,
				uint32_t module)
{
	struct btf_member memory;
	uint32_t element, index, start;

	if (!btf_find_member(btf, module, "mem", &memory) ||
	    !btf_find_enumerator(btf, "MOD_TEXT", &index) ||
	    index >= btf_array_length(btf, memory.type))
		return false;
	element = btf_element(btf, memory.type);
	start = memory.offset + index * btf_size(btf, element);
	if (!offset_of(btf, element, "base", &layout->text_base) ||
	    !offset_of(btf, element, "size", &layout->text_size))
		return false;
	layout->text_base += start;
	layout->text_size += start;
	return true;
}

/* To 6.3: core_layout, whose first text_size bytes are text. */
static bool read_text_of_core(struct module_layout *layout, const struct btf *btf, uint32_t module)
{
	struct btf_member core;

	if (!btf_find_member(btf, module, "core_layout", &core) ||
	    !offset_of(btf, core.type, "base", &layout->text_base) ||
	    !offset_of(btf, core.type, "text_size", &layout->text_size))
		return false;
	layout->text_base += core.offset;
	layout->text_size += core.offset;
	return true;
}

static bool read_kallsyms(struct module_layout *layout, const struct btf *btf, uint32_t module)
{
	uint32_t kallsyms = btf_find_struct(btf, "mod_kallsyms");

	layout->has_types = offset_of(btf, kallsyms, "typetab", &layout->typetab);
	return offset_of(btf, module, "kallsyms", &layout->kallsyms) &&
	       offset_of(btf, kallsyms, "symtab", &layout->symtab) &&
	       offset_of(btf, kallsyms, "num_symtab", &layout->num_symtab) &&
	       offset_of(btf, kallsyms, "strtab", &layout->strtab);
}

/* The notes that /sys/module/NAME/notes shows: counted to 6.13 or so, in a group with a list of
 * them later.
 */
static bool read_notes(struct module_layout *layout, const struct btf *btf, uint32_t module)
{
	uint32_t notes = btf_find_struct(btf, "module_notes_attrs");
	uint32_t attribute = btf_find_struct(btf, "bin_attribute");
	struct btf_member group;

	if (!offset_of(btf, module, "notes_attrs", &layout->notes_attrs) ||
	    !offset_of(btf, notes, "attrs", &layout->attrs) ||
	    !offset_of(btf, attribute, "size", &layout->attr_size) ||
	    !offset_of(btf, attribute, "private", &layout->attr_address))
		return false;
	layout->attr_stride = btf_size(btf, attribute);
	if (offset_of(btf, notes, "notes", &layout->notes))
		return true;
	layout->notes_in_group = true;
	if (!btf_find_member(btf, notes, "grp", &group) ||
	    !offset_of(btf, group.type, "bin_attrs", &layout->notes))
		return false;
	layout->notes += group.offset;
	return true;
}

static bool read_orc(struct module_layout *layout, const struct btf *btf, uint32_t module)
{
	struct btf_member arch;

	if (!btf_find_member(btf, module, "arch", &arch) ||
	    !offset_of(btf, arch.type, "num_orcs", &layout->num_orcs) ||
	    !offset_of(btf, arch.type, "orc_unwind_ip", &layout->orc_ips) ||
	    !offset_of(btf, arch.type, "orc_unwind", &layout->orc_entries))
		return false;
	layout->num_orcs += arch.offset;
	layout->orc_ips += arch.offset;
	layout->orc_entries += arch.offset;
	return true;
}

/* Kernels for one CPU have none. */
static bool read_per_cpu(struct module_layout *layout, const struct btf *btf, uint32_t module)
{
	return offset_of(btf, module, "percpu", &layout->per_cpu) &&
	       offset_of(btf, module, "percpu_size", &layout->per_cpu_size);
}

int module_layout_read(struct module_layout *layout, const struct btf *btf)
{
	uint32_t module = btf_find_struct(btf, "module");
	struct btf_member name;

	memset(layout, 0, sizeof(*layout));
	if (!module || !btf_find_member(btf, module, "name", &name) ||
	    !offset_of(btf, module, "state", &layout->state) ||
	    !offset_of(btf, module, "list", &layout->list) ||
	    !(read_text_of_memory(layout, btf, module) || read_text_of_core(layout, btf, module)) ||
	    !read_kallsyms(layout, btf, module))
		return -ENOENT;
	layout->name = name.offset;
	layout->name_size = btf_array_length(btf, name.type);
	layout->has_notes = read_notes(layout, btf, module);
	layout->has_per_cpu = read_per_cpu(layout, btf, module);
	layout->has_orc = read_orc(layout, btf, module);
	return 0;
}
