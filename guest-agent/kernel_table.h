/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the running kernel says of itself: its build id, and which modules are where, with their
 * sections. Its symbols are /proc/kallsyms as it stands there.
 */
#ifndef KVMSCOPE_GUEST_AGENT_KERNEL_TABLE_H
#define KVMSCOPE_GUEST_AGENT_KERNEL_TABLE_H

#include <stdint.h>

#include "shared/agent_protocol.h"

struct kernel_table {
	struct agent_kernel head;
	struct agent_module modules[AGENT_KERNEL_MODULES_MAX];
};

/* agent_kernel.modules_hash of what is loaded now: of two files and a directory of each module, in
 * no time.
 */
uint64_t kernel_table_hash(void);

/* Reads it. A file that is not there or can not be read leaves what it would tell 0. */
void kernel_table_read(struct kernel_table *table);

/*
 * /proc/kallsyms, to be read and closed; -EPERM where it has no addresses (kernel.kptr_restrict),
 * or the negative errno of open().
 */
int kernel_table_open_symbols(void);

#endif
