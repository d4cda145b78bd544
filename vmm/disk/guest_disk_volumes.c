// SPDX-License-Identifier: Apache-2.0
#include "vmm/disk/guest_disk_volumes.h"

#include <stdbool.h>
#include <string.h>

#define TYPE "Filesystem type "

struct line {
	const char *text;
	size_t size;
};

static bool skip(struct line *line, const char *start)
{
	size_t size = strlen(start);

	if (line->size < size || memcmp(line->text, start, size) != 0)
		return false;
	line->text += size;
	line->size -= size;
	return true;
}

/* Letters, digits and some signs: nothing that would end a name for GRUB. */
static size_t name_size(const struct line *line)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789,/_.+-";
	size_t size = 0;

	while (size < line->size && line->text[size] && strchr(plain, line->text[size]))
		size++;
	return size;
}

/* "Device loop0: Filesystem type ext* - ...", "\tPartition loop0,gpt2: Filesystem type xfs - ...".
 */
static bool take_volume(struct line line, char *name)
{
	const char *start;
	size_t size;

	if (!skip(&line, "Device ") && !skip(&line, "\tPartition "))
		return false;
	start = line.text;
	size = name_size(&line);
	if (!size || size >= GUEST_DISK_VOLUME_SIZE)
		return false;
	line.text += size;
	line.size -= size;
	if (!skip(&line, ": " TYPE) ||
	    (!skip(&line, "ext") && !skip(&line, "xfs") && !skip(&line, "btrfs")))
		return false;
	memcpy(name, start, size);
	name[size] = '\0';
	return true;
}

void guest_disk_volumes_read(struct guest_disk_volumes *volumes, const char *listing, size_t size)
{
	const char *end = listing + size;

	volumes->count = 0;
	while (listing < end && volumes->count < GUEST_DISK_VOLUMES_MAX) {
		const char *newline = memchr(listing, '\n', (size_t)(end - listing));
		struct line line = { listing, (size_t)((newline ? newline : end) - listing) };

		if (take_volume(line, volumes->names[volumes->count]))
			volumes->count++;
		listing = newline ? newline + 1 : end;
	}
}
