/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registers of a vCPU's latest stop, for other threads: a sequence lock (kernel:
 * include/linux/seqlock.h) whose writer never waits.
 *
 *	snapshot_write  the vCPU's thread only
 *	snapshot_read   any thread, at the same time
 */
#ifndef KVMSCOPE_SAMPLE_VCPU_SNAPSHOT_H
#define KVMSCOPE_SAMPLE_VCPU_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"

#define SNAPSHOT_WORDS ((sizeof(struct guest_registers) + 7) / 8)

struct snapshot {
	uint64_t sequence; /* odd during a write; 0 before the first */
	uint64_t words[SNAPSHOT_WORDS];
};

void snapshot_write(struct snapshot *snapshot, const struct guest_registers *registers);

/* False before the first write. */
bool snapshot_read(const struct snapshot *snapshot, struct guest_registers *registers);

#endif
