/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's kernel as its agent tells it: a table of kind
 * AGENT_TABLE_KERNEL (docs/agent-protocol.md, "The kernel"), taken apart. All of it is the guest's
 * word: guest_kernel.h says what memory has to confirm before it is used.
 */
#ifndef KVMSCOPE_GUEST_LINUX_REPORTED_KERNEL_H
#define KVMSCOPE_GUEST_LINUX_REPORTED_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"
#include "vmm/guest/guest_account.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/symbol_table.h"

/* More is not taken: each costs some 40 bytes and its name. Kernels with everything built in have
 * 500 000. */
#define REPORTED_KERNEL_SYMBOLS_MAX (1u << 20)

struct reported_kernel {
	struct guest_account *account; /* that it is of, */
	size_t taken;                  /* with so many bytes */
	uint64_t modules_hash;         /* of agent_kernel */
	uint8_t build_id[GUEST_BUILD_ID_MAX];
	size_t build_id_size; /* 0: not told */
	struct symbols
		*symbols; /* finished; the kernel's, and those of MODULES that lie in them; owned */
	struct symbols *per_cpu; /* finished; addresses below the kernel's image; owned */
	/*
	 * Whose names, places and build ids can be: no two share an address, each has code and says
	 * where its build id lies. Sorted by name. Owned.
	 */
	struct guest_module *modules;
	bool *gone; /* for each: a look did not find it, and who loaded it again may have put it
		       elsewhere; owned */
	size_t module_count;
};

/* Of ACCOUNT, which outlives it. -EINVAL: TABLE is none, or has no symbols; -EFBIG: too many;
 * -ENOMEM, also where the guest may take no more. Any thread. */
int reported_kernel_create(struct reported_kernel **told, struct span table,
			   struct guest_account *account);

/* NULL is a no-op. */
void reported_kernel_free(struct reported_kernel *told);

#endif
