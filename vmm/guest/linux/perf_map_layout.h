/* SPDX-License-Identifier: Apache-2.0 */
/* Where a guest's kernel keeps the files that a process has open, and who opened them. */
#ifndef KVMSCOPE_GUEST_LINUX_PERF_MAP_LAYOUT_H
#define KVMSCOPE_GUEST_LINUX_PERF_MAP_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

struct btf;

/* Byte offsets, each in the structure that it is named after; immutable once read. */
struct perf_map_layout {
	bool known; /* else nothing below holds */
	uint32_t task_files, task_cred, task_execs, task_pid;
	uint32_t files_table;              /* fdt of struct files_struct */
	uint32_t table_count, table_slots; /* max_fds and fd of struct fdtable */
	uint32_t file_mode, file_flags, file_position, file_cred, file_inode, file_dentry;
	uint32_t inode_mode, inode_owner, inode_size;
	uint32_t cred_owner;             /* fsuid of struct cred */
	uint32_t pid_level, pid_numbers; /* of struct pid */
	uint32_t number, number_size;    /* nr of struct upid, and bytes of that */
};

/* Without a part LAYOUT->known is false. Not on a vCPU thread. */
void perf_map_layout_read(struct perf_map_layout *layout, const struct btf *btf);

#endif
