/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of QEMU's memory is which of the guest's, as its monitor writes it: "info mtree -f" (QEMU:
 * softmmu/memory.c, mtree_print_flatview()) has the ranges of RAM, "gpa2hva" (monitor/misc.c) where
 * one begins. Any thread.
 */
#ifndef KVMSCOPE_ATTACH_QMP_MEMORY_H
#define KVMSCOPE_ATTACH_QMP_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/attach/vmm_memory.h"

/*
 * The RAM and ROM of the address space "memory" in TEXT, whose HVAs are not known yet; their
 * number, at most MAX. 0: it is not there, or makes no sense.
 */
size_t qmp_parse_memory(const char *text, struct vmm_slot *slots, size_t max);

/* "Host virtual address for 0x100000 (pc.ram) is 0x7f533ff00000" */
bool qmp_parse_hva(const char *text, uint64_t *hva);

#endif
