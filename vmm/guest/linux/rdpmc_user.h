/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linux's own switch for RDPMC of its programs: x86_pmu.attr_rdpmc (arch/x86/events/core.c), which
 * root of the guest has as /sys/devices/cpu/rdpmc. While it is 0 no event that is opened shows
 * cap_user_rdpmc (perf_event_open(2)) and CR4.PCE stays clear: programs then read their counters by
 * read(2).
 *
 * Where it is tells get_attr_rdpmc(), the function that shows it: it reads nothing else of x86_pmu.
 */
#ifndef KVMSCOPE_GUEST_LINUX_RDPMC_USER_H
#define KVMSCOPE_GUEST_LINUX_RDPMC_USER_H

#include <stdint.h>

#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"

/* Of its values, that of a Linux that has booted: RDPMC is for who has mapped an event. An int, as
 * it is there. */
#define RDPMC_USER_MAPPED 1

/*
 * ADDRESS: its GVA, a multiple of 4. -ENOENT for a kernel without one of both symbols, -ENOTSUP if
 * the function does not read one place of x86_pmu or can not be disassembled, -EFAULT if it can not
 * be read, -ENOMEM; each with its message.
 */
int rdpmc_user_find(uint64_t *address, const struct guest_view *view,
		    const struct guest_kernel *kernel);

#endif
