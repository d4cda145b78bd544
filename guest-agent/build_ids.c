/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-agent/build_ids.h"

#include <linux/perf_event.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "guest-agent/timing.h"
#include "shared/agent_protocol.h"

/* Slots of the cache, which is direct-mapped. */
#define SLOTS 1024

/* A file changed less than this ago is not cached: it may change again with the same timestamp, as
 * file systems count in ticks.
 */
#define SETTLED_S 2

struct known_file {
	dev_t device;
	ino_t inode;
	off_t size;
	struct timespec changed;
	uint8_t build_id_size; /* 0: it has none */
	uint8_t build_id[BUILD_ID_MAX];
};

static struct known_file files[SLOTS];

/* Token bucket for reads, in 1/1000, and the time of its last update (ms). */
static uint64_t allowed = BUILD_IDS_BURST * 1000ull, allowed_at;

static bool may_read(void)
{
	uint64_t now = clock_raw_ms();

	allowed += (now - allowed_at) * BUILD_IDS_RATE;
	allowed_at = now;
	if (allowed > BUILD_IDS_BURST * 1000ull)
		allowed = BUILD_IDS_BURST * 1000ull;
	if (allowed < 1000)
		return false;
	allowed -= 1000;
	return true;
}

static struct known_file *slot_of(const struct stat *status)
{
	uint64_t hash = (status->st_ino ^ (uint64_t)status->st_dev << 40) * 0x9e3779b97f4a7c15ull;

	return &files[hash >> 32 & (SLOTS - 1)];
}

static bool is_same(const struct known_file *file, const struct stat *status)
{
	return file->inode == status->st_ino && file->device == status->st_dev &&
	       file->size == status->st_size && file->changed.tv_sec == status->st_ctim.tv_sec &&
	       file->changed.tv_nsec == status->st_ctim.tv_nsec;
}

static void cache(const struct stat *status, const uint8_t *build_id, size_t size)
{
	struct known_file *file = slot_of(status);

	if (time(NULL) < status->st_ctim.tv_sec + SETTLED_S)
		return;
	*file = (struct known_file){
		.device = status->st_dev,
		.inode = status->st_ino,
		.size = status->st_size,
		.changed = status->st_ctim,
		.build_id_size = (uint8_t)size,
	};
	memcpy(file->build_id, build_id, size);
}

/* Reads the file that FOUND names, and closes FOUND. */
static size_t read_mapped_file(int found, const struct stat *status, uint8_t *build_id)
{
	int fd = mapped_file_read(found);
	size_t size;

	if (fd < 0)
		return 0;
	size = build_id_read(fd, build_id);
	close(fd);
	cache(status, build_id, size);
	return size;
}

static size_t copy_known(const struct known_file *known, uint8_t *build_id)
{
	memcpy(build_id, known->build_id, known->build_id_size);
	return known->build_id_size;
}

size_t build_ids_find(const struct mapped_file *mapping, uint8_t build_id[BUILD_ID_MAX])
{
	const struct known_file *known;
	struct stat status;
	int found;

	/* Usually the file is cached and at its path. The other ways are slower, as they create
	 * files in /proc. */
	if (mapped_file_is_at_path(mapping, &status) && is_same(slot_of(&status), &status))
		return copy_known(slot_of(&status), build_id);
	found = mapped_file_find(mapping, &status);
	if (found < 0)
		return 0;
	known = slot_of(&status);
	if (!is_same(known, &status) && may_read())
		return read_mapped_file(found, &status, build_id);
	close(found);
	if (!is_same(known, &status))
		return 0;
	return copy_known(known, build_id);
}

void build_ids_add(uint8_t *record)
{
	struct perf_event_header header;
	struct mapped_file file;
	struct agent_mmap2 mapping;
	uint8_t build_id[BUILD_ID_MAX];
	size_t size;

	memcpy(&header, record, sizeof(header));
	if (header.type != PERF_RECORD_MMAP2)
		return;
	header.misc &= (uint16_t)~PERF_RECORD_MISC_MMAP_BUILD_ID;
	memcpy(record, &header, sizeof(header));
	memcpy(&mapping, record + sizeof(header), sizeof(mapping));
	if (!(mapping.prot & PROT_EXEC) || !mapping.inode)
		return;
	file = (struct mapped_file){
		.pid = (pid_t)mapping.pid,
		.start = mapping.start,
		.end = mapping.start + mapping.size,
		.major = mapping.major,
		.minor = mapping.minor,
		.inode = mapping.inode,
		.path = (const char *)record + sizeof(header) + sizeof(mapping),
	};
	size = build_ids_find(&file, build_id);
	if (!size)
		return;
	memset(mapping.build_id, 0, sizeof(mapping.build_id));
	memcpy(mapping.build_id, build_id, size);
	mapping.build_id_size = (uint8_t)size;
	memset(mapping.reserved, 0, sizeof(mapping.reserved));
	header.misc |= PERF_RECORD_MISC_MMAP_BUILD_ID;
	memcpy(record, &header, sizeof(header));
	memcpy(record + sizeof(header), &mapping, sizeof(mapping));
}
