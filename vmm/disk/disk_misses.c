/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/disk/disk_misses.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/hash.h"
#include "shared/read_file.h"
#include "vmm/symbols/build_id_cache_files.h"
#include "vmm/symbols/elf_file.h"

#define DAY_S 86400
/* Several times the builds of one recording. */
#define TEXT_MAX ((size_t)1 << 20)

/* Hashes the paths with their NULs. */
static uint64_t hash_disks(const char *const *disks, size_t count)
{
	uint64_t hash = HASH_START;

	for (size_t i = 0; i < count; i++)
		hash = hash_add_bytes(hash, disks[i], strlen(disks[i]) + 1);
	return hash;
}

static void read_text(struct bytes *text, const char *directory)
{
	char path[PATH_MAX], *content;
	size_t size;
	int fd;

	if (cache_path(path, directory, "/" DISK_MISSES_FILE, NULL))
		return;
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return;
	if (!read_descriptor(fd, TEXT_MAX, &content, &size)) {
		bytes_add(text, content, size);
		free(content);
	}
	close(fd);
}

/* True if TEXT is about these disks and from the last day. */
static bool is_valid(const struct bytes *text, uint64_t disks)
{
	const char *end = text->size ? memchr(text->data, '\n', text->size) : NULL;
	uint64_t theirs;
	int64_t since, now = time(NULL);
	char head[64];

	if (!end || (size_t)(end - (const char *)text->data) >= sizeof(head) || text->failed)
		return false;
	snprintf(head, sizeof(head), "%.*s", (int)(end - (const char *)text->data), text->data);
	return sscanf(head, "since %" SCNd64 " %" SCNx64, &since, &theirs) == 2 &&
	       theirs == disks && since <= now && now - since < DAY_S;
}

void disk_misses_read(struct disk_misses *misses, const char *directory, const char *const *disks,
		      size_t count)
{
	uint64_t hash = hash_disks(disks, count);
	char head[64];
	int length;

	*misses = (struct disk_misses){ 0 };
	read_text(&misses->text, directory);
	if (is_valid(&misses->text, hash))
		return;
	misses->text.size = 0;
	length = snprintf(head, sizeof(head), "since %lld %" PRIx64 "\n", (long long)time(NULL),
			  hash);
	bytes_add(&misses->text, head, (size_t)length);
}

/* "\nHEX\n"; returns its length. */
static size_t make_line(char line[2 * ELF_BUILD_ID_MAX + 3], struct span build_id)
{
	size_t length = 0;

	line[length++] = '\n';
	for (size_t i = 0; i < build_id.size && i < ELF_BUILD_ID_MAX; i++)
		length += (size_t)snprintf(line + length, 3, "%02x", build_id.data[i]);
	line[length++] = '\n';
	line[length] = '\0';
	return length;
}

bool disk_misses_has(const struct disk_misses *misses, struct span build_id)
{
	char line[2 * ELF_BUILD_ID_MAX + 3];
	size_t length = make_line(line, build_id);

	return misses->text.size && memmem(misses->text.data, misses->text.size, line, length);
}

void disk_misses_add(struct disk_misses *misses, struct span build_id)
{
	char line[2 * ELF_BUILD_ID_MAX + 3];
	size_t length = make_line(line, build_id);

	if (misses->text.size + length > TEXT_MAX || disk_misses_has(misses, build_id))
		return;
	bytes_add(&misses->text, line + 1, length - 1);
	misses->changed = true;
}

int disk_misses_write(struct disk_misses *misses, const char *directory)
{
	int error = misses->text.failed
			    ? error_set(-ENOMEM, "no memory for the builds not on disks")
			    : 0;

	if (!error && misses->changed)
		error = cache_write_file(directory, DISK_MISSES_FILE, CACHE_MODE_OF_BOOT,
					 &misses->text);
	free(misses->text.data);
	*misses = (struct disk_misses){ 0 };
	return error;
}
