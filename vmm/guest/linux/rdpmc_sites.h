/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RDPMC in the guest's kernel: where it is executed, and the switch that allows it in user space.
 *
 * With paravirtual operations, as in distribution kernels, the instruction is in native_read_pmc()
 * alone; without them it is wherever a counter is read. Functions are disassembled from their
 * symbol on, since the same bytes also occur inside other instructions. To be called after the
 * guest has patched alternatives, that is, after its first initcall (init/main.c).
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
	uint8_t length;   /* bytes: 2, and 1 for each prefix */
	uint8_t first;    /* the first byte */
};

struct rdpmc_sites {
	struct rdpmc_site sites[RDPMC_SITES_MAX]; /* ascending in the kernel, then in each module */
	size_t count;
};

/*
 * Finds all sites of KERNEL and its modules, except in __init code, which is freed. Finding none is
 * not an error. -ENOTSUP if it is unclear whether some bytes are an RDPMC: the message names the
 * function. -EFAULT if the text cannot be read, -E2BIG above RDPMC_SITES_MAX, -EFBIG for too much
 * code, -ENOMEM. Allocates, and takes about ten milliseconds: not for use in a sample.
 */
int rdpmc_sites_find(struct rdpmc_sites *sites, const struct guest_view *view,
		     const struct guest_kernel *kernel);

/*
 * Value of the switch in a booted Linux: RDPMC is allowed for programs that have mapped an event.
 */
#define RDPMC_USER_MAPPED 1

/*
 * Finds the switch, x86_pmu.attr_rdpmc (arch/x86/events/core.c), which is /sys/devices/cpu/rdpmc in
 * the guest. While it is 0, events opened do not show cap_user_rdpmc (perf_event_open(2)) and
 * CR4.PCE stays clear, so programs read their counters with read(2). It is found as the only int of
 * x86_pmu that get_attr_rdpmc() reads.
 *
 * *ADDRESS becomes its GVA, a multiple of 4. -ENOENT if the kernel lacks one of the symbols,
 * -ENOTSUP if the function does not read exactly one int of x86_pmu or cannot be disassembled,
 * -EFAULT if it cannot be read, -ENOMEM; each with a message.
 */
int rdpmc_user_find(uint64_t *address, const struct guest_view *view,
		    const struct guest_kernel *kernel);

#endif
