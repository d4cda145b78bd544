/* SPDX-License-Identifier: Apache-2.0 */
/* Where the kernel has all physical memory in its address space, which it tells nobody. */
#ifndef KVMSCOPE_ATTACH_DIRECT_MAP_H
#define KVMSCOPE_ATTACH_DIRECT_MAP_H

/*
 * Has the BPF program PROGRAM_FD (bpf/try_direct_map.h) try each place where it can be (kernel:
 * kernel_randomize_memory()): the right one is where page tables lead from a page of this process
 * to random words that were put into it. What is found stays with the program; what is not found,
 * or may not be looked for, is unknown to it (-ENOENT, with the message). Any thread, one at a
 * time.
 */
int direct_map_find(int program_fd);

#endif
