/* SPDX-License-Identifier: Apache-2.0 */
/* What guest_unwind() needs of a kernel: its ORC tables, and a CR3 that maps every kernel stack. */
#ifndef KVMSCOPE_GUEST_UNWINDER_H
#define KVMSCOPE_GUEST_UNWINDER_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/modules.h"
#include "vmm/guest/orc.h"
#include "vmm/guest/symbols.h"

struct guest_unwinder {
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
int guest_unwinder_create(struct guest_unwinder **unwinder, const struct guest_view *view,
			  const struct guest_paging *paging, const struct symbols *symbols,
			  const struct module_list *modules);
/* NULL is a no-op. */
void guest_unwinder_free(struct guest_unwinder *unwinder);

/* The table that describes the code at IP, or NULL. Any thread, no lock. */
const struct orc_table *guest_unwinder_table(const struct guest_unwinder *unwinder, uint64_t ip);

#endif
