/* SPDX-License-Identifier: Apache-2.0 */
/* The running kernel's build id and its modules with their addresses and sections. Its symbols are
 * /proc/kallsyms, unchanged.
 */
#ifndef KVMSCOPE_GUEST_AGENT_KERNEL_TABLE_H
#define KVMSCOPE_GUEST_AGENT_KERNEL_TABLE_H

#include <stdint.h>

#include "shared/agent_protocol.h"

struct kernel_table {
	struct agent_kernel head;
	struct agent_module modules[AGENT_KERNEL_MODULES_MAX];
};

/* agent_kernel.modules_hash of the loaded modules. Cheap: two files, and one directory per module.
 */
uint64_t kernel_table_hash(void);

/* Reads the table. Values of missing or unreadable files are 0. */
void kernel_table_read(struct kernel_table *table);

/* Opens /proc/kallsyms, for the caller to close. -EPERM if it has no addresses
 * (kernel.kptr_restrict), or the negative errno of open().
 */
int kernel_table_open_symbols(void);

#endif
