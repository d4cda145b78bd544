/* SPDX-License-Identifier: Apache-2.0 */
/* What all loaders of BPF programs need of libbpf. Any thread. */
#ifndef KVMSCOPE_ATTACH_BPF_LIBRARY_H
#define KVMSCOPE_ATTACH_BPF_LIBRARY_H

#include <stddef.h>

struct btf;

/* The kernel's types, to be freed by bpf_library_free_types(). What libbpf says of its own accord
 * goes to the log from now on. NULL: the kernel shows none. */
struct btf *bpf_library_types(void);

/* Works on NULL. The types of the whole kernel were in memory, some tens of MiB: it is given back.
 */
void bpf_library_free_types(struct btf *kernel);

/*
 * Before Linux 6.1, which has the type, an iterator takes no notice of the process or thread that
 * it is given, and tells of all. -ENOTSUP, with the message, if KERNEL is such a one, or NULL.
 */
int bpf_library_check_iterators(const struct btf *kernel);

/*
 * A perf event on each CPU that BPF's program writes to, and nobody reads: for a record of it perf
 * asks KVM for the guest's RIP, which kvm_intel has in the VMCS alone until it is asked. So it is
 * known to the program, too. Any one thread at a time.
 */

struct rip_events;

/* The size that the map for them has to have: of a machine with all CPUs that there can be. */
size_t rip_events_count(void);

/*
 * Opens them, and puts them into the map of MAP_FD (BPF_MAP_TYPE_PERF_EVENT_ARRAY), by CPU. A CPU
 * that is offline has none. -EACCES: perf may not look at CPUs, with the message; -ENOMEM, -EMFILE
 * and others.
 */
int rip_events_open(struct rip_events **events, int map_fd);

/* Works on NULL. */
void rip_events_close(struct rip_events *events);

/* Where the kernel has all physical memory in its address space, which it tells nobody. */

/*
 * Has the BPF program PROGRAM_FD (bpf/try_direct_map.h) try each place where it can be (kernel:
 * kernel_randomize_memory()): the right one is where page tables lead from a page of this process
 * to random words that were put into it. What is found stays with the program; what is not found,
 * or may not be looked for, is unknown to it (-ENOENT, with the message). Any thread, one at a
 * time.
 */
int direct_map_find(int program_fd);

#endif
