/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a guest in another process: the memslots, and a guest view.
 *
 * It is read through /proc/PID/mem, which refers to the process even if its PID is reused, and
 * needs no rights after it was opened. Without the right to open it, libvirt can read the memory of
 * a domain for users that may connect to it (virDomainMemoryPeek(), by QEMU's pmemsave): about 100
 * times slower, so blocks are cached for a quarter of a second. Nothing is ever written. Searches
 * skip pages that the process has not touched: reading would allocate them.
 */
#ifndef KVMSCOPE_ATTACH_VMM_MEMORY_H
#define KVMSCOPE_ATTACH_VMM_MEMORY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/attach/process.h"
#include "vmm/guest/guest_view.h"

/* QEMU has about ten, and one more for each memory device. */
#define VMM_SLOTS_MAX 512

/* Guest RAM [gpa, gpa + size) at HVA of the VMM process. */
struct vmm_slot {
	uint64_t gpa, size, hva; /* bytes */
};

struct vmm_memory {
	struct guest_view view; /* for any thread, while the slots may change */
	struct guest_region everything;
	pthread_rwlock_t lock; /* of the slots */
	struct vmm_slot slots[VMM_SLOTS_MAX];
	size_t slot_count;
	int memory_fd;                /* /proc/PID/mem */
	int pagemap_fd;               /* /proc/PID/pagemap */
	struct remote_memory *remote; /* instead of both descriptors; else NULL */
};

/* Opens the memory of PROCESS, without slots. -EACCES: it may not be read, with what is missing. */
int vmm_memory_open(struct vmm_memory *memory, const struct vmm_process *process);

/* The same through libvirt, for the domain NAME at URI; HVAs of slots are unused. -ENOMEM and
 * the errors of domain_open(). */
int vmm_memory_open_remote(struct vmm_memory *memory, const char *name, const char *uri);

/* After a successful open, when no thread reads it any longer. */
void vmm_memory_close(struct vmm_memory *memory);

/* Sets the slots: not overlapping, at most VMM_SLOTS_MAX. Any thread. */
void vmm_memory_set_slots(struct vmm_memory *memory, const struct vmm_slot *slots, size_t count);

/* True if there are slots. Any thread. */
bool vmm_memory_is_known(struct vmm_memory *memory);

/*
 * Calls EACH with all guest RAM that the process has touched, in order of addresses and up to a MiB
 * at a time, until it returns false. Skips remote memory, which is too slow. One thread at a time.
 */
void vmm_memory_each_page(struct vmm_memory *memory,
			  bool (*each)(void *context, uint64_t gpa, const uint8_t *bytes,
				       size_t size),
			  void *context);

#endif
