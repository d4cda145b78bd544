/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that is a single ELF program and not Linux: its code may run at any privilege level, so
 * the file is mapped for user space, too.
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_PROGRAM_H
#define KVMSCOPE_RECORD_COLLECTOR_PROGRAM_H

#include "vmm/perf_data/perf_data_writer.h"

/*
 * Writes a user-space mapping for each executable segment of the ELF file PATH, at its virtual
 * addresses. -EINVAL if it is not an ELF file; the errors of open() and of writing.
 */
int collector_map_program(struct perf_data_writer *writer, const char *path, pid_t pid);

#endif
