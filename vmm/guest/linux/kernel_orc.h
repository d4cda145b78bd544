/* SPDX-License-Identifier: Apache-2.0 */
/* What guest_unwind() needs of a kernel: its ORC tables, and a CR3 that maps every kernel stack. */
#ifndef KVMSCOPE_GUEST_LINUX_KERNEL_ORC_H
#define KVMSCOPE_GUEST_LINUX_KERNEL_ORC_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/linux/module_list.h"
#include "vmm/guest/linux/orc_table.h"
#include "vmm/guest/symbol_table.h"

struct kernel_orc {
	struct guest_paging paging;
	enum orc_format format;
	struct orc_table *tables; /* [0] the kernel's, then modules' by address */
	size_t table_count;
	uint8_t **copies; /* of tables that are not read where they lie in guest RAM */
	size_t copy_count;
};

/*
 * Makes one for the kernel of SYMBOLS (finished) and its MODULES. -ENOENT:
 * the kernel has no ORC tables, or of a format that is not known; -ENOMEM.
 */
int kernel_orc_create(struct kernel_orc **unwinder, const struct guest_view *view,
		      const struct guest_paging *paging, const struct symbols *symbols,
		      const struct module_list *modules);
/* NULL is a no-op. */
void kernel_orc_free(struct kernel_orc *unwinder);

/* The table that describes the code at IP, or NULL. Any thread, no lock. */
const struct orc_table *kernel_orc_table(const struct kernel_orc *unwinder, uint64_t ip);

#endif
