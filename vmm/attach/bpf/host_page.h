/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * BPF: finds the direct-map address of a process's page: its page tables lead to the physical
 * address, and the kernel maps all physical memory contiguously. The includer supplies
 * kernel_word().
 */
#ifndef KVMSCOPE_ATTACH_BPF_HOST_PAGE_H
#define KVMSCOPE_ATTACH_BPF_HOST_PAGE_H

#include "vmm/attach/bpf/guest_sample.h"
#include "vmm/attach/bpf/verified_once.h"

#define HOST_PRESENT 1ull
#define HOST_LARGE   (1ull << 7)
#define HOST_SPECIAL                                                                               \
	(1ull << 9) /* not counted by the kernel, e.g. device memory (kernel: _PAGE_SPECIAL) */
#define HOST_ADDRESS 0x000ffffffffff000ull

/* Set by the loader. */
struct direct_map direct_map;

static __always_inline __u64 direct_address(__u64 physical)
{
	return physical < direct_map.limit ? direct_map.base + physical : 0;
}

/* The page of HVA; 0: none that is known to be memory. Tables and page must not be freed
 * meanwhile. */
VERIFIED_ONCE __u64 host_page(__u64 pgd, __u64 hva)
{
	__u64 table = pgd, entry, mask;

	for (__u32 shift = direct_map.levels == 5 ? 48 : 39; shift >= 12; shift -= 9) {
		entry = table ? kernel_word(table + ((hva >> shift) & 511) * 8) : 0;
		if (!(entry & HOST_PRESENT))
			return 0;
		if (shift == 12 || (shift <= 30 && entry & HOST_LARGE)) {
			mask = (1ull << shift) - 1;
			return entry & HOST_SPECIAL
				       ? 0
				       : direct_address((entry & HOST_ADDRESS & ~mask) |
							(hva & mask & ~0xfffull));
		}
		table = direct_address(entry & HOST_ADDRESS);
	}
	return 0;
}

#endif
