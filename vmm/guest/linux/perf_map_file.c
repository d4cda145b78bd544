// SPDX-License-Identifier: Apache-2.0
#include "vmm/guest/linux/perf_map_file.h"

#include <stdio.h>
#include <string.h>

#include "vmm/guest/linux/kernel_memory.h"
#include "vmm/guest/linux/page_cache.h"

#define TASKS_MAX    65536u
#define LEVELS_MAX   32u /* of pid namespaces: MAX_PID_NS_LEVEL */
#define NAME_SIZE    32u
#define MODE_WRITE   2u     /* FMODE_WRITE, include/linux/fs.h */
#define FLAG_APPEND  02000u /* O_APPEND, include/uapi/asm-generic/fcntl.h */
#define TYPE_MASK    0170000u
#define TYPE_REGULAR 0100000u

/* What a look has at hand. */
struct qmp_sample {
	struct kernel_memory memory;
	const struct guest_kernel *kernel;
	const struct perf_map_layout *layout;
	struct perf_map_file *map;
};

static struct qmp_sample look_of(struct perf_map_file *map, const struct guest_kernel *kernel,
				 const struct guest_view *view)
{
	return (struct qmp_sample){ .memory = { .view = view, .paging = &kernel->paging },
				    .kernel = kernel,
				    .layout = &kernel->perf_maps,
				    .map = map };
}

static bool read_u64(struct qmp_sample *look, uint64_t at, uint64_t *value)
{
	return kernel_memory_read_u64(&look->memory, at, value);
}

static bool read_u32(struct qmp_sample *look, uint64_t at, uint32_t *value)
{
	return kernel_memory_read(&look->memory, at, value, sizeof(*value));
}

/* --- the process ----------------------------------------------------------------- */

/* Is TASK the first thread of process PID? */
static bool is_process(struct qmp_sample *look, uint64_t task)
{
	const struct guest_task_layout *tasks = &look->kernel->tasks;
	uint32_t pid, tid;

	return read_u32(look, task + tasks->tgid, &pid) && pid == look->map->pid &&
	       read_u32(look, task + tasks->pid, &tid) && tid == pid;
}

static bool read_program(struct qmp_sample *look, uint64_t *started, uint64_t *execs)
{
	return read_u64(look, look->map->task + look->kernel->tasks.started, started) &&
	       read_u64(look, look->map->task + look->layout->task_execs, execs);
}

/* Is it the process that it was, in the program that it was in? */
static bool is_program(struct qmp_sample *look)
{
	uint64_t started, execs;

	return is_process(look, look->map->task) && read_program(look, &started, &execs) &&
	       started == look->map->started && execs == look->map->execs;
}

/* By the list of processes, whose links may change meanwhile: what is found is the process, or else
 * none is.
 */
static bool find_process(struct qmp_sample *look)
{
	const struct guest_task_layout *tasks = &look->kernel->tasks;
	uint64_t first = tasks->first + tasks->list, at = first;

	for (unsigned int i = 0; i < TASKS_MAX; i++) {
		if (!read_u64(look, at, &at) || at == first)
			return false;
		if (is_process(look, at - tasks->list)) {
			look->map->task = at - tasks->list;
			return true;
		}
	}
	return false;
}

bool perf_map_file_begin(struct perf_map_file *map, const struct guest_kernel *kernel,
			 const struct guest_view *view, uint32_t pid)
{
	struct qmp_sample look = look_of(map, kernel, view);

	*map = (struct perf_map_file){ .pid = pid };
	return look.layout->known && kernel->vmas.has_pages && kernel->tasks.known &&
	       kernel->tasks.parent && kernel->tasks.first && pid && find_process(&look) &&
	       read_program(&look, &map->started, &map->execs) && is_program(&look);
}

/* --- its file -------------------------------------------------------------------- */

/* "perf-PID.map", PID being the one in the process's own namespace. */
static bool make_name(struct qmp_sample *look, char name[NAME_SIZE])
{
	const struct perf_map_layout *layout = look->layout;
	uint32_t level, number;
	uint64_t pid;

	if (!read_u64(look, look->map->task + layout->task_pid, &pid) ||
	    !read_u32(look, pid + layout->pid_level, &level) || level > LEVELS_MAX ||
	    !read_u32(look,
		      pid + layout->pid_numbers + (uint64_t)level * layout->number_size +
			      layout->number,
		      &number))
		return false;
	snprintf(name, NAME_SIZE, "perf-%u.map", number);
	return true;
}

static bool has_name(struct qmp_sample *look, uint64_t file, const char *name)
{
	const struct guest_vma_layout *vmas = &look->kernel->vmas;
	uint64_t dentry, hash, at, length = strlen(name);
	char found[NAME_SIZE];

	return read_u64(look, file + look->layout->file_dentry, &dentry) &&
	       read_u64(look, dentry + vmas->dentry_hash, &hash) && hash >> 32 == length &&
	       read_u64(look, dentry + vmas->dentry_name, &at) &&
	       kernel_memory_read(&look->memory, at, found, length) && !memcmp(found, name, length);
}

/* Did this program open FILE, to write it from its beginning on? */
static bool is_own(struct qmp_sample *look, uint64_t file)
{
	const struct perf_map_layout *layout = look->layout;
	uint64_t own, opener;
	uint32_t mode, flags;

	return read_u32(look, file + layout->file_mode, &mode) && mode & MODE_WRITE &&
	       read_u32(look, file + layout->file_flags, &flags) && !(flags & FLAG_APPEND) &&
	       read_u64(look, look->map->task + layout->task_cred, &own) &&
	       read_u64(look, file + layout->file_cred, &opener) && opener == own;
}

/* A regular file of the user who opened it. */
static bool is_trusted(struct qmp_sample *look, uint64_t file, uint64_t inode)
{
	const struct perf_map_layout *layout = look->layout;
	uint32_t owner, user;
	uint64_t cred;
	uint16_t mode;

	return kernel_memory_read(&look->memory, inode + layout->inode_mode, &mode, sizeof(mode)) &&
	       (mode & TYPE_MASK) == TYPE_REGULAR &&
	       read_u32(look, inode + layout->inode_owner, &owner) &&
	       read_u64(look, file + layout->file_cred, &cred) &&
	       read_u32(look, cred + layout->cred_owner, &user) && owner == user;
}

/* Where the process's descriptors are, and how many of them. */
static bool find_descriptors(struct qmp_sample *look, uint64_t *slots, uint32_t *count)
{
	uint64_t files, table;

	return read_u64(look, look->map->task + look->layout->task_files, &files) &&
	       read_u64(look, files + look->layout->files_table, &table) &&
	       read_u64(look, table + look->layout->table_slots, slots) &&
	       read_u32(look, table + look->layout->table_count, count);
}

static bool find_file(struct qmp_sample *look)
{
	struct perf_map_file *map = look->map;
	uint64_t slots, file;
	uint32_t count;
	char name[NAME_SIZE];

	if (!make_name(look, name) || !find_descriptors(look, &slots, &count))
		return false;
	for (uint32_t i = 0; i < count && i < PERF_MAP_DESCRIPTORS_MAX; i++) {
		if (!read_u64(look, slots + 8ull * i, &file))
			return false;
		if (!file || !is_own(look, file) || !has_name(look, file, name) ||
		    !read_u64(look, file + look->layout->file_inode, &map->inode) ||
		    !is_trusted(look, file, map->inode))
			continue;
		map->file = file;
		map->descriptor = i;
		return true;
	}
	return false;
}

/* Has the process the file still open? While it has, its file, inode and opener's credentials are
 * what they are. */
static bool has_file(struct qmp_sample *look)
{
	const struct perf_map_file *map = look->map;
	uint64_t slots, file, inode;
	char name[NAME_SIZE];
	uint32_t count;

	return make_name(look, name) && find_descriptors(look, &slots, &count) &&
	       map->descriptor < count && read_u64(look, slots + 8ull * map->descriptor, &file) &&
	       file == map->file && is_own(look, file) && has_name(look, file, name) &&
	       read_u64(look, file + look->layout->file_inode, &inode) && inode == map->inode &&
	       is_trusted(look, file, inode);
}

/* --- what is in it ---------------------------------------------------------------- */

static bool read_bytes(struct qmp_sample *look, uint64_t offset, void *to, size_t size)
{
	return page_cache_read(&look->memory, &look->kernel->vmas, look->map->inode, offset, to,
			       size);
}

static bool has_mark(struct qmp_sample *look)
{
	const struct perf_map_file *map = look->map;
	uint8_t mark[PERF_MAP_MARK];

	return !map->mark_size ||
	       (read_bytes(look, map->offset - map->mark_size, mark, map->mark_size) &&
		!memcmp(mark, map->mark, map->mark_size));
}

/* Whole lines of SIZE bytes at TO were read. */
static size_t take_lines(struct perf_map_file *map, const uint8_t *to, size_t size)
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

/* The bytes of a file are there before its size says so; its position is behind them later still.
 */
static enum perf_map_result read_new(struct qmp_sample *look, uint8_t *to, size_t *size)
{
	struct perf_map_file *map = look->map;
	uint64_t end, position;
	size_t part, room = *size;

	*size = 0;
	if (!read_u64(look, map->inode + look->layout->inode_size, &end) ||
	    !read_u64(look, map->file + look->layout->file_position, &position))
		return PERF_MAP_UNKNOWN;
	if (end < map->offset)
		return PERF_MAP_REPLACED;
	if (position < end)
		return PERF_MAP_UNKNOWN;
	part = end - map->offset < room ? (size_t)(end - map->offset) : room;
	if (!read_bytes(look, map->offset, to, part))
		return PERF_MAP_UNKNOWN;
	if (!has_mark(look))
		return PERF_MAP_REPLACED;
	*size = part;
	return part < end - map->offset ? PERF_MAP_MORE : PERF_MAP_READ;
}

static void forget_file(struct perf_map_file *map)
{
	map->file = map->inode = map->offset = 0;
	map->mark_size = 0;
}

/* Of a program that was there before: is it so still, and were these bytes of its file? */
static enum perf_map_result check(struct qmp_sample *look, enum perf_map_result found)
{
	uint64_t end, position;

	if (!is_program(look))
		return PERF_MAP_ENDED;
	if (found == PERF_MAP_UNKNOWN || found == PERF_MAP_REPLACED)
		return found;
	if (!has_file(look))
		return PERF_MAP_REPLACED;
	return read_u64(look, look->map->inode + look->layout->inode_size, &end) &&
			       read_u64(look, look->map->file + look->layout->file_position,
					&position) &&
			       end >= look->map->offset && position >= look->map->offset
		       ? found
		       : PERF_MAP_UNKNOWN;
}

enum perf_map_result perf_map_file_read(struct perf_map_file *map,
					const struct guest_kernel *kernel,
					const struct guest_view *view, uint8_t *to, size_t *size)
{
	struct qmp_sample look = look_of(map, kernel, view);
	enum perf_map_result found;
	size_t room = *size, read = 0;

	*size = 0;
	if (!is_program(&look))
		return PERF_MAP_ENDED;
	if (map->file && !has_file(&look)) {
		forget_file(map);
		return PERF_MAP_REPLACED;
	}
	if (!map->file && !find_file(&look))
		return is_program(&look) ? PERF_MAP_NONE : PERF_MAP_ENDED;
	read = room;
	found = check(&look, read_new(&look, to, &read));
	if (found == PERF_MAP_REPLACED)
		forget_file(map);
	if (found == PERF_MAP_MORE || found == PERF_MAP_READ) {
		*size = take_lines(map, to, read);
		/* No line is as long as that. */
		if (found == PERF_MAP_MORE && !*size)
			return PERF_MAP_UNKNOWN;
	}
	return found;
}
