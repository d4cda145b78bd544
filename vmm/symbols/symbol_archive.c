/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/symbol_archive.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "shared/error.h"
#include "vmm/symbols/build_id_cache_files.h"
#include "vmm/symbols/symbol_archive_format.h"

/* Recordings differ in these bytes: they begin with the time of their start. */
#define IDENTIFIED_BYTES 65536

struct symbol_archive {
	const struct cache_file *file;
	gzFile to;
	uint64_t bytes;
	unsigned int files;
};

unsigned int tar_checksum(const struct tar_header *header)
{
	const unsigned char *bytes = (const unsigned char *)header;
	unsigned int sum = 0;

	for (size_t i = 0; i < sizeof(*header); i++)
		sum += i >= offsetof(struct tar_header, checksum) &&
				       i < offsetof(struct tar_header, type)
			       ? ' '
			       : bytes[i];
	return sum;
}

int recording_identity(char text[RECORDING_TEXT_MAX], const char *input)
{
	static unsigned char bytes[IDENTIFIED_BYTES];
	FILE *file = fopen(input, "re");
	struct stat status;
	size_t size;

	if (!file || fstat(fileno(file), &status) || !S_ISREG(status.st_mode)) {
		if (file)
			fclose(file);
		return error_set(-EINVAL, "cannot read %s: %s", input,
				 file ? "it is not a regular file" : strerror(errno));
	}
	size = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	snprintf(text, RECORDING_TEXT_MAX, "%" PRIu64 " %08lx\n", (uint64_t)status.st_size,
		 crc32(0, bytes, (uInt)size));
	return 0;
}

static int write_bytes(struct symbol_archive *archive, const void *bytes, size_t size)
{
	if (!size || gzwrite(archive->to, bytes, (unsigned int)size) == (int)size)
		return 0;
	return error_set(errno ? -errno : -EIO, "cannot write %s: %s", archive->file->path,
			 errno ? strerror(errno) : "compression failed");
}

static int write_header(struct symbol_archive *archive, const char *name, char type, uint64_t size,
			const char *link)
{
	struct tar_header header = { .mode = "0000600",
				     .uid = "0000000",
				     .gid = "0000000",
				     .time = "00000000000",
				     .type = type,
				     .magic = "ustar",
				     .version = { '0', '0' } };

	if (strlen(name) >= sizeof(header.name) || strlen(link) >= sizeof(header.link))
		return error_set(-ENAMETOOLONG, "%s is too long for an archive", name);
	memcpy(header.name, name, strlen(name));
	memcpy(header.link, link, strlen(link));
	snprintf(header.size, sizeof(header.size), "%011" PRIo64, size);
	snprintf(header.checksum, sizeof(header.checksum), "%06o", tar_checksum(&header));
	header.checksum[7] = ' ';
	return write_bytes(archive, &header, sizeof(header));
}

static int write_padding(struct symbol_archive *archive, uint64_t size)
{
	static const char zeros[2 * TAR_BLOCK];

	return write_bytes(archive, zeros, (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

static int add_text(struct symbol_archive *archive, const char *name, const char *text)
{
	int error = write_header(archive, name, TAR_FILE, strlen(text), "");

	if (!error)
		error = write_bytes(archive, text, strlen(text));
	return error ? error : write_padding(archive, strlen(text));
}

static int split(const char *path, char directory[PATH_MAX], const char **name)
{
	const char *slash = strrchr(path, '/');

	*name = slash ? slash + 1 : path;
	if (!slash)
		return cache_path(directory, ".", NULL);
	if (snprintf(directory, PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash - path), path) >=
	    PATH_MAX)
		return error_set(-ENAMETOOLONG, "%s is too long", path);
	return 0;
}

int symbol_archive_open(struct cache_file *file, const char *path)
{
	char directory[PATH_MAX];
	const char *name;
	int error = split(path, directory, &name);

	return error ? error : cache_file_begin(file, directory, name, CACHE_MODE_OF_BOOT);
}

static int open_stream(struct symbol_archive *archive)
{
	int fd = fcntl(archive->file->fd, F_DUPFD_CLOEXEC, 0);

	archive->to = fd < 0 ? NULL : gzdopen(fd, "wb6");
	if (archive->to)
		return 0;
	if (fd >= 0)
		close(fd);
	return error_set(-ENOMEM, "no memory for an archive");
}

int symbol_archive_create(struct symbol_archive **created, const struct cache_file *file,
			  const char *input)
{
	struct symbol_archive *archive = calloc(1, sizeof(*archive));
	char identity[RECORDING_TEXT_MAX];
	int error = archive ? recording_identity(identity, input)
			    : error_set(-ENOMEM, "no memory for an archive");

	if (!error) {
		archive->file = file;
		error = open_stream(archive);
	}
	if (error) {
		free(archive);
		return error;
	}
	error = add_text(archive, RECORDING_ENTRY, identity);
	if (error)
		return symbol_archive_close(archive, error, NULL);
	*created = archive;
	return 0;
}

static int copy_content(struct symbol_archive *archive, FILE *file, const char *from, uint64_t size)
{
	static char bytes[1 << 16];
	int error = 0;

	for (uint64_t left = size; left && !error;) {
		size_t part = left < sizeof(bytes) ? left : sizeof(bytes);

		if (fread(bytes, 1, part, file) != part)
			return error_set(-EIO, "%s became shorter while it was read", from);
		error = write_bytes(archive, bytes, part);
		left -= part;
	}
	return error ? error : write_padding(archive, size);
}

static int add_open_file(struct symbol_archive *archive, const char *name, FILE *file,
			 const char *from)
{
	struct stat status;
	uint64_t size;
	int error;

	if (fstat(fileno(file), &status) || !S_ISREG(status.st_mode))
		return error_set(-EINVAL, "%s is not a regular file", from);
	size = (uint64_t)status.st_size;
	if (size > SYMBOL_ARCHIVE_SIZE_MAX - archive->bytes ||
	    archive->files == SYMBOL_ARCHIVE_FILES_MAX)
		return error_set(-EFBIG, "%s does not fit into an archive of %llu MiB and %u files",
				 from, SYMBOL_ARCHIVE_SIZE_MAX >> 20, SYMBOL_ARCHIVE_FILES_MAX);
	archive->bytes += size;
	archive->files++;
	error = write_header(archive, name, TAR_FILE, size, "");
	return error ? error : copy_content(archive, file, from, size);
}

/* .build-id/ab/cdef -> ../../ENTRY/abcdef. A second one of the same build changes nothing. */
static int add_link(struct symbol_archive *archive, const char *entry, const char *id)
{
	char name[sizeof(((struct tar_header *)0)->name) + 1], target[sizeof(name)];

	snprintf(name, sizeof(name), ".build-id/%.2s/%s", id, id + 2);
	snprintf(target, sizeof(target), "../../%s/%s", entry, id);
	return write_header(archive, name, TAR_LINK, 0, target);
}

int symbol_archive_add(struct symbol_archive *archive, const char *entry, const char *id,
		       const char *name, const char *from)
{
	FILE *file = fopen(from, "re");
	char path[PATH_MAX];
	int error;

	if (!file)
		return error_set(-errno, "cannot open %s: %m", from);
	error = cache_path(path, entry, "/", id, "/", name, NULL);
	if (!error)
		error = add_open_file(archive, path, file, from);
	fclose(file);
	/* The files of boots are found by their directory. */
	return error || strchr(name, '/') ? error : add_link(archive, entry, id);
}

int symbol_archive_close(struct symbol_archive *archive, int error, uint64_t *size)
{
	static const char end[2 * TAR_BLOCK];
	struct stat status = { 0 };
	int close_error;

	if (!error)
		error = write_bytes(archive, end, sizeof(end));
	close_error = gzclose(archive->to);
	if (close_error && !error)
		error = error_set(-EIO, "cannot write %s: %s", archive->file->path,
				  close_error == Z_ERRNO ? strerror(errno) : "compression failed");
	if (size && !fstat(archive->file->fd, &status))
		*size = (uint64_t)status.st_size;
	free(archive);
	return error;
}
