/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/perf_map_layout.h"

#include <stddef.h>
#include <string.h>

#include "vmm/guest/linux/btf_types.h"

struct wanted {
	const char *type, *member;
	uint32_t size; /* at least, from where it begins */
	uint32_t *offset;
};

static bool find_all(const struct btf *btf, const struct wanted *wanted, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!btf_find_offset(btf, wanted[i].type, wanted[i].member, wanted[i].size,
				     wanted[i].offset))
			return false;
	return true;
}

void perf_map_layout_read(struct perf_map_layout *layout, const struct btf *btf)
{
	uint32_t path, dentry;
	const struct wanted wanted[] = {
		{ "task_struct", "files", 8, &layout->task_files },
		{ "task_struct", "real_cred", 8, &layout->task_cred },
		{ "task_struct", "self_exec_id", 8, &layout->task_execs },
		{ "task_struct", "thread_pid", 8, &layout->task_pid },
		{ "files_struct", "fdt", 8, &layout->files_table },
		{ "fdtable", "max_fds", 4, &layout->table_count },
		{ "fdtable", "fd", 8, &layout->table_slots },
		{ "file", "f_mode", 4, &layout->file_mode },
		{ "file", "f_flags", 4, &layout->file_flags },
		{ "file", "f_pos", 8, &layout->file_position },
		{ "file", "f_cred", 8, &layout->file_cred },
		{ "file", "f_inode", 8, &layout->file_inode },
		{ "file", "f_path", 16, &path },
		{ "path", "dentry", 8, &dentry },
		{ "inode", "i_mode", 2, &layout->inode_mode },
		{ "inode", "i_uid", 4, &layout->inode_owner },
		{ "inode", "i_size", 8, &layout->inode_size },
		{ "cred", "fsuid", 4, &layout->cred_owner },
		{ "pid", "level", 4, &layout->pid_level },
		/* Without a size: from 6.5 on it is an array that has none. */
		{ "pid", "numbers", 0, &layout->pid_numbers },
		{ "upid", "nr", 4, &layout->number },
	};

	memset(layout, 0, sizeof(*layout));
	layout->number_size = btf_size(btf, btf_find_struct(btf, "upid"));
	layout->known =
		layout->number_size && find_all(btf, wanted, sizeof(wanted) / sizeof(wanted[0]));
	layout->file_dentry = layout->known ? path + dentry : 0;
}
