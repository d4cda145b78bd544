/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings of code as the guest told them, on their way to who asks it for symbols: names need no
 * time, and a guest that ends soon may have no other. They wait here for another thread;
 * agent_host.c holds its lock.
 */
#ifndef KVMSCOPE_AGENT_AGENT_MAPPINGS_H
#define KVMSCOPE_AGENT_AGENT_MAPPINGS_H

#include <stddef.h>

#include "shared/sideband_record.h"
#include "vmm/guest/guest_account.h"

/* Bytes that wait, at most. What is more, or not there in the account, is left out: it comes by the
 * ring, too. */
#define AGENT_MAPPINGS_MAX (1u << 20)

/* Zeroed: none. */
struct agent_mappings {
	struct guest_account *account; /* that what waits is of; the owner's to set */
	struct agent_mapping *first, *last;
	size_t bytes;
};

/* Keeps RECORD, which is copied, if it is a mapping of code that has a build id. */
void agent_mappings_see(struct agent_mappings *mappings, const struct sideband *record);

/* The oldest one, the caller's to free(); NULL: there is none. Its time is the guest's. */
struct sideband_mmap *agent_mappings_take(struct agent_mappings *mappings);

/* Frees what it holds; zeroed, it holds nothing. */
void agent_mappings_free(struct agent_mappings *mappings);

#endif
