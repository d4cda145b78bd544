/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/dwarf_inlines.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/error.h"
#include "vmm/symbols/debuginfod.h"
#include "vmm/symbols/elf_file.h"
#include "vmm/symbols/symbol_paths.h"

/* Far beyond what compilers nest. */
#define NESTED_MAX 512
/* Per function; far beyond what compilers generate. */
#define RANGES_MAX 4096
/* Ranges of units, functions and inlined functions in total. A whole kernel has about 2 million. */
#define TOTAL_MAX (1u << 24)

/* A range of an inlined function; outer functions precede inner ones. */
struct inlined {
	uint64_t low, high;
	Dwarf_Off die;
};

/* A range of a function, and the inlined functions in it. */
struct function {
	uint64_t low, high;
	Dwarf_Off die;
	uint32_t first, count; /* in the unit's array */
};

struct unit {
	Dwarf_Die die;
	bool read;
	struct function *functions; /* by address */
	size_t function_count, function_capacity;
	struct inlined *inlined;
	size_t inlined_count, inlined_capacity;
};

struct unit_range {
	uint64_t low, high;
	uint32_t unit;
};

struct dwarf_inlines {
	struct elf_file file;
	Dwarf *dwarf;
	struct elf_file shared_file; /* of dwz; valid if SHARED is set */
	Dwarf *shared;
	struct unit *units;
	size_t unit_count, unit_capacity;
	struct unit_range *ranges; /* by address */
	size_t range_count, range_capacity;
	size_t total; /* ranges in all arrays, limited by TOTAL_MAX */
};

/* False: the file has more addresses than any real one. */
static bool count_address(struct dwarf_inlines *inlines)
{
	return inlines->total < TOTAL_MAX && ++inlines->total;
}

/* The next range of DIE that can be code; linkers set the start of dropped functions to 0. */
static ptrdiff_t next_range(Dwarf_Die *die, ptrdiff_t at, uint64_t *low, uint64_t *high)
{
	Dwarf_Addr base, start, end;

	do
		at = dwarf_ranges(die, at, &base, &start, &end);
	while (at > 0 && (!start || end <= start));
	*low = start;
	*high = end;
	return at;
}

static int add_unit_ranges(struct dwarf_inlines *inlines, Dwarf_Die *die, uint32_t unit)
{
	uint64_t low, high;
	ptrdiff_t at = 0;

	for (unsigned int i = 0; i < 1u << 20 && (at = next_range(die, at, &low, &high)) > 0; i++) {
		if (!count_address(inlines) ||
		    array_reserve(&inlines->ranges, &inlines->range_capacity,
				  inlines->range_count + 1))
			return -ENOMEM;
		inlines->ranges[inlines->range_count++] =
			(struct unit_range){ .low = low, .high = high, .unit = unit };
	}
	return 0;
}

/* .debug_aranges is not used, because not all compilers write it. */
static int find_units(struct dwarf_inlines *inlines)
{
	Dwarf_CU *at = NULL;
	Dwarf_Die die;
	uint8_t type;
	int error = 0;

	while (!error && !dwarf_get_units(inlines->dwarf, at, &at, NULL, &type, &die, NULL)) {
		if (type != DW_UT_compile)
			continue;
		if (array_reserve(&inlines->units, &inlines->unit_capacity,
				  inlines->unit_count + 1))
			return -ENOMEM;
		inlines->units[inlines->unit_count++] = (struct unit){ .die = die };
		error = add_unit_ranges(inlines, &die, (uint32_t)(inlines->unit_count - 1));
	}
	return error;
}

/* libdw reads whole sections. */
static Dwarf *begin_dwarf(const struct elf_file *file)
{
	return elf_file_content_size(file) <= ELF_DWARF_MAX
		       ? dwarf_begin_elf(file->elf, DWARF_C_READ, NULL)
		       : NULL;
}

static bool open_shared(struct dwarf_inlines *inlines, const char *path, struct span build_id)
{
	if (inlines->shared || elf_file_open(&inlines->shared_file, path))
		return inlines->shared;
	if (!elf_file_check(&inlines->shared_file, build_id))
		inlines->shared = begin_dwarf(&inlines->shared_file);
	if (!inlines->shared)
		elf_file_close(&inlines->shared_file);
	return inlines->shared;
}

/* NAME may be relative to the directory of FILE. */
static void path_beside(char *path, const char *file, const char *name)
{
	const char *slash = strrchr(file, '/');
	int directory = slash && *name != '/' ? (int)(slash + 1 - file) : 0;

	if (snprintf(path, SYMBOL_PATH_MAX, "%.*s%s", directory, file, name) >= SYMBOL_PATH_MAX)
		*path = '\0';
}

/*
 * Opens the shared file of dwz, which must be a regular ELF file of the named build: libdw itself
 * would open any file that is named, at any time. False: it is missing, so functions that refer to
 * it would lack names or inlined functions.
 */
static bool find_shared(struct dwarf_inlines *inlines, const struct symbol_sources *sources)
{
	char path[SYMBOL_PATH_MAX];
	const char *name;
	const void *id;
	ssize_t size = dwelf_dwarf_gnu_debugaltlink(inlines->dwarf, &name, &id);

	if (!size)
		return true;
	if (size < 0 || size > ELF_BUILD_ID_MAX)
		return false;
	for (size_t i = 0; symbol_paths_debug(i, path, sources, span_of(id, (size_t)size)); i++)
		open_shared(inlines, path, span_of(id, (size_t)size));
	path_beside(path, inlines->file.path, name);
	if (!open_shared(inlines, path, span_of(id, (size_t)size)) &&
	    !debuginfod_find(sources->debuginfod, DEBUGINFOD_DEBUGINFO, path,
			     span_of(id, (size_t)size)))
		return false;
	if (!open_shared(inlines, path, span_of(id, (size_t)size)))
		return false;
	dwarf_setalt(inlines->dwarf, inlines->shared);
	return true;
}

static int read_dwarf(struct dwarf_inlines *inlines, const struct symbol_sources *sources)
{
	inlines->dwarf = begin_dwarf(&inlines->file);
	if (inlines->dwarf && !find_shared(inlines, sources))
		return error_set(-ENODATA, "the shared DWARF file of %s was not found",
				 inlines->file.path);
	if (inlines->dwarf && find_units(inlines))
		return error_set(-ENOMEM, "too much DWARF in %s, or no memory for it",
				 inlines->file.path);
	return inlines->range_count ? 0
				    : error_set(-ENODATA, "%s has no DWARF", inlines->file.path);
}

/* For any array whose members begin with their lowest address. */
static int by_address(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

int dwarf_inlines_open(struct dwarf_inlines **opened, const char *path, struct span build_id,
		       const struct symbol_sources *sources)
{
	struct dwarf_inlines *inlines = calloc(1, sizeof(*inlines));
	int error = inlines ? elf_file_open(&inlines->file, path) : -ENOMEM;

	if (error) {
		free(inlines);
		return error == -ENOMEM ? error_set(error, "no memory for inlined functions")
					: error;
	}
	error = elf_file_check(&inlines->file, build_id);
	if (!error)
		error = read_dwarf(inlines, sources);
	if (error) {
		dwarf_inlines_close(inlines);
		return error;
	}
	qsort(inlines->ranges, inlines->range_count, sizeof(*inlines->ranges), by_address);
	*opened = inlines;
	return 0;
}

void dwarf_inlines_close(struct dwarf_inlines *inlines)
{
	if (!inlines)
		return;
	for (size_t i = 0; i < inlines->unit_count; i++) {
		free(inlines->units[i].functions);
		free(inlines->units[i].inlined);
	}
	free(inlines->units);
	free(inlines->ranges);
	if (inlines->dwarf)
		dwarf_end(inlines->dwarf);
	if (inlines->shared) {
		dwarf_end(inlines->shared);
		elf_file_close(&inlines->shared_file);
	}
	elf_file_close(&inlines->file);
	free(inlines);
}

/* Reads the functions of a unit. */

struct walk {
	struct dwarf_inlines *inlines;
	struct unit *unit;
	unsigned int nested;
	int error;
};

static void walk_children(struct walk *walk, Dwarf_Die *parent);

/* Adds the ranges of DIE to the unit's functions, with the inlined functions from FIRST on, or to
 * its inlined functions. */
static int add_range(struct walk *walk, const struct function *function, bool inlined)
{
	struct unit *unit = walk->unit;

	if (!count_address(walk->inlines))
		return -ENOMEM;
	if (inlined) {
		if (array_reserve(&unit->inlined, &unit->inlined_capacity, unit->inlined_count + 1))
			return -ENOMEM;
		unit->inlined[unit->inlined_count++] =
			(struct inlined){ function->low, function->high, function->die };
		return 0;
	}
	if (array_reserve(&unit->functions, &unit->function_capacity, unit->function_count + 1))
		return -ENOMEM;
	unit->functions[unit->function_count++] = *function;
	return 0;
}

static void add_ranges(struct walk *walk, Dwarf_Die *die, size_t first, bool inlined)
{
	struct function function = {
		.die = dwarf_dieoffset(die),
		.first = (uint32_t)first,
		.count = (uint32_t)(walk->unit->inlined_count - first),
	};
	ptrdiff_t at = 0;

	for (unsigned int i = 0; i < RANGES_MAX && !walk->error &&
				 (at = next_range(die, at, &function.low, &function.high)) > 0;
	     i++)
		walk->error = add_range(walk, &function, inlined);
}

static void visit(struct walk *walk, Dwarf_Die *die)
{
	size_t first = walk->unit->inlined_count;

	switch (dwarf_tag(die)) {
	case DW_TAG_subprogram:
		walk_children(walk, die); /* first, because a function has the inlined ones in it */
		add_ranges(walk, die, first, false);
		return;
	case DW_TAG_inlined_subroutine:
		add_ranges(walk, die, first, true);
		walk_children(walk, die);
		return;
	case DW_TAG_lexical_block:
	case DW_TAG_try_block:
	case DW_TAG_catch_block:
	case DW_TAG_namespace:
	case DW_TAG_module:
	case DW_TAG_class_type:
	case DW_TAG_structure_type:
	case DW_TAG_union_type:
		walk_children(walk, die);
		return;
	default:
		return;
	}
}

/* In a hostile file siblings may lead back: only forward steps are followed. */
static void walk_children(struct walk *walk, Dwarf_Die *parent)
{
	Dwarf_Off before = dwarf_dieoffset(parent);
	Dwarf_Die die;

	if (walk->nested == NESTED_MAX || dwarf_child(parent, &die))
		return;
	walk->nested++;
	while (!walk->error && dwarf_dieoffset(&die) > before) {
		before = dwarf_dieoffset(&die);
		visit(walk, &die);
		if (dwarf_siblingof(&die, &die))
			break;
	}
	walk->nested--;
}

/* Without memory, the part that was read is used. */
static void read_unit(struct dwarf_inlines *inlines, struct unit *unit)
{
	struct walk walk = { .inlines = inlines, .unit = unit };

	unit->read = true;
	walk_children(&walk, &unit->die);
	if (unit->function_count)
		qsort(unit->functions, unit->function_count, sizeof(*unit->functions), by_address);
}

/* The last member that begins at or before ADDRESS, in an array sorted by_address(); NULL: none. */
static const void *find_last(const void *array, size_t count, size_t size, uint64_t address)
{
	const char *items = array;
	size_t before = array_partition(
		count, i, *(const uint64_t *)(const void *)(items + i * size) <= address);

	return before ? items + (before - 1) * size : NULL;
}

static struct unit *find_unit(struct dwarf_inlines *inlines, uint64_t address)
{
	const struct unit_range *range =
		find_last(inlines->ranges, inlines->range_count, sizeof(*range), address);
	struct unit *unit = range && address < range->high ? &inlines->units[range->unit] : NULL;

	if (unit && !unit->read)
		read_unit(inlines, unit);
	return unit;
}

static const struct function *find_function(const struct unit *unit, uint64_t address)
{
	const struct function *function =
		find_last(unit->functions, unit->function_count, sizeof(*function), address);

	return function && address < function->high ? function : NULL;
}

static Dwarf_Die *die_at(const struct unit *unit, Dwarf_Off offset, Dwarf_Die *die)
{
	return dwarf_offdie(dwarf_cu_getdwarf(unit->die.cu), offset, die);
}

/* The linkage name, else the name in the source. */
static const char *name_of(Dwarf_Die *die)
{
	static const unsigned int names[] = { DW_AT_linkage_name, DW_AT_MIPS_linkage_name,
					      DW_AT_name };
	Dwarf_Attribute attribute;
	const char *name = NULL;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !name; i++)
		name = dwarf_formstring(dwarf_attr_integrate(die, names[i], &attribute));
	return name && *name ? name : NULL;
}

/* The source line of the call that was inlined. */
static void find_call(struct unit *unit, Dwarf_Die *die, struct dwarf_function *caller)
{
	Dwarf_Attribute attribute;
	Dwarf_Files *files;
	Dwarf_Word number, line;
	size_t count;

	if (!dwarf_formudata(dwarf_attr(die, DW_AT_call_line, &attribute), &line))
		caller->line = (unsigned int)line;
	if (!dwarf_formudata(dwarf_attr(die, DW_AT_call_file, &attribute), &number) &&
	    !dwarf_getsrcfiles(&unit->die, &files, &count) && number < count)
		caller->file = dwarf_filesrc(files, number, NULL, NULL);
}

static void find_line(struct unit *unit, uint64_t address, struct dwarf_function *function)
{
	Dwarf_Line *line = dwarf_getsrc_die(&unit->die, address);
	int number;

	if (!line || dwarf_lineno(line, &number))
		return;
	function->file = dwarf_linesrc(line, NULL, NULL);
	function->line = (unsigned int)number;
}

/* The inlined functions at ADDRESS, the outermost first; at most the MAX innermost ones. */
static size_t find_inlined(const struct unit *unit, const struct function *function,
			   uint64_t address, Dwarf_Off *dies, size_t max)
{
	size_t count = 0;

	for (uint32_t i = function->first; i < function->first + function->count; i++) {
		const struct inlined *inlined = &unit->inlined[i];

		if (address < inlined->low || address >= inlined->high ||
		    (count && dies[count - 1] == inlined->die))
			continue;
		if (count == max)
			memmove(dies, dies + 1, --count * sizeof(*dies));
		dies[count++] = inlined->die;
	}
	return count;
}

size_t dwarf_inlines_find(struct dwarf_inlines *inlines, uint64_t address, bool lines,
			  struct dwarf_function *functions)
{
	struct unit *unit = find_unit(inlines, address);
	const struct function *function = unit ? find_function(unit, address) : NULL;
	Dwarf_Off dies[DWARF_INLINES_MAX - 1];
	size_t inlined, count = 0;
	Dwarf_Die die;

	if (!function)
		return 0;
	inlined = find_inlined(unit, function, address, dies, DWARF_INLINES_MAX - 1);
	functions[0] = (struct dwarf_function){ 0 };
	if (lines)
		find_line(unit, address, &functions[0]);
	while (inlined) {
		if (!die_at(unit, dies[--inlined], &die))
			return 0;
		functions[count].name = name_of(&die);
		functions[++count] = (struct dwarf_function){ 0 };
		if (lines)
			find_call(unit, &die, &functions[count]);
	}
	if (!die_at(unit, function->die, &die))
		return 0;
	functions[count].name = name_of(&die);
	return count + 1;
}
