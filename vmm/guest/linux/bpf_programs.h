/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code that the kernel made of BPF programs, with its trampolines and dispatchers: read from the
 * kernel's own list of their symbols (kernel/bpf/core.c, bpf_kallsyms; include/linux/bpf.h, struct
 * bpf_ksym), with the layout that its BTF tells. They are called as in /proc/kallsyms:
 * bpf_prog_TAG_NAME. Programs of before eBPF (socket filters, seccomp) have no such symbol.
 */
#ifndef KVMSCOPE_GUEST_LINUX_BPF_PROGRAMS_H
#define KVMSCOPE_GUEST_LINUX_BPF_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/btf_types.h"
#include "vmm/guest/symbol_table.h"

struct guest_module;

/* Byte offsets in struct bpf_ksym. */
struct bpf_program_layout {
	uint64_t head; /* GVA of the list; 0: it is not known where they are */
	uint32_t range, name, name_size, list;
};

/* Of kernels since 5.7; of others head is 0. */
void bpf_program_layout_read(struct bpf_program_layout *layout, const struct symbols *symbols,
			     const struct btf *btf);

/* So many are read; a guest is not to fill our memory. */
#define BPF_PROGRAMS_MAX 4096u

/*
 * Those that are in the list now, appended to the *COUNT ones of *PROGRAMS, which is the caller's
 * to free, or none, if the list breaks off: it does while the guest changes it. They are in the
 * order of their addresses, and none overlaps another: of those that do, none is appended. -ENOMEM,
 * with *PROGRAMS as it was. Not on a vCPU thread.
 */
int bpf_programs_read(struct guest_module **programs, size_t *count, const struct guest_view *view,
		      const struct guest_paging *paging, const struct bpf_program_layout *layout);

/*
 * Is PROGRAM still in the list, with the same place and name? What is taken out of it, before its
 * code goes, has no neighbour any more that leads to it. No lock, allocation or system call.
 */
bool bpf_program_is_loaded(const struct guest_module *program, const struct guest_view *view,
			   const struct guest_paging *paging);

#endif
