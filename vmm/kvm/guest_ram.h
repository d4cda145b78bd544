/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest RAM of our own VM: one anonymous mapping, split into memslots below and above the PCI hole.
 * Boot and device code reach guest memory only through these functions, which check every access
 * against the slots. Any thread. The guest may change the memory at any time.
 */
#ifndef KVMSCOPE_KVM_GUEST_RAM_H
#define KVMSCOPE_KVM_GUEST_RAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/patches.h"

/* RAM below 4 GiB ends here and continues at 4 GiB; MMIO devices, IOAPIC and LAPIC lie in
 * between. */
#define MEMORY_LOW_END    0xc0000000ull
#define MEMORY_HIGH_START 0x100000000ull

#define MEMORY_REGIONS_MAX 2

struct memory_region {
	uint64_t gpa;
	uint64_t size; /* bytes */
	uint8_t *hva;
};

struct memory {
	struct memory_region regions[MEMORY_REGIONS_MAX]; /* sorted by gpa */
	size_t region_count;
	uint8_t *mapping; /* owned */
	uint64_t size;    /* bytes of RAM */
	struct patches patches;
};

/*
 * Maps SIZE bytes (a multiple of 4 KiB, at least 1 MiB) of zero pages. Both regions start on 2 MiB
 * boundaries of the host address space, so that the host can use huge pages (THP). -EINVAL or
 * -ENOMEM.
 */
int memory_create(struct memory *memory, uint64_t size);
/* A no-op on a zeroed struct. */
void memory_destroy(struct memory *memory);

/* Zeroes all RAM and returns its pages to the host. Other threads may only read meanwhile. */
void memory_clear(struct memory *memory);

/* Pointer to RAM [gpa, gpa + size), or NULL unless the range lies within one region. */
void *memory_pointer(const struct memory *memory, uint64_t gpa, uint64_t size);

/* Copy to and from RAM. 0, or -EFAULT with nothing copied. */
int memory_write(const struct memory *memory, uint64_t gpa, const void *from, uint64_t size);
int memory_read(const struct memory *memory, uint64_t gpa, void *to, uint64_t size);

/* Replaces the guest's byte OWN at GPA by INT3, which the guest may execute at once. -EFAULT, or
 * -ENOSPC above PATCHES_MAX. One thread at a time. */
int memory_patch(struct memory *memory, uint64_t gpa, uint8_t own);

/* True if our INT3 is still at GPA: false once the guest has written other code there, even if
 * that code has an INT3 of its own at GPA. */
bool memory_is_patched(const struct memory *memory, uint64_t gpa);

#endif
