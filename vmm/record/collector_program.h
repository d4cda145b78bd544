/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that is one ELF program and no Linux: its code may run at any
 * privilege level, so the file is mapped for user space too.
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_PROGRAM_H
#define KVMSCOPE_RECORD_COLLECTOR_PROGRAM_H

#include "vmm/perf_data/perf_data_writer.h"

/*
 * Writes a mapping of user space for each executable segment of the ELF file
 * PATH, at its virtual addresses. -EINVAL if it is no ELF file, the errors of
 * open() and of writing.
 */
int collector_map_program(struct perf_data_writer *writer, const char *path, pid_t pid);

#endif
