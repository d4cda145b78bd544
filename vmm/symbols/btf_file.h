/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel's BTF from a file of the host. */
#ifndef KVMSCOPE_SYMBOLS_BTF_FILE_H
#define KVMSCOPE_SYMBOLS_BTF_FILE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Loads BTF from PATH, an ELF file with a section .BTF or a copy of /sys/kernel/btf/vmlinux, into
 * *DATA, which the caller frees. -EINVAL: PATH is neither; -ENOMEM, the errors of reading. Any
 * thread.
 */
int btf_file_load(const char *path, uint8_t **data, size_t *size);

#endif
