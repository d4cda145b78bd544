/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the guest's memory lies in the process, found without KVM's help: the
 * largest mapping in which the page tables of a kernel fit together, with a
 * hole below 4 GiB where VMMs use to have theirs. Nothing is taken that was
 * not checked; where nothing fits, nothing is known.
 */
#ifndef KVMSCOPE_ATTACH_MEMORY_LAYOUT_H
#define KVMSCOPE_ATTACH_MEMORY_LAYOUT_H

#include "vmm/attach/vmm_memory.h"
#include "vmm/guest/linux/guest_kernel.h"

/*
 * Sets MEMORY's slots. -ENOENT: no mapping of PROCESS is the memory of a guest that runs Linux, as
 * far as can be told (yet); the slots are then none. May take tenths of a second for each GiB.
 */
int memory_layout_guess(struct vmm_memory *memory, const struct vmm_process *process);

/*
 * The guest's own map of its memory, which its firmware gave it, tells where the hole is: corrects
 * slots that were guessed.
 */
void memory_layout_correct(struct vmm_memory *memory, const struct guest_kernel *kernel);

/* Guest RAM of SIZE bytes at HVA without [hole, 4 GiB), a hole that it may reach or not; the number
 * of slots.
 */
size_t memory_layout_split(uint64_t hva, uint64_t size, uint64_t hole, struct vmm_slot slots[2]);

/* A line of /proc/PID/maps: is it a mapping that can be guest RAM, on this host? */
bool memory_layout_parse(const char *line, uint64_t *hva, uint64_t *size);

#endif
