/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's kernel, or another program that is the whole guest, as an ELF file that the user
 * gives. It may come from the guest, so a confined process reduces it to a flat form
 * (image_parser.h), which the collector checks. Any thread.
 */
#ifndef KVMSCOPE_RECORD_VMLINUX_FILE_H
#define KVMSCOPE_RECORD_VMLINUX_FILE_H

#include <stdint.h>

#include "shared/bytes.h"
#include "shared/span.h"
#include "vmm/guest/symbol_table.h"
#include "vmm/symbols/elf_file.h"

struct kernel_segment {
	uint64_t address, size, offset; /* GVA; bytes in memory; offset in the file */
};

struct vmlinux_file {
	uint8_t build_id[ELF_BUILD_ID_MAX];
	uint32_t build_id_size; /* 0: it has none */
	uint32_t segment_count;
	struct kernel_segment segments[ELF_SEGMENTS_MAX]; /* executable ones */
};

/* Limit of the flat form in bytes; Linux with all symbols has some 15 MiB. */
#define VMLINUX_FILE_FLAT_MAX (128u << 20)

/* Writes the flat form of the ELF file FD into TO, whose data the caller frees.
 * -EFBIG, and the errors of elf_file_begin() and elf_symbols_read(), without a path. */
int vmlinux_file_flatten(struct bytes *to, int fd);

/* Reads a flat form that is not trusted. The caller frees *SYMBOLS. -EINVAL, -ENOMEM. */
int vmlinux_file_parse(struct span flat, struct vmlinux_file *file, struct symbols **symbols);

#endif
