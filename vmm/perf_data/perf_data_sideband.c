/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/perf_data/perf_data_sideband.h"

#include <linux/perf_event.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "shared/printable.h"

static void add_header(struct bytes *to, uint32_t type, uint16_t misc)
{
	struct perf_event_header header = { .type = type, .misc = misc };

	bytes_add(to, &header, sizeof(header));
}

static void add_task(struct bytes *to, const struct sideband *record)
{
	bytes_add_u32(to, record->pid);
	bytes_add_u32(to, record->tid);
}

void perf_data_add_name(struct bytes *to, const char *name)
{
	char cleaned[SIDEBAND_SIZE_MAX];
	size_t length = strnlen(name, sizeof(cleaned) - 1);

	memcpy(cleaned, name, length);
	cleaned[length] = '\0';
	make_printable(cleaned);
	bytes_add(to, cleaned, strlen(cleaned) + 1);
	bytes_pad(to, 8);
}

/* FORK and EXIT have the same form; readers ignore the parent in an EXIT. */
static void add_fork(struct bytes *to, const struct sideband *record, uint32_t parent_pid,
		     uint32_t parent_tid)
{
	bytes_add_u32(to, record->pid);
	bytes_add_u32(to, parent_pid);
	bytes_add_u32(to, record->tid);
	bytes_add_u32(to, parent_tid);
	bytes_add_u64(to, record->time);
}

static void add_comm(struct bytes *to, const struct sideband_comm *comm, uint16_t misc)
{
	add_header(to, PERF_RECORD_COMM,
		   misc | (comm->head.flags & SIDEBAND_COMM_EXEC ? PERF_RECORD_MISC_COMM_EXEC : 0));
	add_task(to, &comm->head);
	perf_data_add_name(to, comm->comm);
}

/* 24 bytes: the build id, else the file's device and inode. */
static void add_identity(struct bytes *to, const struct sideband_mmap *mmap)
{
	if (mmap->build_id_size) {
		bytes_add_u32(to, mmap->build_id_size);
		bytes_add(to, mmap->build_id, mmap->build_id_size);
		bytes_add_zeros(to, SIDEBAND_BUILD_ID_MAX - mmap->build_id_size);
		return;
	}
	bytes_add_u32(to, mmap->major);
	bytes_add_u32(to, mmap->minor);
	bytes_add_u64(to, mmap->inode);
	bytes_add_u64(to, mmap->generation);
}

/*
 * perf reads symbols of executable anonymous memory from /tmp/perf-PID.map of its own machine
 * (tools/perf/util/map.c, map__new(): by these names, and by MAP_HUGETLB). PID is another process
 * there.
 */
static bool is_anonymous_code(const struct sideband_mmap *mmap)
{
	return mmap->prot & PROT_EXEC && sideband_is_anonymous(mmap->name, mmap->build_id_size);
}

/* perf does the same for files of memfd_create(2), by the prefix of their names: without its '/', a
 * program's file in memory is not mistaken for one. */
static const char *name_of(const struct sideband_mmap *mmap)
{
	if (is_anonymous_code(mmap))
		return "[anon]";
	return mmap->prot & PROT_EXEC && sideband_is_memfd(mmap->name) ? mmap->name + 1
								       : mmap->name;
}

static void add_mmap(struct bytes *to, const struct sideband_mmap *mmap, uint16_t misc)
{
	misc |= mmap->build_id_size ? PERF_RECORD_MISC_MMAP_BUILD_ID : 0;
	misc |= mmap->prot & PROT_EXEC ? 0 : PERF_RECORD_MISC_MMAP_DATA;
	add_header(to, PERF_RECORD_MMAP2, misc);
	add_task(to, &mmap->head);
	bytes_add_u64(to, mmap->start);
	bytes_add_u64(to, mmap->length);
	bytes_add_u64(to, mmap->offset);
	add_identity(to, mmap);
	bytes_add_u32(to, mmap->prot);
	bytes_add_u32(to, mmap->map_flags & ~(uint32_t)MAP_HUGETLB);
	perf_data_add_name(to, name_of(mmap));
}

static void add_munmap(struct bytes *to, const struct sideband_munmap *munmap, uint16_t misc)
{
	union {
		struct sideband_mmap mmap;
		char bytes[sizeof(struct sideband_mmap) + sizeof(PERF_DATA_NOTHING)];
	} nothing = {
		.mmap = { .head = munmap->head,
			  .start = munmap->start,
			  .length = munmap->length,
			  .offset = munmap->start, /* leaves addresses unchanged */
			  .prot = PROT_EXEC },
	};

	memcpy(nothing.bytes + offsetof(struct sideband_mmap, name), PERF_DATA_NOTHING,
	       sizeof(PERF_DATA_NOTHING));
	add_mmap(to, &nothing.mmap, misc);
}

bool perf_data_sideband_add(struct bytes *to, const struct sideband *record, uint16_t misc)
{
	const struct sideband_fork *fork = (const void *)record;

	switch (record->type) {
	case SIDEBAND_FORK:
		/* In a FORK this bit means that the child has not run an execve yet. */
		add_header(to, PERF_RECORD_FORK,
			   misc | (record->flags & SIDEBAND_FORK_EARLIER
					   ? PERF_RECORD_MISC_FORK_EXEC
					   : 0));
		add_fork(to, record, fork->parent_pid, fork->parent_tid);
		return true;
	case SIDEBAND_EXIT:
		add_header(to, PERF_RECORD_EXIT, misc);
		add_fork(to, record, record->pid, record->pid);
		return true;
	case SIDEBAND_COMM:
		add_comm(to, (const void *)record, misc);
		return true;
	case SIDEBAND_MMAP:
		add_mmap(to, (const void *)record, misc);
		return true;
	case SIDEBAND_MUNMAP:
		add_munmap(to, (const void *)record, misc);
		return true;
	default:
		return false;
	}
}
