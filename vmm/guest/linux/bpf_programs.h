/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JIT-compiled code of BPF programs, trampolines and dispatchers, read from the kernel's list of
 * their symbols (kernel/bpf/core.c, bpf_kallsyms; include/linux/bpf.h, struct bpf_ksym). Names are
 * those of /proc/kallsyms: bpf_prog_TAG_NAME. Classic BPF (socket filters, seccomp) has no symbols.
 */
#ifndef KVMSCOPE_GUEST_LINUX_BPF_PROGRAMS_H
#define KVMSCOPE_GUEST_LINUX_BPF_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/btf_types.h"
#include "vmm/guest/linux/module_list.h"
#include "vmm/guest/symbol_table.h"

/* Byte offsets in struct bpf_ksym. */
struct bpf_program_layout {
	uint64_t head; /* GVA of the list head; 0: unknown */
	uint32_t range, name, name_size, list;
};

/* Since Linux 5.7; for older kernels the head is 0. */
void bpf_program_layout_read(struct bpf_program_layout *layout, const struct symbols *symbols,
			     const struct btf *btf);

#define BPF_PROGRAMS_MAX 4096u /* bounds the memory that a guest can use */

/*
 * Appends the listed programs to the *COUNT items of *PROGRAMS, which the caller frees. Appends
 * nothing if the list breaks off, as it does while the guest changes it. The appended programs are
 * in address order; programs that overlap are left out. -ENOMEM, with *PROGRAMS unchanged. Not on a
 * vCPU thread.
 */
int bpf_programs_read(struct guest_module **programs, size_t *count, const struct guest_view *view,
		      const struct guest_paging *paging, const struct bpf_program_layout *layout);

/*
 * Is PROGRAM still listed with the same address and name? The kernel unlinks a program before it
 * frees the code, so its neighbours no longer point to it. No lock, allocation or system call.
 */
bool bpf_program_is_loaded(const struct guest_module *program, const struct guest_view *view,
			   const struct guest_paging *paging);

#endif
