/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an ELF file says of its functions, as the guest's agent would send it (struct agent_symbols and what
 * follows, shared/agent_protocol.h). Any thread.
 */
#ifndef KVMSCOPE_PROFILE_IMAGE_TABLE_H
#define KVMSCOPE_PROFILE_IMAGE_TABLE_H

#include "shared/elf_tables.h"
#include "vmm/profile/perf_data_bytes.h"

/*
 * TABLES were found in FILE, which has the bytes of its symbols. 0 and their table in *TABLE, whose data is
 * the caller's to free; -ENOMEM, or what FILE's read() says, and nothing.
 */
int image_table_read(struct bytes *table, const struct elf_source *file, const struct elf_tables *tables);

#endif
