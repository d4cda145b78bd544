/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel data that guest_unwind() needs: ORC tables, and a CR3 that maps every kernel stack. */
#ifndef KVMSCOPE_GUEST_LINUX_KERNEL_ORC_H
#define KVMSCOPE_GUEST_LINUX_KERNEL_ORC_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/linux/module_list.h"
#include "vmm/guest/linux/orc_table.h"
#include "vmm/guest/symbol_table.h"

/* Immutable once created; any number of threads. */
struct kernel_orc {
	struct guest_paging paging;
	enum orc_format format;
	struct orc_table *tables; /* [0] the kernel's, then those of modules in address order */
	size_t table_count;
	uint8_t **copies; /* of tables that are not read in guest RAM */
	size_t copy_count;
};

/*
 * Creates the tables of the kernel with the finished SYMBOLS, and of its MODULES. -ENOENT: the
 * kernel has no ORC tables, or in an unknown format; -ENOMEM.
 */
int kernel_orc_create(struct kernel_orc **orc, const struct guest_view *view,
		      const struct guest_paging *paging, const struct symbols *symbols,
		      const struct module_list *modules);
/* NULL is a no-op. */
void kernel_orc_free(struct kernel_orc *orc);

/* The table that describes the code at IP, or NULL. Any thread, no lock. */
const struct orc_table *kernel_orc_table(const struct kernel_orc *orc, uint64_t ip);

#endif
