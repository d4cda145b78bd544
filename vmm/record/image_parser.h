/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses what a guest has in memory or in its page cache: ELF headers and symbols, .eh_frame, and
 * perf maps of JITs. That runs in two confined processes (sandbox_work.h), which can use memory
 * and one socket each, and no files:
 *
 *	collector --request, bytes of the image--> process
 *	collector <--where to read, result-------- process
 *
 * The collector copies bytes without interpreting them and checks the results, so a guest that
 * takes over such a process can spoil its own profile only. A process that crashes or answers too
 * late is ended; requests then fail, and the profile goes on. One thread at a time.
 */
#ifndef KVMSCOPE_RECORD_IMAGE_PARSER_H
#define KVMSCOPE_RECORD_IMAGE_PARSER_H

#include <sys/types.h>

#include "shared/elf_source.h"
#include "shared/span.h"
#include "vmm/guest/image_identity.h"
#include "vmm/guest/linux/perf_map.h"
#include "vmm/guest/unwind/cfi_table.h"
#include "vmm/record/vmlinux_file.h"

struct image_parser;

/* Of the processes, if we may change the user. */
struct image_parser_user {
	uid_t uid;
	gid_t gid;
};

/*
 * Starts the processes, which end at the latest with the calling thread. USER NULL, and in builds
 * with sanitizers: starts threads called "parser" instead, for a process whose threads are
 * confined. KERNEL: path of the kernel's ELF file, for image_parser_kernel(), which outlives the
 * parser; NULL: none. The errors of open(), socketpair(), fork() and pthread_create(), with
 * messages.
 */
int image_parser_start(struct image_parser **parser, const struct image_parser_user *user,
		       const char *kernel);

void image_parser_end(struct image_parser *parser); /* NULL is a no-op */

/* Bytes of .eh_frame that take some 10 ms. */
#define IMAGE_PARSER_SOON (256u << 10)

/*
 * The unwind table of IMAGE, owned by the caller. -EINPROGRESS: see image_parser_table_result();
 * -EBUSY: later, as it takes long and another one is in progress; -EIO: the parser has ended;
 * also the errors of cfi_image_read() and cfi_image_make().
 */
int image_parser_table(struct image_parser *parser, const struct elf_source *image,
		       struct cfi_table **table);

/* The table in progress, if it is finished. -EINPROGRESS: it is not, or none was; other errors as
 * above. */
int image_parser_table_result(struct image_parser *parser, struct cfi_table **table);

/* The identity of IMAGE, as image_identity_read(); empty if the parser has ended. */
void image_parser_identity(struct image_parser *parser, const struct elf_source *image,
			   struct image_identity *identity);

/* How symbols are found: see elf_tables.h. */
enum image_symbols_of {
	IMAGE_SYMBOLS_ALL,
	IMAGE_SYMBOLS_DYNAMIC,
	IMAGE_SYMBOLS_SEGMENTS,
};

/* Bytes of symbols and strings; larger tables take the collector too long. */
#define IMAGE_PARSER_SYMBOLS_MAX (8u << 20)

/* The symbols of IMAGE (image_file.h), whose data the caller frees. -EFBIG, -EIO, and the errors of
 * elf_tables_find() and image_table_read(). */
int image_parser_symbols(struct image_parser *parser, const struct elf_source *image,
			 enum image_symbols_of which, struct span *table);

/* The segments, build ID and symbols of the kernel's file; the caller frees *SYMBOLS. -ENODATA: it
 * is stripped; -EINVAL: it is not an ELF file; -EFBIG, -ENOMEM, -EIO; with messages. */
int image_parser_kernel(struct image_parser *parser, struct vmlinux_file *file,
			struct symbols **symbols);

/* Calls EACH for each valid line of TEXT, at most 64 KiB. 0 or -EIO. */
int image_parser_lines(struct image_parser *parser, struct span text,
		       void (*each)(void *context, const struct perf_map_line *line),
		       void *context);

#endif
