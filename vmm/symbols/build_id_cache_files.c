// SPDX-License-Identifier: Apache-2.0
#include "vmm/symbols/build_id_cache_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/symbols/elf_symbols.h"
#include "vmm/symbols/symbol_file.h"

int cache_path(char path[PATH_MAX], const char *first, ...)
{
	size_t used = 0;
	va_list parts;

	va_start(parts, first);
	for (const char *part = first; part; part = va_arg(parts, const char *)) {
		size_t length = strlen(part);

		if (used + length >= PATH_MAX) {
			va_end(parts);
			return error_set(-ENAMETOOLONG, "%s is too long for a build-id cache",
					 first);
		}
		memcpy(path + used, part, length + 1);
		used += length;
	}
	va_end(parts);
	return 0;
}

int cache_make_directory(const char *path)
{
	char part[PATH_MAX];
	int error = cache_path(part, path, NULL);

	if (error)
		return error;
	for (char *slash = strchr(part + 1, '/');; slash = strchr(slash + 1, '/')) {
		if (slash)
			*slash = '\0';
		if (mkdir(part, 0755) && errno != EEXIST)
			return error_set(-errno, "can't make the directory %s: %s", part,
					 strerror(errno));
		if (!slash)
			return 0;
		*slash = '/';
	}
}

int cache_file_begin(struct cache_file *file, const char *directory, const char *name, mode_t mode)
{
	int error = cache_path(file->path, directory, "/", name, NULL);

	if (!error)
		error = cache_path(file->temporary, directory, "/.kvmscope-XXXXXX", NULL);
	if (error)
		return error;
	file->fd = mkostemp(file->temporary, O_CLOEXEC);
	if (file->fd < 0)
		return error_set(-errno, "can't make a file in %s: %s", directory, strerror(errno));
	fchmod(file->fd, mode);
	return 0;
}

int cache_file_end(struct cache_file *file, int error)
{
	if (close(file->fd) && !error)
		error = error_set(-errno, "can't write %s: %s", file->path, strerror(errno));
	if (!error && rename(file->temporary, file->path))
		error = error_set(-errno, "can't put %s in place: %s", file->path, strerror(errno));
	if (error)
		unlink(file->temporary);
	return error;
}

static int write_content(struct cache_file *file, const struct bytes *content)
{
	size_t done = 0;

	while (done < content->size) {
		ssize_t written = write(file->fd, content->data + done, content->size - done);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return error_set(-errno, "can't write %s: %s", file->path, strerror(errno));
		done += (size_t)written;
	}
	return 0;
}

int cache_write_file(const char *directory, const char *name, mode_t mode,
		     const struct bytes *content)
{
	struct cache_file file;
	int error = cache_file_begin(&file, directory, name, mode);

	return error ? error : cache_file_end(&file, write_content(&file, content));
}

bool cache_file_is(const char *directory, const char *name, const struct bytes *content)
{
	char path[PATH_MAX], block[4096];
	size_t place = 0, got;
	FILE *file;

	if (cache_path(path, directory, "/", name, NULL) || !(file = fopen(path, "re")))
		return false;
	while ((got = fread(block, 1, sizeof(block), file))) {
		if (got > content->size - place || memcmp(block, content->data + place, got) != 0)
			break;
		place += got;
	}
	fclose(file);
	return !got && place == content->size;
}

bool cache_file_exists(const char *directory, const char *name)
{
	char path[PATH_MAX];
	struct stat status;

	return !cache_path(path, directory, "/", name, NULL) && !stat(path, &status) &&
	       status.st_size;
}

bool cache_file_is_outdated(const char *directory, const char *name)
{
	struct elf_kind kind;
	char path[PATH_MAX];

	return !cache_path(path, directory, "/", name, NULL) && elf_kind_of(path, &kind) &&
	       kind.symbols_only && kind.note.form < SYMBOL_FILE_FORM;
}

int cache_link_build(const char *directory, const char *entry, const char *id)
{
	char prefix[3] = { id[0], id[1], '\0' }, place[PATH_MAX], target[PATH_MAX];
	int error = cache_path(place, directory, "/.build-id/", prefix, NULL);

	if (!error)
		error = cache_make_directory(place);
	if (!error)
		error = cache_path(place, directory, "/.build-id/", prefix, "/", id + 2, NULL);
	if (!error)
		error = cache_path(target, "../../", entry, "/", id, NULL);
	if (!error && symlink(target, place) && errno != EEXIST)
		error = error_set(-errno, "can't make the link %s: %s", place, strerror(errno));
	return error;
}

void cache_id_text(const struct kernel_image *image, char text[41])
{
	*text = '\0';
	for (size_t i = 0; i < image->build_id_size && i < 20; i++)
		snprintf(text + 2 * i, 3, "%02x", image->build_id[i]);
}

bool build_id_cache_name_is_plain(const char *name)
{
	if (!*name || *name == '.')
		return false;
	for (; *name; name++)
		if (*name <= ' ' || *name >= 127 || strchr("/[]", *name))
			return false;
	return true;
}
