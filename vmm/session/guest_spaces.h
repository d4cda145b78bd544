/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which page tables each process of the guest has: samples of somebody else's VM know CR3 at best,
 * and the guest's agent knows processes. The list of its kernel is looked at again and again; what
 * two looks agree on held all the time between them, and is told as sideband of a moment in the
 * middle: so it is no other's, however the guest's clock is off by less than that. The collector's
 * thread.
 */
#ifndef KVMSCOPE_SESSION_GUEST_SPACES_H
#define KVMSCOPE_SESSION_GUEST_SPACES_H

#include <stdint.h>

#include "shared/ring.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"

/* ns between two looks, at least; they take one part in CPU_BUDGET_SHARE of a processor at most.
 * What is told is right where times of the guest are known to a quarter of it. */
#define GUEST_SPACES_INTERVAL 100000000ull

struct guest_spaces;

/* What is told goes into RING, which nobody else writes to. -ENOMEM. */
int guest_spaces_create(struct guest_spaces **spaces, struct ring *ring);

/* Looks, if it is time to, at the processes of KERNEL, which runs now (NULL: none is known),
 * through VIEW. */
void guest_spaces_turn(struct guest_spaces *spaces, const struct guest_kernel *kernel,
		       const struct guest_view *view);

/* Works on NULL. */
void guest_spaces_destroy(struct guest_spaces *spaces);

#endif
