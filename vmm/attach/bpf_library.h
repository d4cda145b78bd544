/* SPDX-License-Identifier: Apache-2.0 */
/* What all loaders of BPF programs need of libbpf. Any thread. */
#ifndef KVMSCOPE_ATTACH_BPF_LIBRARY_H
#define KVMSCOPE_ATTACH_BPF_LIBRARY_H

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

#endif
