/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaded modules, read from the kernel's own list with the layout in its BTF
 * (include/linux/module.h, struct module and struct mod_kallsyms).
 */
#ifndef KVMSCOPE_GUEST_LINUX_MODULE_LIST_H
#define KVMSCOPE_GUEST_LINUX_MODULE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/btf_types.h"
#include "vmm/guest/symbol_table.h"

/* A loaded kernel module, or the code of a BPF program (bpf_programs.h), which is checked alike. */
#define GUEST_BUILD_ID_MAX    20
#define GUEST_MODULE_NAME_MAX 128

struct guest_module {
	char name[GUEST_MODULE_NAME_MAX];
	uint64_t start; /* GVA of its text */
	uint64_t size;  /* bytes of text */
	uint8_t build_id[GUEST_BUILD_ID_MAX];
	size_t build_id_size;  /* 0: none found */
	uint64_t build_id_gva; /* of the build id in the module's memory */
	/*
	 * BPF programs, which have no build id: GVAs of the range, the name and the list node in
	 * struct bpf_ksym. 0 for modules.
	 */
	uint64_t program, program_name, program_list;
};

/* True if both lists have the same modules at the same addresses, build ids included. */
bool guest_modules_equal(const struct guest_module *left, size_t left_count,
			 const struct guest_module *right, size_t right_count);

/* Is the build id of MODULE, which has one, still in guest memory? No lock, allocation or system
 * call. */
bool guest_module_has_build_id(const struct guest_module *module, const struct guest_view *view,
			       const struct guest_paging *paging);

/* Byte offsets in struct module unless another structure is named. */
struct module_layout {
	uint32_t state, list, name, name_size;
	uint32_t text_base, text_size;       /* of core_layout, or of mem[MOD_TEXT] */
	uint32_t kallsyms;                   /* pointer to struct mod_kallsyms */
	uint32_t symtab, num_symtab, strtab; /* in struct mod_kallsyms */
	bool has_types;
	uint32_t typetab; /* in struct mod_kallsyms, since 5.2 */
	bool has_notes, notes_in_group;
	uint32_t notes_attrs; /* pointer to struct module_notes_attrs */
	uint32_t notes; /* in struct module_notes_attrs: count, or pointer to a NULL-terminated list
			 */
	uint32_t attrs; /* the same struct: first element of the array, if NOTES is a count */
	uint32_t attr_size, attr_stride, attr_address; /* of struct bin_attribute */
	bool has_per_cpu;
	uint32_t per_cpu, per_cpu_size; /* per-CPU address of its per-CPU variables; bytes */
	bool has_orc;
	uint32_t num_orcs, orc_ips, orc_entries;
};

/* From the kernel's BTF. -ENOENT: it does not describe modules. */
int module_layout_read(struct module_layout *layout, const struct btf *btf);

/* A module's ORC tables in the guest. */
struct module_orc {
	uint64_t ips, entries; /* GVA */
	uint32_t count;        /* 0: none */
};

struct module_list {
	struct guest_module *modules; /* owned */
	struct module_orc *orcs;      /* one for each module; owned */
	size_t count, modules_capacity, orcs_capacity;
};

/*
 * Reads the modules in the list at HEAD. Adds their symbols to SYMBOLS and their per-CPU symbols to
 * PER_CPU, both unfinished; with SYMBOLS NULL, symbols and ORC tables are not read. Parts that
 * cannot be read are left out. -ENOMEM; -EFAULT with the modules before the point where the list
 * broke off, which includes a module that was freed or replaced while its symbols were read. Not on
 * a vCPU thread.
 */
int module_list_read(struct module_list *list, const struct guest_view *view,
		     const struct guest_paging *paging, uint64_t head,
		     const struct module_layout *layout, struct symbols *symbols,
		     struct symbols *per_cpu);
/* Frees the contents. A zeroed list is empty. */
void module_list_free(struct module_list *list);

#endif
