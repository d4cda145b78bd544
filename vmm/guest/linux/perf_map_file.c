/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/perf_map_file.h"

#include <stdio.h>
#include <string.h>

#include "vmm/guest/linux/btf_types.h"
#include "vmm/guest/linux/guest_file.h"
#include "vmm/guest/linux/guest_kernel.h"

#define TASKS_MAX    65536u
#define LEVELS_MAX   32u /* of pid namespaces: MAX_PID_NS_LEVEL */
#define NAME_SIZE    32u
#define MODE_WRITE   2u     /* FMODE_WRITE, include/linux/fs.h */
#define FLAG_APPEND  02000u /* O_APPEND, include/uapi/asm-generic/fcntl.h */
#define TYPE_MASK    0170000u
#define TYPE_REGULAR 0100000u

void perf_map_layout_read(struct perf_map_layout *layout, const struct btf *btf)
{
	const struct btf_offset offsets[] = {
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
		{ "file", "f_path.dentry", 8, &layout->file_dentry },
		{ "inode", "i_mode", 2, &layout->inode_mode },
		{ "inode", "i_uid", 4, &layout->inode_owner },
		{ "inode", "i_size", 8, &layout->inode_size },
		{ "cred", "fsuid", 4, &layout->cred_owner },
		{ "pid", "level", 4, &layout->pid_level },
		/* Since 6.5 it is a flexible array: size 0. */
		{ "pid", "numbers", 0, &layout->pid_numbers },
		{ "upid", "nr", 4, &layout->number },
	};

	memset(layout, 0, sizeof(*layout));
	layout->number_size = btf_size(btf, btf_find_struct(btf, "upid"));
	layout->known = layout->number_size && BTF_FIND_OFFSETS(btf, offsets);
}

/* Context of one call. */
struct reader {
	struct kernel_memory memory;
	const struct guest_kernel *kernel;
	const struct perf_map_layout *layout;
	struct perf_map_file *map;
};

static struct reader reader_of(struct perf_map_file *map, const struct guest_kernel *kernel,
			       const struct guest_view *view)
{
	return (struct reader){ .memory = { .view = view, .paging = &kernel->paging },
				.kernel = kernel,
				.layout = &kernel->perf_maps,
				.map = map };
}

static bool read_u64(struct reader *reader, uint64_t at, uint64_t *value)
{
	return kernel_memory_read_u64(&reader->memory, at, value);
}

static bool read_u32(struct reader *reader, uint64_t at, uint32_t *value)
{
	return kernel_memory_read(&reader->memory, at, value, sizeof(*value));
}

/* --- process --------------------------------------------------------------------- */

/* Is TASK the first thread of process PID? */
static bool is_process(struct reader *reader, uint64_t task)
{
	const struct guest_task_layout *tasks = &reader->kernel->tasks;
	uint32_t pid, tid;

	return read_u32(reader, task + tasks->tgid, &pid) && pid == reader->map->pid &&
	       read_u32(reader, task + tasks->pid, &tid) && tid == pid;
}

static bool read_program(struct reader *reader, uint64_t *started, uint64_t *execs)
{
	return read_u64(reader, reader->map->task + reader->kernel->tasks.started, started) &&
	       read_u64(reader, reader->map->task + reader->layout->task_execs, execs);
}

/* Is it still the same process, running the same program? */
static bool is_program(struct reader *reader)
{
	uint64_t started, execs;

	return is_process(reader, reader->map->task) && read_program(reader, &started, &execs) &&
	       started == reader->map->started && execs == reader->map->execs;
}

/* Searches the list of processes, whose links may change: a task that is found is verified. */
static bool find_process(struct reader *reader)
{
	const struct guest_task_layout *tasks = &reader->kernel->tasks;
	uint64_t first = tasks->first + tasks->list, at = first;

	for (unsigned int i = 0; i < TASKS_MAX; i++) {
		if (!read_u64(reader, at, &at) || at == first)
			return false;
		if (is_process(reader, at - tasks->list)) {
			reader->map->task = at - tasks->list;
			return true;
		}
	}
	return false;
}

bool perf_map_file_begin(struct perf_map_file *map, const struct guest_kernel *kernel,
			 const struct guest_view *view, uint32_t pid)
{
	struct reader reader = reader_of(map, kernel, view);

	*map = (struct perf_map_file){ .pid = pid };
	return reader.layout->known && kernel->vmas.has_pages && kernel->tasks.known &&
	       kernel->tasks.parent && kernel->tasks.first && pid && find_process(&reader) &&
	       read_program(&reader, &map->started, &map->execs) && is_program(&reader);
}

/* --- file ------------------------------------------------------------------------ */

/* "perf-PID.map", PID being the one in the process's own namespace. */
static bool make_name(struct reader *reader, char name[NAME_SIZE])
{
	const struct perf_map_layout *layout = reader->layout;
	uint32_t level, number;
	uint64_t pid;

	if (!read_u64(reader, reader->map->task + layout->task_pid, &pid) ||
	    !read_u32(reader, pid + layout->pid_level, &level) || level > LEVELS_MAX ||
	    !read_u32(reader,
		      pid + layout->pid_numbers + (uint64_t)level * layout->number_size +
			      layout->number,
		      &number))
		return false;
	snprintf(name, NAME_SIZE, "perf-%u.map", number);
	return true;
}

static bool has_name(struct reader *reader, uint64_t file, const char *name)
{
	const struct guest_vma_layout *vmas = &reader->kernel->vmas;
	uint64_t dentry, hash, at, length = strlen(name);
	char found[NAME_SIZE];

	return read_u64(reader, file + reader->layout->file_dentry, &dentry) &&
	       read_u64(reader, dentry + vmas->dentry_hash, &hash) && hash >> 32 == length &&
	       read_u64(reader, dentry + vmas->dentry_name, &at) &&
	       kernel_memory_read(&reader->memory, at, found, length) &&
	       !memcmp(found, name, length);
}

/* Did this program open FILE for writing, not for appending? */
static bool is_own(struct reader *reader, uint64_t file)
{
	const struct perf_map_layout *layout = reader->layout;
	uint64_t own, opener;
	uint32_t mode, flags;

	return read_u32(reader, file + layout->file_mode, &mode) && mode & MODE_WRITE &&
	       read_u32(reader, file + layout->file_flags, &flags) && !(flags & FLAG_APPEND) &&
	       read_u64(reader, reader->map->task + layout->task_cred, &own) &&
	       read_u64(reader, file + layout->file_cred, &opener) && opener == own;
}

/* Is it a regular file that its opener owns? */
static bool is_trusted(struct reader *reader, uint64_t file, uint64_t inode)
{
	const struct perf_map_layout *layout = reader->layout;
	uint32_t owner, user;
	uint64_t cred;
	uint16_t mode;

	return kernel_memory_read(&reader->memory, inode + layout->inode_mode, &mode,
				  sizeof(mode)) &&
	       (mode & TYPE_MASK) == TYPE_REGULAR &&
	       read_u32(reader, inode + layout->inode_owner, &owner) &&
	       read_u64(reader, file + layout->file_cred, &cred) &&
	       read_u32(reader, cred + layout->cred_owner, &user) && owner == user;
}

/* The address and the number of the process's descriptors. */
static bool find_descriptors(struct reader *reader, uint64_t *slots, uint32_t *count)
{
	uint64_t files, table;

	return read_u64(reader, reader->map->task + reader->layout->task_files, &files) &&
	       read_u64(reader, files + reader->layout->files_table, &table) &&
	       read_u64(reader, table + reader->layout->table_slots, slots) &&
	       read_u32(reader, table + reader->layout->table_count, count);
}

static bool find_file(struct reader *reader)
{
	struct perf_map_file *map = reader->map;
	uint64_t slots, file;
	uint32_t count;
	char name[NAME_SIZE];

	if (!make_name(reader, name) || !find_descriptors(reader, &slots, &count))
		return false;
	for (uint32_t i = 0; i < count && i < PERF_MAP_DESCRIPTORS_MAX; i++) {
		if (!read_u64(reader, slots + 8ull * i, &file))
			return false;
		if (!file || !is_own(reader, file) || !has_name(reader, file, name) ||
		    !read_u64(reader, file + reader->layout->file_inode, &map->inode) ||
		    !is_trusted(reader, file, map->inode))
			continue;
		map->file = file;
		map->descriptor = i;
		return true;
	}
	return false;
}

/* Is the file still open? While it is, its file, inode and credentials stay allocated. */
static bool has_file(struct reader *reader)
{
	const struct perf_map_file *map = reader->map;
	uint64_t slots, file, inode;
	char name[NAME_SIZE];
	uint32_t count;

	return make_name(reader, name) && find_descriptors(reader, &slots, &count) &&
	       map->descriptor < count && read_u64(reader, slots + 8ull * map->descriptor, &file) &&
	       file == map->file && is_own(reader, file) && has_name(reader, file, name) &&
	       read_u64(reader, file + reader->layout->file_inode, &inode) && inode == map->inode &&
	       is_trusted(reader, file, inode);
}

/* --- content ---------------------------------------------------------------------- */

static bool read_bytes(struct reader *reader, uint64_t offset, void *to, size_t size)
{
	return guest_file_read(&reader->memory, &reader->kernel->vmas, reader->map->inode, offset,
			       to, size);
}

static bool has_mark(struct reader *reader)
{
	const struct perf_map_file *map = reader->map;
	uint8_t mark[PERF_MAP_MARK];

	return !map->mark_size ||
	       (read_bytes(reader, map->offset - map->mark_size, mark, map->mark_size) &&
		!memcmp(mark, map->mark, map->mark_size));
}

/* Consumes the whole lines of the SIZE bytes at TO; returns their size. */
static size_t consume_lines(struct perf_map_file *map, const uint8_t *to, size_t size)
{
	const uint8_t *last = size ? memrchr(to, '\n', size) : NULL;
	size_t lines = last ? (size_t)(last + 1 - to) : 0;

	if (lines) {
		map->mark_size = lines < sizeof(map->mark) ? lines : sizeof(map->mark);
		memcpy(map->mark, to + lines - map->mark_size, map->mark_size);
		map->offset += lines;
	}
	return lines;
}

/* The kernel writes the bytes of a file first, then its size, then the file position. */
static enum perf_map_result read_new(struct reader *reader, uint8_t *to, size_t *size)
{
	struct perf_map_file *map = reader->map;
	uint64_t end, position;
	size_t part, room = *size;

	*size = 0;
	if (!read_u64(reader, map->inode + reader->layout->inode_size, &end) ||
	    !read_u64(reader, map->file + reader->layout->file_position, &position))
		return PERF_MAP_UNKNOWN;
	if (end < map->offset)
		return PERF_MAP_REPLACED;
	if (position < end)
		return PERF_MAP_UNKNOWN;
	part = end - map->offset < room ? (size_t)(end - map->offset) : room;
	if (!read_bytes(reader, map->offset, to, part))
		return PERF_MAP_UNKNOWN;
	if (!has_mark(reader))
		return PERF_MAP_REPLACED;
	*size = part;
	return part < end - map->offset ? PERF_MAP_MORE : PERF_MAP_READ;
}

static void reset_file(struct perf_map_file *map)
{
	map->file = map->inode = map->offset = 0;
	map->mark_size = 0;
}

/* Verifies after the read that the program still runs and has the file open. */
static enum perf_map_result check(struct reader *reader, enum perf_map_result found)
{
	uint64_t end, position;

	if (!is_program(reader))
		return PERF_MAP_ENDED;
	if (found == PERF_MAP_UNKNOWN || found == PERF_MAP_REPLACED)
		return found;
	if (!has_file(reader))
		return PERF_MAP_REPLACED;
	return read_u64(reader, reader->map->inode + reader->layout->inode_size, &end) &&
			       read_u64(reader, reader->map->file + reader->layout->file_position,
					&position) &&
			       end >= reader->map->offset && position >= reader->map->offset
		       ? found
		       : PERF_MAP_UNKNOWN;
}

enum perf_map_result perf_map_file_read(struct perf_map_file *map,
					const struct guest_kernel *kernel,
					const struct guest_view *view, uint8_t *to, size_t *size)
{
	struct reader reader = reader_of(map, kernel, view);
	enum perf_map_result found;
	size_t room = *size, read = 0;

	*size = 0;
	if (!is_program(&reader))
		return PERF_MAP_ENDED;
	if (map->file && !has_file(&reader)) {
		reset_file(map);
		return PERF_MAP_REPLACED;
	}
	if (!map->file && !find_file(&reader))
		return is_program(&reader) ? PERF_MAP_NONE : PERF_MAP_ENDED;
	read = room;
	found = check(&reader, read_new(&reader, to, &read));
	if (found == PERF_MAP_REPLACED)
		reset_file(map);
	if (found == PERF_MAP_MORE || found == PERF_MAP_READ) {
		*size = consume_lines(map, to, read);
		/* The buffer is larger than any valid line. */
		if (found == PERF_MAP_MORE && !*size)
			return PERF_MAP_UNKNOWN;
	}
	return found;
}
