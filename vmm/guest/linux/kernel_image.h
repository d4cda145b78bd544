/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The area of the guest's address space for kernel images (Documentation/arch/x86/x86_64/mm.rst:
 * from 0xffffffff80000000 to the highest start of modules), and bounded copies out of it. A 32-bit
 * kernel is above PAGE_OFFSET, whose usual value is supported (arch/x86/Kconfig, VMSPLIT_3G), and
 * ends KERNEL_IMAGE_SIZE above it (arch/x86/include/asm/page_32_types.h).
 */
#ifndef KVMSCOPE_GUEST_LINUX_KERNEL_IMAGE_H
#define KVMSCOPE_GUEST_LINUX_KERNEL_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"

#define KERNEL_IMAGE_START 0xffffffff80000000ull
#define KERNEL_IMAGE_END   0xffffffffc0000000ull
#define PAGE_OFFSET_32     0xc0000000ull
#define KERNEL_IMAGE_END32 0xe0000000ull

/* The lowest address of code and data of a kernel that runs with PAGING, its modules included. */
static inline uint64_t kernel_image_start(const struct guest_paging *paging)
{
	return guest_paging_is_32bit(paging) ? PAGE_OFFSET_32 : KERNEL_IMAGE_START;
}

static inline uint64_t kernel_image_end(const struct guest_paging *paging)
{
	return guest_paging_is_32bit(paging) ? KERNEL_IMAGE_END32 : KERNEL_IMAGE_END;
}

/* Addresses [start, end), all mapped to guest RAM. */
struct mapped_range {
	uint64_t start, end;
};

/* The first mapped range in the area that ends above FROM. False: there is none. */
bool kernel_image_next_range(const struct guest_view *view, const struct guest_paging *paging,
			     uint64_t from, struct mapped_range *range);

/*
 * Searches RANGE from FROM on for a kallsyms token index, and sets *TOKEN_INDEX to its GVA. 0,
 * -ENOENT, -EFAULT or -ENOMEM. Not on a vCPU thread.
 */
int kernel_image_find_token_index(const struct guest_view *view, const struct guest_paging *paging,
				  const struct mapped_range *range, uint64_t from,
				  uint64_t *token_index);

/*
 * Copies guest memory [gva, gva + size) to new memory at *COPY, which the caller frees with free().
 * -EFAULT, -ENOMEM, or -EFBIG above 256 MiB.
 */
int guest_copy_virtual(const struct guest_view *view, const struct guest_paging *paging,
		       uint64_t gva, uint64_t size, uint8_t **copy);

#endif
