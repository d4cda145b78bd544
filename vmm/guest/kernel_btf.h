/* SPDX-License-Identifier: Apache-2.0 */
/* BTF from elsewhere, for a kernel that has none in its memory. */
#ifndef KVMSCOPE_GUEST_KERNEL_BTF_H
#define KVMSCOPE_GUEST_KERNEL_BTF_H

#include "shared/span.h"
#include "vmm/guest/kernel.h"

/*
 * Takes over from DATA where KERNEL keeps its tasks and what they have mapped, if it does not say so itself;
 * else a no-op. Nobody else has KERNEL yet. -EINVAL: DATA is no BTF; -ENOENT: it lacks a part; -EILSEQ: it is
 * another kernel's, as the first task does not lie in memory as it says. KERNEL is then as it was. Not on a
 * vCPU thread.
 */
int guest_kernel_use_btf(struct guest_kernel *kernel, const struct guest_view *view, struct span data);

#endif
