/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* BPF: finds out whether the kernel maps physical memory where its loader thinks. */
#ifndef KVMSCOPE_ATTACH_BPF_DIRECT_MAP_TEST_H
#define KVMSCOPE_ATTACH_BPF_DIRECT_MAP_TEST_H

#include "vmm/attach/bpf/host_page.h"
#include "vmm/attach/bpf/kernel_types.h"
#include "vmm/attach/bpf/kernel_word.h"

/* The loader runs it, and nobody else: the current process is the loader. */
SEC("syscall")
int try_direct_map(struct direct_map_trial *trial)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 page;

	trial->pgd = (__u64)task->mm->pgd;
	trial->found = 0;
	direct_map = trial->map;
	/* Read again: as what was written it is a pointer to the verifier, and no number. */
	page = host_page(*(const volatile __u64 *)&trial->pgd, trial->hva);
	if (!page)
		return 0;
	for (__u32 i = 0; i < DIRECT_MAP_WORDS; i++)
		if (kernel_word(page + i * sizeof(__u64)) != trial->words[i])
			return 0;
	trial->found = 1;
	return 0;
}

#endif
