/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/module_list.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "vmm/guest/image_identity.h"
#include "vmm/guest/linux/kallsyms.h"
#include "vmm/guest/linux/kernel_image.h"
#include "vmm/guest/page_walk.h"

#define MODULES_MAX    4096
#define SYMBOLS_MAX    (1u << 20) /* of all modules: five times the number on a large machine */
#define ORCS_MAX       (4u << 20) /* the same for ORC entries */
#define NOTES_MAX      8
#define NOTE_SIZE_MAX  4096
#define STATE_UNFORMED 3 /* enum module_state: not set up yet, members are not valid */

/* The module that is being read. */
struct reader {
	const struct guest_view *view;
	const struct guest_paging *paging;
	const struct module_layout *layout;
	struct symbols *symbols, *per_cpu; /* receive its symbols; NULL: not read */
	uint64_t module;                   /* GVA of its struct */
	uint64_t per_cpu_start;            /* per-CPU address of its variables */
	uint32_t per_cpu_size;             /* bytes; 0: it has none */
	uint32_t symbols_left, orcs_left;  /* bound the memory that the guest can use */
};

static int read_u64(const struct reader *reader, uint64_t gva, uint64_t *value)
{
	return guest_read_virtual(reader->view, reader->paging, gva, value, sizeof(*value));
}

static int read_u32(const struct reader *reader, uint64_t gva, uint32_t *value)
{
	return guest_read_virtual(reader->view, reader->paging, gva, value, sizeof(*value));
}

/* GVA of the struct bin_attribute of note NUMBER; 0 after the last. */
static uint64_t note_attribute(const struct reader *reader, uint64_t notes, uint32_t number)
{
	const struct module_layout *layout = reader->layout;
	uint64_t list, attribute;
	uint32_t count;

	if (layout->notes_in_group) {
		if (read_u64(reader, notes + layout->notes, &list) || !list ||
		    read_u64(reader, list + number * 8ull, &attribute))
			return 0;
		return attribute;
	}
	if (read_u32(reader, notes + layout->notes, &count) || number >= count)
		return 0;
	return notes + layout->attrs + (uint64_t)number * layout->attr_stride;
}

static void read_build_id(const struct reader *reader, struct guest_module *module)
{
	const struct module_layout *layout = reader->layout;
	uint64_t notes, attribute, size, address;
	uint8_t bytes[NOTE_SIZE_MAX], *id;

	if (!layout->has_notes || read_u64(reader, reader->module + layout->notes_attrs, &notes) ||
	    !notes)
		return;
	for (uint32_t i = 0; i < NOTES_MAX && (attribute = note_attribute(reader, notes, i)); i++) {
		if (read_u64(reader, attribute + layout->attr_size, &size) ||
		    size > sizeof(bytes) ||
		    read_u64(reader, attribute + layout->attr_address, &address) ||
		    guest_read_virtual(reader->view, reader->paging, address, bytes, size))
			return;
		module->build_id_size = build_id_in_notes(span_of(bytes, size), module->build_id,
							  sizeof(module->build_id));
		if (!module->build_id_size)
			continue;
		id = memmem(bytes, size, module->build_id, module->build_id_size);
		module->build_id_gva = address + (uint64_t)(id - bytes);
		return;
	}
}

static void read_orc(struct reader *reader, struct module_orc *orc)
{
	const struct module_layout *layout = reader->layout;
	uint64_t module = reader->module;

	memset(orc, 0, sizeof(*orc));
	if (!layout->has_orc || read_u64(reader, module + layout->orc_ips, &orc->ips) ||
	    read_u64(reader, module + layout->orc_entries, &orc->entries) ||
	    read_u32(reader, module + layout->num_orcs, &orc->count) ||
	    orc->count > reader->orcs_left)
		orc->count = 0;
	reader->orcs_left -= orc->count;
}

static bool is_module_name(const char *name)
{
	for (const char *at = name; *at; at++)
		if (!isgraph((unsigned char)*at) || *at == '[' || *at == ']')
			return false;
	return *name != '\0';
}

/* Reads name, text and build id. -ENOENT: the module is not set up, or has no text. */
static int read_module(const struct reader *reader, struct guest_module *module)
{
	const struct module_layout *layout = reader->layout;
	uint32_t state, size;
	size_t name_size =
		layout->name_size < sizeof(module->name) ? layout->name_size : sizeof(module->name);

	memset(module, 0, sizeof(*module));
	if (read_u32(reader, reader->module + layout->state, &state) ||
	    guest_read_string(reader->view, reader->paging, reader->module + layout->name,
			      module->name, name_size) ||
	    read_u64(reader, reader->module + layout->text_base, &module->start) ||
	    read_u32(reader, reader->module + layout->text_size, &size))
		return -EFAULT;
	if (state >= STATE_UNFORMED || !size)
		return -ENOENT;
	if (!is_module_name(module->name) || module->start < kernel_image_start(reader->paging))
		return -EFAULT;
	module->size = size;
	read_build_id(reader, module);
	return 0;
}

static int compare_symbols(const void *left, const void *right)
{
	const Elf64_Sym *a = left, *b = right;

	return a->st_value < b->st_value ? -1 : a->st_value > b->st_value;
}

/*
 * Assembly symbols have no size. In text they extend to the next higher symbol, which *NEXT is
 * moved to; elsewhere only the first byte is known to belong to them.
 */
static uint64_t symbol_size(const Elf64_Sym *symbols, uint32_t count, uint32_t index,
			    uint32_t *next, const struct guest_module *module)
{
	uint64_t start = symbols[index].st_value;
	uint64_t end = module->start + module->size;

	if (symbols[index].st_size)
		return symbols[index].st_size;
	if (start - module->start >= module->size)
		return 1;
	while (*next < count && symbols[*next].st_value <= start)
		++*next;
	return (*next < count && symbols[*next].st_value < end ? symbols[*next].st_value : end) -
	       start;
}

/* The original index is stored in st_other and st_shndx: the table of types is indexed by it. */
static void store_index(Elf64_Sym *symbol, uint32_t index)
{
	symbol->st_other = (unsigned char)(index >> 16);
	symbol->st_shndx = (Elf64_Half)index;
}

static uint32_t stored_index(const Elf64_Sym *symbol)
{
	return (uint32_t)symbol->st_other << 16 | symbol->st_shndx;
}

static void read_per_cpu(struct reader *reader)
{
	const struct module_layout *layout = reader->layout;

	if (!layout->has_per_cpu ||
	    read_u64(reader, reader->module + layout->per_cpu, &reader->per_cpu_start) ||
	    read_u32(reader, reader->module + layout->per_cpu_size, &reader->per_cpu_size))
		reader->per_cpu_size = 0;
}

/*
 * The table that a symbol belongs to. The value of a per-CPU symbol is its per-CPU address
 * (kernel/module/main.c, simplify_symbols()). NULL: an absolute symbol.
 */
static struct symbols *table_for(const struct reader *reader, uint64_t value)
{
	if (value - reader->per_cpu_start < reader->per_cpu_size)
		return reader->per_cpu;
	return value < kernel_image_start(reader->paging) ? NULL : reader->symbols;
}

static int add_symbols(const struct reader *reader, const struct guest_module *module,
		       Elf64_Sym *table, const uint8_t *types, uint32_t count, uint64_t strings)
{
	struct symbols *symbols;
	char name[KALLSYMS_NAME_MAX];
	uint32_t next = 0;
	int error = 0;

	for (uint32_t i = 0; i < count; i++)
		store_index(&table[i], i);
	qsort(table, count, sizeof(*table), compare_symbols);
	for (uint32_t i = 0; i < count && !error; i++) {
		uint8_t type = types[stored_index(&table[i])];

		symbols = table_for(reader, table[i].st_value);
		if (!symbols || !isalpha(type) ||
		    guest_read_string(reader->view, reader->paging, strings + table[i].st_name,
				      name, sizeof(name)) ||
		    !is_module_name(name))
			continue;
		error = symbols_add(symbols, table[i].st_value,
				    symbol_size(table, count, i, &next, module),
				    (char)tolower(type), name, module->name);
	}
	return error;
}

/*
 * Before the separate table of types: until 4.20 the loader overwrites st_info with the type,
 * in 5.0 and 5.1 st_size, which loses the sizes (kernel/module.c, add_kallsyms()). Types are '?' or
 * higher; valid ELF values of st_info are lower.
 */
static uint8_t extract_type(Elf64_Sym *symbol)
{
	uint8_t type = symbol->st_info;

	if (type >= '?')
		return type;
	type = (uint8_t)symbol->st_size;
	symbol->st_size = 0;
	return type;
}

static int extract_types(Elf64_Sym *table, uint32_t count, uint8_t **types)
{
	*types = malloc(count ? count : 1);
	if (!*types)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		(*types)[i] = extract_type(&table[i]);
	return 0;
}

/* Reads the types of the COUNT symbols in TABLE; the caller frees *TYPES. */
static int read_types(const struct reader *reader, uint64_t kallsyms, Elf64_Sym *table,
		      uint32_t count, uint8_t **types)
{
	uint64_t at;

	if (!reader->layout->has_types)
		return extract_types(table, count, types);
	if (read_u64(reader, kallsyms + reader->layout->typetab, &at))
		return -EFAULT;
	return guest_copy_virtual(reader->view, reader->paging, at, count, types);
}

/* 0 or -ENOMEM; tables that cannot be read are left out. */
static int read_symbols(struct reader *reader, const struct guest_module *module)
{
	const struct module_layout *layout = reader->layout;
	uint64_t kallsyms, table_at, strings;
	uint8_t *table = NULL, *types = NULL;
	uint32_t count;
	int error;

	if (read_u64(reader, reader->module + layout->kallsyms, &kallsyms) ||
	    read_u64(reader, kallsyms + layout->symtab, &table_at) ||
	    read_u64(reader, kallsyms + layout->strtab, &strings) ||
	    read_u32(reader, kallsyms + layout->num_symtab, &count) || count > reader->symbols_left)
		return 0;
	reader->symbols_left -= count;
	error = guest_copy_virtual(reader->view, reader->paging, table_at,
				   count * sizeof(Elf64_Sym), &table);
	if (!error)
		error = read_types(reader, kallsyms, (Elf64_Sym *)(void *)table, count, &types);
	if (!error)
		error = add_symbols(reader, module, (Elf64_Sym *)(void *)table, types, count,
				    strings);
	free(types);
	free(table);
	return error == -ENOMEM ? error : 0;
}

static int append(struct module_list *list, const struct guest_module *module,
		  const struct module_orc *orc)
{
	if (array_reserve(&list->modules, &list->modules_capacity, list->count + 1) ||
	    array_reserve(&list->orcs, &list->orcs_capacity, list->count + 1))
		return -ENOMEM;
	list->modules[list->count] = *module;
	list->orcs[list->count++] = *orc;
	return 0;
}

/* Detects a circular list. */
static bool is_known(const struct module_list *list, const struct guest_module *module)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->modules[i].start == module->start)
			return true;
	return false;
}

/* The guest may have freed or replaced the module while its symbols were read. */
static bool is_unchanged(const struct reader *reader, const struct guest_module *module)
{
	struct guest_module now;

	return !read_module(reader, &now) && guest_modules_equal(&now, 1, module, 1);
}

static int read_with_symbols(struct module_list *list, struct reader *reader,
			     const struct guest_module *module)
{
	const size_t symbols = symbols_count(reader->symbols),
		     per_cpu = symbols_count(reader->per_cpu);
	struct module_orc orc;
	int error;

	read_orc(reader, &orc);
	read_per_cpu(reader);
	error = read_symbols(reader, module);
	if (!error && !is_unchanged(reader, module)) {
		symbols_truncate(reader->symbols, symbols);
		symbols_truncate(reader->per_cpu, per_cpu);
		return -EFAULT;
	}
	return error ? error : append(list, module, &orc);
}

static int read_one(struct module_list *list, struct reader *reader)
{
	static const struct module_orc none;
	struct guest_module module;
	int error = read_module(reader, &module);

	if (error)
		return error == -ENOENT ? 0 : error;
	if (is_known(list, &module))
		return -EFAULT;
	return reader->symbols ? read_with_symbols(list, reader, &module)
			       : append(list, &module, &none);
}

int module_list_read(struct module_list *list, const struct guest_view *view,
		     const struct guest_paging *paging, uint64_t head,
		     const struct module_layout *layout, struct symbols *symbols,
		     struct symbols *per_cpu)
{
	struct reader reader = { .symbols = symbols,
				 .per_cpu = per_cpu,
				 .view = view,
				 .paging = paging,
				 .layout = layout,
				 .symbols_left = SYMBOLS_MAX,
				 .orcs_left = ORCS_MAX };
	uint64_t node;
	int error;

	memset(list, 0, sizeof(*list));
	error = read_u64(&reader, head, &node);
	for (int i = 0; !error && node != head; i++) {
		reader.module = node - layout->list;
		error = node && i < MODULES_MAX ? read_one(list, &reader) : -EFAULT;
		if (!error)
			error = read_u64(&reader, node, &node);
	}
	return error;
}

bool guest_modules_equal(const struct guest_module *left, size_t left_count,
			 const struct guest_module *right, size_t right_count)
{
	if (left_count != right_count)
		return false;
	for (size_t i = 0; i < left_count; i++)
		if (left[i].start != right[i].start || left[i].size != right[i].size ||
		    left[i].program != right[i].program ||
		    strcmp(left[i].name, right[i].name) != 0 ||
		    left[i].build_id_size != right[i].build_id_size ||
		    memcmp(left[i].build_id, right[i].build_id, left[i].build_id_size) != 0)
			return false;
	return true;
}

bool guest_module_has_build_id(const struct guest_module *module, const struct guest_view *view,
			       const struct guest_paging *paging)
{
	uint8_t build_id[GUEST_BUILD_ID_MAX];

	return !guest_read_virtual(view, paging, module->build_id_gva, build_id,
				   module->build_id_size) &&
	       !memcmp(build_id, module->build_id, module->build_id_size);
}

void module_list_free(struct module_list *list)
{
	free(list->modules);
	free(list->orcs);
	memset(list, 0, sizeof(*list));
}
