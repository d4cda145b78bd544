/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the guest's kernel executes RDPMC. With paravirtual operations, as
 * distributions build it, that is in native_read_pmc() alone; without them the
 * instruction stands wherever a counter is read.
 *
 * A function's bytes are disassembled from its symbol on, since the same bytes
 * are also parts of other instructions. To be called when the guest has done with
 * patching alternatives, which are behind its first initcall (init/main.c).
 */
#ifndef KVMSCOPE_GUEST_LINUX_RDPMC_SITES_H
#define KVMSCOPE_GUEST_LINUX_RDPMC_SITES_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"

#define RDPMC_SITES_MAX 64

struct rdpmc_site {
	uint64_t address; /* GVA of the instruction's first byte */
	uint8_t length;   /* bytes: 2, and a prefix for each more */
	uint8_t first;    /* its first byte */
};

struct rdpmc_sites {
	struct rdpmc_site sites[RDPMC_SITES_MAX]; /* ascending in the kernel, then in each module */
	size_t count;
};

/*
 * All of KERNEL and its modules; not of what goes after the kernel's start
 * (__init). None is no error. -ENOTSUP if it can not be told of some bytes
 * whether they are one: the message names the function. -EFAULT if the text
 * can not be read, -E2BIG above RDPMC_SITES_MAX, -EFBIG for too much code, -ENOMEM. Takes about ten
 * milliseconds and allocates: not in a sample.
 */
int rdpmc_sites_find(struct rdpmc_sites *sites, const struct guest_view *view,
		     const struct guest_kernel *kernel);

#endif
