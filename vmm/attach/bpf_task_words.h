/* SPDX-License-Identifier: Apache-2.0 */
/* Which words the program of BPF reads of a guest's task (enum bpf_task_word), as the layout of its
 * kernel has them. Any thread. */
#ifndef KVMSCOPE_ATTACH_BPF_TASK_WORDS_H
#define KVMSCOPE_ATTACH_BPF_TASK_WORDS_H

#include "vmm/attach/bpf/guest_sample.h"
#include "vmm/guest/linux/task.h"

/* CPU's offsets and sizes become those of LAYOUT: bytes, multiples of 8. The caller keeps the
 * program from reading them meanwhile. */
void bpf_task_words_choose(struct bpf_cpu *cpu, const struct guest_task_layout *layout);

#endif
