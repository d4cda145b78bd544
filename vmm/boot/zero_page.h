/* SPDX-License-Identifier: Apache-2.0 */
/* Linux' boot_params ("zero page"), Documentation/arch/x86/zero-page.rst, for both 64-bit entries.
 */
#ifndef KVMSCOPE_BOOT_ZERO_PAGE_H
#define KVMSCOPE_BOOT_ZERO_PAGE_H

#include <asm/bootparam.h>

#include "vmm/boot/loader.h"

/*
 * Completes PARAMS, whose hdr came from the image or is zero, with the memory
 * map, INITRD, command line, RSDP and a seed for the kernel's random numbers,
 * and writes it to LAYOUT_ZERO_PAGE. The command line must be placed.
 */
int zero_page_write(const struct loader *loader, struct boot_params *params,
		    const struct placed *initrd);

#endif
