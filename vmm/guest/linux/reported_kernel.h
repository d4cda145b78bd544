/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's kernel as reported by its agent: a parsed table of kind AGENT_TABLE_KERNEL
 * (docs/agent-protocol.md, "The kernel"). All of it is untrusted until guest memory confirms it
 * (guest_kernel.h).
 */
#ifndef KVMSCOPE_GUEST_LINUX_REPORTED_KERNEL_H
#define KVMSCOPE_GUEST_LINUX_REPORTED_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"
#include "vmm/guest/guest_account.h"
#include "vmm/guest/linux/module_list.h"
#include "vmm/guest/symbol_table.h"

/* Each costs about 40 bytes and its name. Kernels with everything built in have 500 000. */
#define REPORTED_KERNEL_SYMBOLS_MAX (1u << 20)

struct reported_kernel {
	struct guest_account *account; /* is charged for this report */
	size_t charged;                /* bytes */
	uint64_t modules_hash;         /* of struct agent_kernel */
	uint8_t build_id[GUEST_BUILD_ID_MAX];
	size_t build_id_size;    /* 0: not reported */
	struct symbols *symbols; /* finished; the kernel's, and those in MODULES; owned */
	struct symbols *per_cpu; /* finished; addresses below the kernel's image; owned */
	/*
	 * Modules with valid names, addresses and build ids, sorted by name. They do not overlap,
	 * and each has code and a known address of its build id. Owned.
	 */
	struct guest_module *modules;
	/* For each module: it was missing once, and may have been reloaded elsewhere. Owned. */
	bool *missing;
	size_t module_count;
};

/*
 * Parses TABLE and charges ACCOUNT, which must outlive the result. -EINVAL: TABLE is invalid or has
 * no symbols; -EFBIG: too many symbols; -ENOMEM, also if the account is full. Any thread.
 */
int reported_kernel_create(struct reported_kernel **reported, struct span table,
			   struct guest_account *account);
/* NULL is a no-op. */
void reported_kernel_free(struct reported_kernel *reported);

/*
 * Lists the modules whose build ids have been in guest memory at the reported addresses in this and
 * every earlier call. The build id proves where the read-only data is; since Linux 6.4 the text of
 * a reloaded module may still be elsewhere. Adds their symbols to SYMBOLS (unfinished) unless that
 * is NULL. -ENOMEM.
 */
int reported_kernel_list_modules(struct module_list *list, struct reported_kernel *reported,
				 const struct guest_view *view, const struct guest_paging *paging,
				 struct symbols *symbols);

#endif
