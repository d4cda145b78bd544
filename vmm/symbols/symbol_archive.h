/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An archive of entries of a build-id cache: a gzipped tar file in the form of perf archive, which
 * perf users unpack into their cache (tar -xf FILE -C ~/.debug). Its first entry identifies the
 * recording that it belongs to. Archives are hostile when they are read. One thread at a time.
 */
#ifndef KVMSCOPE_SYMBOLS_SYMBOL_ARCHIVE_H
#define KVMSCOPE_SYMBOLS_SYMBOL_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of all files in an archive, not compressed, and their number. */
#define SYMBOL_ARCHIVE_SIZE_MAX  (2ull << 30)
#define SYMBOL_ARCHIVE_FILES_MAX 10000u

struct cache_file;
struct symbol_archive;

/* Opens FILE for an archive that appears at PATH with cache_file_end(). The errors of open(). */
int symbol_archive_open(struct cache_file *file, const char *path);

/* Starts the archive of the recording at INPUT in FILE, which outlives it. The errors of reading
 * INPUT and of writing. */
int symbol_archive_create(struct symbol_archive **archive, const struct cache_file *file,
			  const char *input);

/*
 * Adds the file FROM as ENTRY/ID/NAME, as in build_id_cache.h: ENTRY is the entry's name, for
 * example "[guest.user]", ID the build id as text, and NAME a file, or a file in one directory.
 * -EFBIG: the archive would exceed its bounds; the errors of reading FROM and of writing.
 */
int symbol_archive_add(struct symbol_archive *archive, const char *entry, const char *id,
		       const char *name, const char *from);

/* Completes the archive, unless ERROR is not 0. *SIZE gets its bytes. Returns the first error. */
int symbol_archive_close(struct symbol_archive *archive, int error, uint64_t *size);

/*
 * Unpacks the archive at PATH into DIRECTORY, which is empty and private, as a build-id cache
 * without code (kcore). Other names than those of symbol_archive_add() are skipped. -ESTALE: it is
 * of another recording than INPUT; -EINVAL: not an archive; -EFBIG; the errors of reading and
 * writing.
 */
int symbol_archive_unpack(const char *path, const char *input, const char *directory);

#endif
