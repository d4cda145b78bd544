/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shared/bytes.h"
#include "shared/clock_ns.h"
#include "vmm/symbols/build_id_cache.h"
#include "vmm/symbols/build_id_cache_files.h"
#include "vmm/symbols/elf_file.h"
#include "vmm/symbols/elf_symbols.h"

struct entry {
	char id[41];
	char directory[PATH_MAX]; /* of the file */
	char link[PATH_MAX];
};

static int find_entry(const char *directory, struct span build_id, struct entry *entry)
{
	char prefix[3];
	int error;

	cache_id_text(build_id, entry->id);
	snprintf(prefix, sizeof(prefix), "%.2s", entry->id);
	error = cache_path(entry->directory, directory, "/" BUILD_ID_CACHE_IMAGES "/", entry->id,
			   NULL);
	return error ? error
		     : cache_path(entry->link, directory, "/.build-id/", prefix, "/", entry->id + 2,
				  NULL);
}

/* The path of the build's file, ours or perf's. */
static bool find_file(const char *directory, struct span build_id, struct entry *entry,
		      char path[PATH_MAX])
{
	return !find_entry(directory, build_id, entry) &&
	       !cache_path(path, entry->link, "/elf", NULL);
}

/* True if the link leads to our directory. */
static bool is_ours(const struct entry *entry)
{
	struct stat own, linked;

	return !stat(entry->directory, &own) && !stat(entry->link, &linked) &&
	       own.st_dev == linked.st_dev && own.st_ino == linked.st_ino;
}

/* True for a file of an earlier kvmscope, which may have wrong symbols. */
static bool is_outdated(const struct entry *entry)
{
	return is_ours(entry) && cache_file_is_outdated(entry->directory, "elf");
}

bool build_id_cache_has_image(const char *directory, struct span build_id)
{
	struct entry entry;

	return !find_entry(directory, build_id, &entry) && cache_file_exists(entry.link, "elf") &&
	       !is_outdated(&entry);
}

/* True if this is the original file, and not a symbol file: no other source has more. */
static bool is_original(const char *path)
{
	struct elf_segments segments;
	struct elf_file file;
	struct stat status;
	bool has;

	if (elf_file_open(&file, path))
		return false;
	elf_file_segments(&file, &segments);
	has = segments.count && !fstat(file.fd, &status);
	for (size_t i = 0; has && i < segments.count; i++)
		has = segments.loaded[i].p_filesz <= (uint64_t)status.st_size &&
		      segments.loaded[i].p_offset <=
			      (uint64_t)status.st_size - segments.loaded[i].p_filesz;
	elf_file_close(&file);
	return has;
}

bool build_id_cache_has_whole_image(const char *directory, struct span build_id)
{
	struct entry entry;
	struct elf_kind kind;
	char path[PATH_MAX];

	return find_file(directory, build_id, &entry, path) && !is_outdated(&entry) &&
	       ((elf_kind_of(path, &kind) && kind.all) || is_original(path));
}

void build_id_cache_touch(const char *directory, struct span build_id)
{
	struct entry entry;

	if (!find_entry(directory, build_id, &entry))
		utimensat(AT_FDCWD, entry.link, NULL, 0);
}

bool build_id_cache_image_is_stripped(const char *directory, struct span build_id, bool *ours)
{
	struct entry entry;
	struct elf_kind kind;
	char path[PATH_MAX];

	if (!find_file(directory, build_id, &entry, path) || !elf_kind_of(path, &kind) || kind.all)
		return false;
	*ours = is_ours(&entry);
	return true;
}

bool build_id_cache_image_is_exhausted(const char *directory, struct span build_id, time_t seconds)
{
	struct entry entry;
	struct stat status;
	struct elf_kind kind;
	char path[PATH_MAX];

	return find_file(directory, build_id, &entry, path) && !is_outdated(&entry) &&
	       elf_kind_of(path, &kind) && kind.note.exhausted && !stat(path, &status) &&
	       time(NULL) - status.st_mtim.tv_sec < seconds;
}

/* The time distinguishes it from a removed file whose inode it reuses. */
uint64_t build_id_cache_image_stamp(const char *directory, struct span build_id)
{
	struct entry entry;
	struct stat status;
	char path[PATH_MAX];

	if (find_entry(directory, build_id, &entry) ||
	    cache_path(path, entry.directory, "/elf", NULL) || stat(path, &status))
		return 0;
	return (uint64_t)status.st_ino ^
	       ((uint64_t)status.st_mtim.tv_sec * NS_PER_S + (uint64_t)status.st_mtim.tv_nsec) << 8;
}

static size_t count_symbols(const char *path)
{
	struct symbols *symbols;
	size_t count;

	if (elf_symbols_load(&symbols, path, ELF_FILE_OFFSETS, (struct span){ 0 }))
		return 0;
	count = symbols_count(symbols);
	symbols_free(symbols);
	return count;
}

/* True if replacing the current file by FILE would lose symbols. */
static bool has_fewer_symbols(const struct bytes *file, const struct entry *entry)
{
	char there[PATH_MAX], path[BYTES_PATH_SIZE];
	size_t count = cache_path(there, entry->link, "/elf", NULL) ? 0 : count_symbols(there);
	int fd = count ? bytes_open_file(file, path) : -1;
	bool fewer = count && (fd < 0 || count_symbols(path) < count);

	if (fd >= 0)
		close(fd);
	return fewer;
}

static int add_file(const char *directory, const struct entry *entry, const struct bytes *file)
{
	int error = cache_make_directory(entry->directory);

	if (!error)
		error = cache_write_file(entry->directory, "elf", CACHE_MODE_OF_BOOT, file);
	if (!error)
		error = cache_link_build(directory, BUILD_ID_CACHE_IMAGES, entry->id);
	return error ? error : 1;
}

int build_id_cache_add_image(const char *directory, struct span build_id, const struct bytes *file)
{
	struct entry entry;
	int error = find_entry(directory, build_id, &entry);

	if (error || (cache_file_exists(entry.link, "elf") && !is_outdated(&entry)))
		return error;
	return add_file(directory, &entry, file);
}

int build_id_cache_replace_image(const char *directory, struct span build_id,
				 const struct bytes *file)
{
	struct entry entry;
	int error = find_entry(directory, build_id, &entry);

	if (error || (cache_file_exists(entry.link, "elf") && !is_outdated(&entry) &&
		      (!is_ours(&entry) || has_fewer_symbols(file, &entry))))
		return error;
	return add_file(directory, &entry, file);
}

/* The link is ours only if it leads to the removed file, and is dangling now. */
void build_id_cache_remove_image(const char *directory, struct span build_id)
{
	char path[PATH_MAX];
	struct entry entry;

	if (find_entry(directory, build_id, &entry) ||
	    cache_path(path, entry.directory, "/elf", NULL))
		return;
	unlink(path);
	rmdir(entry.directory);
	if (access(entry.link, F_OK))
		unlink(entry.link);
}
