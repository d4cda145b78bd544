/* SPDX-License-Identifier: Apache-2.0 */
/* What the loaders of BPF programs share: kernel types, events for RIP, and the direct map. Any
 * thread, unless noted. */
#ifndef KVMSCOPE_ATTACH_BPF_LIBRARY_H
#define KVMSCOPE_ATTACH_BPF_LIBRARY_H

#include <stddef.h>

struct btf;

/* Loads the kernel's types, for bpf_library_free_types(). Sends libbpf's messages to the log.
 * NULL: the kernel has none. */
struct btf *bpf_library_types(void);

/* NULL is allowed. Returns the memory of the types, some tens of MiB, to the system. */
void bpf_library_free_types(struct btf *kernel);

/* The offset in bytes of member NAME in the struct STRUCTURE; -1: unknown, or TYPES is NULL. */
long bpf_library_member(const struct btf *types, const char *structure, const char *name);

/* Checks for Linux 6.1, which has the type: before, an iterator ignores the process or thread it
 * is limited to. -ENOTSUP, with the message, if KERNEL is older or NULL. */
int bpf_library_check_iterators(const struct btf *kernel);

/*
 * One perf event per CPU, which the BPF program writes to and which is never read: for each record
 * perf makes KVM read the guest's RIP, which kvm_intel otherwise leaves in the VMCS. The program
 * can then read it, too. One thread at a time.
 */

struct rip_events;

/* The required size of the map: all possible CPUs. */
size_t rip_events_count(void);

/*
 * Opens the events, and stores them by CPU in the map MAP_FD (BPF_MAP_TYPE_PERF_EVENT_ARRAY),
 * except for offline CPUs. -EACCES: no right to CPU-wide events; -ENOMEM, -EMFILE and others; all
 * with the message.
 */
int rip_events_open(struct rip_events **events, int map_fd);

/* NULL is allowed. */
void rip_events_close(struct rip_events *events);

/*
 * Finds the kernel's direct map of physical memory, whose address is not published: the BPF program
 * PROGRAM_FD (try_direct_map() of bpf/guest_sample.c) tries each possible base (kernel:
 * kernel_randomize_memory()). The right one leads from a page of this process, through its page
 * tables, to random words in that page. The program keeps the result. -ENOENT, with the message:
 * not found or not permitted; the program then does not use it. One thread at a time.
 */

int direct_map_find(int program_fd);

#endif
