/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/symbol_archive.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "shared/error.h"
#include "shared/read_file.h"
#include "vmm/symbols/build_id_cache_files.h"
#include "vmm/symbols/symbol_archive_format.h"

/* tar writes 20 blocks at a time. */
#define PADDING_BLOCKS_MAX 40

struct unpacking {
	const char *path, *directory;
	gzFile from;
	uint64_t bytes; /* of all entries so far */
	unsigned int entries;
};

/* ENTRY/ID/NAME or ENTRY/ID/BOOT/NAME. */
struct entry_name {
	char text[101];
	char *entry, *id, *boot, *name; /* BOOT may be NULL */
};

static int broken(const struct unpacking *unpacking, const char *why)
{
	return error_set(-EINVAL, "%s is not an archive of symbols: %s", unpacking->path, why);
}

static bool is_plain(const char *part)
{
	if (!*part || *part == '.')
		return false;
	for (; *part; part++)
		if (*part <= ' ' || *part >= 127)
			return false;
	return true;
}

static bool is_id(const char *text)
{
	size_t length = strspn(text, "0123456789abcdef");

	return length > 2 && length <= 40 && !text[length];
}

/* False: not a name that the writer of archives gives. */
static bool split_name(struct entry_name *name, const struct tar_header *header)
{
	char *rest = NULL, *part[4] = { NULL };
	size_t count = 0;

	snprintf(name->text, sizeof(name->text), "%.100s", header->name);
	for (char *text = strtok_r(name->text, "/", &rest); text;
	     text = strtok_r(NULL, "/", &rest)) {
		if (count == 4 || !is_plain(text))
			return false;
		part[count++] = text;
	}
	if (count < 3 || !is_id(part[1]))
		return false;
	name->entry = part[0];
	name->id = part[1];
	name->boot = count == 4 ? part[2] : NULL;
	name->name = part[count - 1];
	return true;
}

/* Only symbols are needed here. */
static bool is_wanted(struct entry_name *name, const struct tar_header *header)
{
	return header->type == TAR_FILE && split_name(name, header) && strcmp(name->name, "kcore");
}

static int read_bytes(const struct unpacking *unpacking, void *to, size_t size)
{
	int got = gzread(unpacking->from, to, (unsigned int)size);

	return got == (int)size ? 0 : broken(unpacking, "it ends too early, or is damaged");
}

/* Copies the entry's content with its padding to FD, or skips it if FD is -1. */
static int copy_content(const struct unpacking *unpacking, uint64_t size, int fd)
{
	static char bytes[128 * TAR_BLOCK];
	int error = 0;

	while (size && !error) {
		size_t part = size < sizeof(bytes) ? size : sizeof(bytes);

		error = read_bytes(unpacking, bytes,
				   (part + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK);
		if (!error && fd >= 0 && (error = write_descriptor(fd, bytes, part)))
			error_set(error, "cannot unpack %s: %s", unpacking->path, strerror(-error));
		size -= part;
	}
	return error;
}

static int unpack_file(const struct unpacking *unpacking, const struct entry_name *name,
		       uint64_t size)
{
	char directory[PATH_MAX], path[PATH_MAX];
	int error = cache_path(directory, unpacking->directory, "/", name->entry, "/", name->id,
			       name->boot ? "/" : "", name->boot ? name->boot : "", NULL);
	int fd;

	if (!error)
		error = cache_path(path, directory, "/", name->name, NULL);
	if (!error)
		error = cache_make_directory(directory);
	if (error)
		return error;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_set(-errno, "cannot create %s: %m", path);
	error = copy_content(unpacking, size, fd);
	close(fd);
	if (!error && !name->boot)
		error = cache_link_build(unpacking->directory, name->entry, name->id);
	return error;
}

/* True for an empty block, which ends the archive. */
static bool is_end(const struct tar_header *header)
{
	const char *bytes = (const char *)header;

	for (size_t i = 0; i < sizeof(*header); i++)
		if (bytes[i])
			return false;
	return true;
}

static int read_header(struct unpacking *unpacking, struct tar_header *header, uint64_t *size)
{
	char digits[sizeof(header->size) + 1];
	int error = read_bytes(unpacking, header, sizeof(*header));

	*size = 0;
	if (error || is_end(header))
		return error;
	snprintf(digits, sizeof(digits), "%.8s", header->checksum);
	if (strtoul(digits, NULL, 8) != tar_checksum(header))
		return broken(unpacking, "an entry has a wrong checksum");
	snprintf(digits, sizeof(digits), "%.12s", header->size);
	*size = header->type == TAR_FILE ? strtoull(digits, NULL, 8) : 0;
	if (*size > SYMBOL_ARCHIVE_SIZE_MAX - unpacking->bytes ||
	    unpacking->entries++ > 3 * SYMBOL_ARCHIVE_FILES_MAX)
		return error_set(-EFBIG, "%s has more than %llu MiB or %u files", unpacking->path,
				 SYMBOL_ARCHIVE_SIZE_MAX >> 20, SYMBOL_ARCHIVE_FILES_MAX);
	unpacking->bytes += *size;
	return 0;
}

static int check_identity(struct unpacking *unpacking, const char *input)
{
	char wanted[RECORDING_TEXT_MAX], block[TAR_BLOCK];
	struct tar_header header;
	uint64_t size;
	int error = recording_identity(wanted, input);

	if (!error)
		error = read_header(unpacking, &header, &size);
	if (!error && (strncmp(header.name, RECORDING_ENTRY, sizeof(header.name)) != 0 || !size ||
		       size > RECORDING_TEXT_MAX))
		return broken(unpacking, "it has no recording");
	if (!error)
		error = read_bytes(unpacking, block, sizeof(block));
	if (!error && (size != strlen(wanted) || memcmp(block, wanted, size) != 0))
		return error_set(-ESTALE, "%s is of another recording than %s", unpacking->path,
				 input);
	return error;
}

static int unpack_entries(struct unpacking *unpacking)
{
	struct tar_header header;
	struct entry_name name;
	uint64_t size;
	int error;

	while (!(error = read_header(unpacking, &header, &size)) && !is_end(&header)) {
		error = is_wanted(&name, &header) ? unpack_file(unpacking, &name, size)
						  : copy_content(unpacking, size, -1);
		if (error)
			break;
	}
	return error;
}

/* Reads the padding at the end, after which a whole file has its checksum. */
static void skip_padding(const struct unpacking *unpacking)
{
	char block[TAR_BLOCK];

	for (unsigned int i = 0; i < PADDING_BLOCKS_MAX; i++)
		if (gzread(unpacking->from, block, sizeof(block)) <= 0)
			return;
}

int symbol_archive_unpack(const char *path, const char *input, const char *directory)
{
	struct unpacking unpacking = { .path = path, .directory = directory };
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), error;

	if (fd < 0)
		return error_set(-errno, "cannot open %s: %m", path);
	unpacking.from = gzdopen(fd, "rb");
	if (!unpacking.from) {
		close(fd);
		return error_set(-ENOMEM, "no memory to read %s", path);
	}
	error = check_identity(&unpacking, input);
	if (!error)
		error = unpack_entries(&unpacking);
	if (!error)
		skip_padding(&unpacking);
	if (gzclose(unpacking.from) && !error)
		error = broken(&unpacking, "it ends too early, or is damaged");
	return error;
}
