/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inlined functions at an address, from an ELF file's DWARF (DW_TAG_inlined_subroutine; DWARF 5,
 * section 3.3.8), read with libdw; split DWARF (.dwo) is not read. A compilation unit is read at
 * the first lookup in it and then cached. Files may be hostile: sizes are bounded. One thread at a
 * time.
 */
#ifndef KVMSCOPE_SYMBOLS_DWARF_INLINES_H
#define KVMSCOPE_SYMBOLS_DWARF_INLINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"

struct dwarf_inlines;
struct symbol_sources;

/* If functions are nested deeper, the outermost ones are dropped. */
#define DWARF_INLINES_MAX 128

struct dwarf_function {
	const char *name; /* the linkage name; NULL: unknown */
	const char *file; /* source file and line; NULL and 0: unknown, or not requested */
	unsigned int line;
};

/*
 * Opens the DWARF of PATH. If BUILD_ID is not empty, the file must have it, else -ESTALE.
 * A shared file of dwz (.gnu_debugaltlink) is searched in SOURCES by its build id, and next to the
 * file. -ENODATA: no DWARF, or the shared file is missing; -EINVAL: not an ELF file; the errors of
 * open(), -ENOMEM.
 */
int dwarf_inlines_open(struct dwarf_inlines **inlines, const char *path, struct span build_id,
		       const struct symbol_sources *sources);
void dwarf_inlines_close(struct dwarf_inlines *inlines); /* NULL is a no-op */

/*
 * Stores the functions at ADDRESS (of the file) in FUNCTIONS, which has room for DWARF_INLINES_MAX:
 * inlined ones from the innermost out, then the function they are inlined into. Returns their
 * number, 0 if unknown. Strings live as long as INLINES.
 */
size_t dwarf_inlines_find(struct dwarf_inlines *inlines, uint64_t address, bool lines,
			  struct dwarf_function *functions);

#endif
