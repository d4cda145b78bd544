/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/build_id_cache_files.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "shared/read_file.h"
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
			return error_set(-errno, "cannot create the directory %s: %m", part);
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
		return error_set(-errno, "cannot create a file in %s: %m", directory);
	fchmod(file->fd, mode);
	return 0;
}

int cache_file_end(struct cache_file *file, int error)
{
	if (close(file->fd) && !error)
		error = error_set(-errno, "cannot write %s: %m", file->path);
	if (!error && rename(file->temporary, file->path))
		error = error_set(-errno, "cannot rename a file to %s: %m", file->path);
	if (error)
		unlink(file->temporary);
	return error;
}

int cache_write_file(const char *directory, const char *name, mode_t mode,
		     const struct bytes *content)
{
	struct cache_file file;
	int error = cache_file_begin(&file, directory, name, mode);

	if (error)
		return error;
	error = write_descriptor(file.fd, content->data, content->size);
	if (error)
		error_set(error, "cannot write %s: %s", file.path, strerror(-error));
	return cache_file_end(&file, error);
}

bool cache_file_is(const char *directory, const char *name, const struct bytes *content)
{
	char path[PATH_MAX], block[4096];
	size_t offset = 0, got;
	FILE *file;

	if (cache_path(path, directory, "/", name, NULL) || !(file = fopen(path, "re")))
		return false;
	while ((got = fread(block, 1, sizeof(block), file))) {
		if (got > content->size - offset || memcmp(block, content->data + offset, got) != 0)
			break;
		offset += got;
	}
	fclose(file);
	return !got && offset == content->size;
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
	char prefix[3] = { id[0], id[1], '\0' }, path[PATH_MAX], target[PATH_MAX];
	int error = cache_path(path, directory, "/.build-id/", prefix, NULL);

	if (!error)
		error = cache_make_directory(path);
	if (!error)
		error = cache_path(path, directory, "/.build-id/", prefix, "/", id + 2, NULL);
	if (!error)
		error = cache_path(target, "../../", entry, "/", id, NULL);
	if (!error && symlink(target, path) && errno != EEXIST)
		error = error_set(-errno, "cannot create the link %s: %m", path);
	return error;
}

void cache_id_text(struct span build_id, char text[41])
{
	*text = '\0';
	for (size_t i = 0; i < build_id.size && i < 20; i++)
		snprintf(text + 2 * i, 3, "%02x", build_id.data[i]);
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

/* perf's configuration (perf-config(1), buildid.dir). */

#define SYSTEM_CONFIGURATION "/etc/perfconfig"

static char *trim(char *text)
{
	char *end;

	while (isspace((unsigned char)*text))
		text++;
	end = text + strlen(text);
	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return text;
}

/* Comments start at # or ;. */
static char *strip(char *line)
{
	line[strcspn(line, "#;")] = '\0';
	return trim(line);
}

static void unquote(char *value)
{
	size_t length = strlen(value);

	if (length < 2 || value[0] != '"' || value[length - 1] != '"')
		return;
	memmove(value, value + 1, length - 2);
	value[length - 2] = '\0';
}

/* "~/" means the home directory, as in git's configuration. */
static void read_value(char *value, char *path, size_t size)
{
	const char *home = getenv("HOME");

	unquote(value);
	if (!strncmp(value, "~/", 2) && home)
		snprintf(path, size, "%s%s", home, value + 1);
	else
		snprintf(path, size, "%s", value);
}

static void read_line(char *line, bool *in_section, char *path, size_t size)
{
	char *text = strip(line), *equals = strchr(text, '=');

	if (*text == '[') {
		*in_section = !strncasecmp(text, "[buildid]", 9);
		return;
	}
	if (!*in_section || !equals)
		return;
	*equals = '\0';
	if (!strcasecmp(trim(text), "dir"))
		read_value(trim(equals + 1), path, size);
}

static bool is_trusted(uid_t owner)
{
	return !owner || owner == geteuid();
}

/* The same rule as perf's (tools/perf/util/config.c): it decides where root writes. */
static bool may_read(FILE *file, const char *path)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;
	struct stat status;

	if (fstat(fileno(file), &status))
		return false;
	if (is_trusted(status.st_uid))
		return true;
	if (!atomic_flag_test_and_set(&warned))
		log_warning("%s is ignored: it belongs to user %u", path, status.st_uid);
	return false;
}

/* The last value wins; a missing file is empty, and so is one of another user. */
static void read_configuration(const char *file, char *path, size_t size)
{
	char line[PATH_MAX + 64];
	bool in_section = false;
	FILE *from = fopen(file, "re");

	if (!from)
		return;
	if (may_read(from, file))
		while (fgets(line, sizeof(line), from))
			read_line(line, &in_section, path, size);
	fclose(from);
}

int build_id_cache_open(const struct build_id_cache_location *location, char *path, size_t size)
{
	if (!location)
		return build_id_cache_directory(path, size);
	return snprintf(path, size, "%s", location->directory) < (int)size
		       ? 0
		       : error_set(-ENAMETOOLONG, "%s is too long for a build-id cache",
				   location->directory);
}

/* A user who can rename PATH, or has created it as a link, decides where root writes. */
static int check_owner(const char *path)
{
	struct stat link, target;
	uid_t owner;

	if (lstat(path, &link) || stat(path, &target)) /* will be created */
		return 0;
	owner = is_trusted(link.st_uid) ? target.st_uid : link.st_uid;
	return is_trusted(owner)
		       ? 0
		       : error_set(-EPERM,
				   "no build-id cache: %s belongs to user %u (set HOME to your own "
				   "home directory, or use --no-buildid-cache)",
				   path, owner);
}

static int find_default(const char *home, char *path, size_t size)
{
	int error;

	if (!home || !*home)
		return error_set(
			-ENOENT,
			"no build-id cache: HOME is not set (set it, or use --no-buildid-cache)");
	if (snprintf(path, size, "%s/.debug", home) >= (int)size)
		return error_set(-ENAMETOOLONG, "HOME is too long for a build-id cache");
	error = check_owner(home);
	return error ? error : check_owner(path);
}

int build_id_cache_directory(char *path, size_t size)
{
	const char *only = getenv("PERF_CONFIG"), *home = getenv("HOME");
	char own[PATH_MAX];

	*path = '\0';
	if (only) {
		read_configuration(only, path, size);
	} else {
		read_configuration(SYSTEM_CONFIGURATION, path, size);
		if (home && snprintf(own, sizeof(own), "%s/.perfconfig", home) < (int)sizeof(own))
			read_configuration(own, path, size);
	}
	return *path ? 0 : find_default(home, path, size);
}
