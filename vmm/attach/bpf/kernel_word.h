/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* BPF: reads a word of kernel memory. */
#ifndef KVMSCOPE_ATTACH_BPF_KERNEL_WORD_H
#define KVMSCOPE_ATTACH_BPF_KERNEL_WORD_H

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* Since Linux 6.2. */
extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym __weak;

const volatile __u32 can_cast; /* set by the loader: the kernel has bpf_rdonly_cast() */

/* Reads a word that may be of a module's type. Through a pointer of a known type it is one
 * instruction, which yields 0 if nothing is mapped; any type that begins with a number works. */
static __always_inline __u64 kernel_word(__u64 at)
{
	__u64 word = 0;

	if (can_cast)
		return *(const volatile __u64 *)bpf_rdonly_cast(
			(void *)at, bpf_core_type_id_kernel(struct pt_regs));
	bpf_probe_read_kernel(&word, sizeof(word), (void *)at);
	return word;
}

#endif
