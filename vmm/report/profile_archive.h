/* SPDX-License-Identifier: Apache-2.0 */
/* The files from which a recording gets its symbols, in one archive (symbol_archive.h). */
#ifndef KVMSCOPE_REPORT_PROFILE_ARCHIVE_H
#define KVMSCOPE_REPORT_PROFILE_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/report/profile_stacks.h"

struct cache_file;

struct profile_archive_counts {
	size_t found, missing; /* kernels and images with samples, by whether files were found */
	uint64_t size;         /* of the archive, bytes */
};

/*
 * Writes the archive of the recording that OPTIONS select to FILE (symbol_archive_open()): of each
 * kernel, module, program and library with samples, the files of its build that a report would
 * read. The errors of profile_load() and of writing; -EFBIG: beyond the bounds of an archive. One
 * thread at a time.
 */
int profile_archive(const struct profile_options *options, const struct cache_file *file,
		    struct profile_archive_counts *counts);

#endif
