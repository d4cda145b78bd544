/* SPDX-License-Identifier: Apache-2.0 */
/* Where a kernel keeps what is read of it, by its BTF: in its memory, or from elsewhere if that has
 * none. */
#ifndef KVMSCOPE_GUEST_LINUX_KERNEL_BTF_H
#define KVMSCOPE_GUEST_LINUX_KERNEL_BTF_H

#include "shared/span.h"
#include "vmm/guest/linux/btf_types.h"
#include "vmm/guest/linux/guest_kernel.h"

/*
 * Fills in all that BTF tells of KERNEL, whose symbols are known: its modules, BPF programs, tasks,
 * cgroups, mappings and perf maps, each as far as it is told. Nobody else has KERNEL yet. Not on a
 * vCPU thread.
 */
void guest_kernel_read_layouts(struct guest_kernel *kernel, const struct btf *btf);

/*
 * The same by DATA, if KERNEL does not say itself where its tasks are; else a no-op. Its modules
 * come with guest_kernel_refresh(). -EINVAL: DATA is no BTF; -ENOENT: it lacks a part; -EILSEQ: it
 * is another kernel's, as the first task does not lie in memory as it says. KERNEL is then as it
 * was.
 */
int guest_kernel_use_btf(struct guest_kernel *kernel, const struct guest_view *view,
			 struct span data);

#endif
