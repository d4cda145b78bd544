/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds guest memory in the VMM's process without KVM: the largest mapping that contains consistent
 * page tables of a kernel, with a hole below 4 GiB as VMMs have it. Every guess is checked; without
 * a match there is no memory.
 */
#ifndef KVMSCOPE_ATTACH_MEMORY_LAYOUT_H
#define KVMSCOPE_ATTACH_MEMORY_LAYOUT_H

#include "vmm/attach/vmm_memory.h"
#include "vmm/guest/linux/guest_kernel.h"

/* Sets MEMORY's slots. -ENOENT: no mapping of PROCESS is recognized as memory of a Linux guest
 * (yet); there are no slots then. May take tenths of a second per GiB. */
int memory_layout_guess(struct vmm_memory *memory, const struct vmm_process *process);

/* Corrects guessed slots: the guest's own memory map, from its firmware, has the address of the
 * hole. */
void memory_layout_correct(struct vmm_memory *memory, const struct guest_kernel *kernel);

/* Splits guest RAM of SIZE bytes at HVA at the hole [hole, 4 GiB), which it need not reach.
 * Returns the number of slots. */
size_t memory_layout_split(uint64_t hva, uint64_t size, uint64_t hole, struct vmm_slot slots[2]);

/* Parses a line of /proc/PID/maps. True: the mapping may be guest RAM on this host. */
bool memory_layout_parse(const char *line, uint64_t *hva, uint64_t *size);

#endif
