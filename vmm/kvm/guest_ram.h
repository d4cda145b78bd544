/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest RAM of our own VM: one anonymous mapping, cut into memslots below
 * and above the PCI hole. The one way of boot and device code to reach guest
 * memory; every access is checked against the slots. Any thread; the guest
 * may change what is there at any moment.
 */
#ifndef KVMSCOPE_KVM_GUEST_RAM_H
#define KVMSCOPE_KVM_GUEST_RAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/patches.h"

/* RAM ends here below 4 GiB (the rest is at 4 GiB and up); devices, IOAPIC and LAPIC lie between.
 */
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
 * Maps SIZE bytes (a multiple of 4 KiB, at least 1 MiB) of zero pages, huge ones where the host has
 * them (THP): both regions begin at multiples of 2 MiB of the host's addresses, too. -EINVAL or
 * -ENOMEM.
 */
int memory_create(struct memory *memory, uint64_t size);
/* Zeroed it is a no-op. */
void memory_destroy(struct memory *memory);

/* All zero again, as new. Nobody else may use it meanwhile but to read; its pages are the host's
 * again. */
void memory_clear(struct memory *memory);

/* A pointer to RAM [gpa, gpa + size), or NULL if it is not wholly inside one region. */
void *memory_pointer(const struct memory *memory, uint64_t gpa, uint64_t size);

/* Copy to and from RAM; 0, or -EFAULT with nothing done. */
int memory_write(const struct memory *memory, uint64_t gpa, const void *from, uint64_t size);
int memory_read(const struct memory *memory, uint64_t gpa, void *to, uint64_t size);

/*
 * Puts INT3 in place of the guest's byte OWN at GPA. The guest may execute it at
 * once. -EFAULT, -ENOSPC above PATCHES_MAX. One at a time.
 */
int memory_patch(struct memory *memory, uint64_t gpa, uint8_t own);

/* Is it still there? Not if there is other code by now, be it with an INT3 of its own in that
 * place. */
bool memory_is_patched(const struct memory *memory, uint64_t gpa);

#endif
