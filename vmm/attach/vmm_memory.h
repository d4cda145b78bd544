/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a guest that another process runs: which of that process's
 * memory is which of the guest's (memslots), and a guest view of it.
 *
 * It is read through /proc/PID/mem, which stays the process's own whatever
 * happens to its number, and needs no right any more once it is open. Where it may not be opened,
 * libvirt reads it for a domain (remote_memory.h). Nothing is ever written, and pages that the
 * process has not touched are not touched by searches either: they would become memory that it
 * uses.
 */
#ifndef KVMSCOPE_ATTACH_VMM_MEMORY_H
#define KVMSCOPE_ATTACH_VMM_MEMORY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/attach/process.h"
#include "vmm/guest/guest_view.h"

/* QEMU has some ten, and one more for each pluggable part of memory. */
#define VMM_SLOTS_MAX 512

/* Guest RAM [gpa, gpa + size) at HVA of the VMM process. */
struct vmm_slot {
	uint64_t gpa, size, hva; /* bytes */
};

struct vmm_memory {
	struct guest_view view; /* any thread, while the slots may change */
	struct guest_region everything;
	pthread_rwlock_t lock; /* of the slots */
	struct vmm_slot slots[VMM_SLOTS_MAX];
	size_t slot_count;
	int memory_fd;                /* /proc/PID/mem */
	int pagemap_fd;               /* /proc/PID/pagemap */
	struct remote_memory *remote; /* instead of both; or NULL */
};

/* Opens the memory of PROCESS; no slots are known yet. -EACCES: it may not be read, with what is
 * missing. */
int vmm_memory_open(struct vmm_memory *memory, const struct vmm_process *process);

/* The same by libvirt, for the domain NAME at URI: HVAs of slots do not matter. The errors of
 * remote_memory_open(). */
int vmm_memory_open_remote(struct vmm_memory *memory, const char *name, const char *uri);

/* Of one that was opened: what failed has nothing to close. Nobody may read it any more. */
void vmm_memory_close(struct vmm_memory *memory);

/* These are the slots from now on: not overlapping, at most VMM_SLOTS_MAX. Any thread. */
void vmm_memory_set_slots(struct vmm_memory *memory, const struct vmm_slot *slots, size_t count);

/* Are there slots? Any thread. */
bool vmm_memory_is_known(struct vmm_memory *memory);

/*
 * Looks at all pages of guest RAM that the process has touched, in order of their addresses; EACH
 * gets up to a MiB of them at a time, and ends the search by false. None of remote memory: it would
 * take too long. One thread at a time.
 */
void vmm_memory_each_page(struct vmm_memory *memory,
			  bool (*each)(void *context, uint64_t gpa, const uint8_t *bytes,
				       size_t size),
			  void *context);

#endif
