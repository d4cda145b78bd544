/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which functions the compiler put into one another at an address, out of an ELF file's DWARF
 * (DW_TAG_inlined_subroutine; DWARF 5, section 3.3.8). libdw reads it; not split DWARF (.dwo). A
 * compilation unit is looked through when the first address in it is asked for, and what was found
 * is kept. Files may be hostile: what they say is bounded, and as good as they are. Any one thread
 * at a time.
 */
#ifndef KVMSCOPE_SYMBOLS_DWARF_INLINES_H
#define KVMSCOPE_SYMBOLS_DWARF_INLINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dwarf_inlines;
struct symbol_sources;

/* Deeper ones lose the outermost. */
#define DWARF_INLINES_MAX 128

struct dwarf_function {
	const char *name;  /* as the linker would call it; NULL where the file does not say */
	const char *file;  /* where in the source it was: NULL, and line 0, where the file does not
			      say, */
	unsigned int line; /* or lines are not wanted */
};

/*
 * What dwz took out of the file into one that others share (.gnu_debugaltlink) is looked for by its
 * build id where SOURCES say, and beside the file. With BUILD_ID_SIZE not 0 the file must carry
 * that build id, else -ESTALE. -ENODATA: there is no DWARF in it, or not all of it; -EINVAL: it is
 * no ELF file; the errors of open(), -ENOMEM.
 */
int dwarf_inlines_open(struct dwarf_inlines **inlines, const char *path, const uint8_t *build_id,
		       size_t build_id_size, const struct symbol_sources *sources);
void dwarf_inlines_close(struct dwarf_inlines *inlines); /* NULL is a no-op */

/*
 * The functions that the code at ADDRESS (as the file has it) is of, innermost first, into
 * FUNCTIONS, which has room for DWARF_INLINES_MAX: those that were inlined, and last the one that
 * has symbols. What is returned is how many these are, 0 where the file does not say. Names and
 * files are as long-lived as INLINES.
 */
size_t dwarf_inlines_find(struct dwarf_inlines *inlines, uint64_t address, bool lines,
			  struct dwarf_function *functions);

#endif
