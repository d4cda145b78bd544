/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/prune_symbols.h"

#include <dirent.h>
#include <errno.h>
#include <fts.h>
#include <limits.h>
#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/perf_data/perf_data_reader.h"

#define LINKS   ".build-id"
#define ID_SIZE 41 /* 20 bytes in hexadecimal and a zero */

/* Everything in the cache with one build id. */
struct build {
	char id[ID_SIZE];
	int64_t used; /* s since 1970 */
	uint64_t bytes;
	bool unneeded;
};

struct builds {
	struct build *all; /* owned */
	size_t count;
};

static int by_id(const void *left, const void *right)
{
	return strcmp(left, right);
}

/* The set of build IDs that recordings need. */

struct needed {
	void *ids; /* tsearch(3), owned */
};

static int need(struct needed *needed, const uint8_t *build_id, size_t size)
{
	char id[ID_SIZE] = "", **found;

	for (size_t i = 0; i < size && i < (ID_SIZE - 1) / 2; i++)
		snprintf(id + 2 * i, 3, "%02x", build_id[i]);
	if (!size || tfind(id, &needed->ids, by_id))
		return 0;
	found = tsearch(id, &needed->ids, by_id);
	if (!found)
		return error_set(-ENOMEM, "no memory for the builds of recordings");
	*found = strdup(id);
	return *found ? 0 : error_set(-ENOMEM, "no memory for the builds of recordings");
}

static int add_mapping(void *context, const struct perf_data_mapping_event *mapping)
{
	return need(context, mapping->build_id, mapping->build_id_size);
}

static int add_build_id(void *context, const struct perf_data_build_id *entry)
{
	return need(context, entry->build_id, entry->build_id_size);
}

static int read_recording(struct needed *needed, const char *path)
{
	const struct perf_data_events events = { .mapping = add_mapping,
						 .build_id = add_build_id,
						 .context = needed };
	struct perf_data_reader *reader;
	int error = perf_data_reader_open(&reader, path);

	/* Removed meanwhile, or unreadable, such as one whose header was never written to the
	 * disk. */
	if (error == -ENOENT || error == -EINVAL)
		return 0;
	if (error)
		return error;
	error = perf_data_reader_run(reader, &events);
	perf_data_reader_close(reader);
	return error;
}

static bool ends_with(const char *name, const char *end)
{
	size_t length = strlen(name);

	return length >= strlen(end) && !strcmp(name + length - strlen(end), end);
}

/* A partial file is read as far as it goes. */
static int read_if_recording(struct needed *needed, const char *directory, const char *name)
{
	char path[PATH_MAX];
	int error;

	if (!strstr(name, ".perf.data") || ends_with(name, ".guestmount"))
		return 0;
	if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= (int)sizeof(path))
		return error_set(-ENAMETOOLONG, "the path %s/%s is too long", directory, name);
	error = read_recording(needed, path);
	return error == -ENOMEM || !ends_with(name, ".partial") ? error : 0;
}

static int read_recordings(struct needed *needed, const char *directory)
{
	DIR *opened = opendir(directory);
	const struct dirent *entry;
	int error = 0;

	if (!opened)
		return error_set(-errno, "cannot read %s: %s", directory, strerror(errno));
	while (!error && (entry = readdir(opened)))
		error = read_if_recording(needed, directory, entry->d_name);
	closedir(opened);
	return error;
}

/* The cache: NAMES/KIND/ID/... */

#define LEVEL_KIND 1
#define LEVEL_ID   2

static bool is_id(const char *name)
{
	size_t digits = strspn(name, "0123456789abcdef");

	return digits > 2 && digits < ID_SIZE && !name[digits];
}

static struct build *find_build(const struct builds *builds, const char *id)
{
	for (size_t i = 0; i < builds->count; i++)
		if (!strcmp(builds->all[i].id, id))
			return &builds->all[i];
	return NULL;
}

static struct build *add_build(struct builds *builds, const char *id)
{
	struct build *larger = reallocarray(builds->all, builds->count + 1, sizeof(*larger));

	if (!larger)
		return NULL;
	builds->all = larger;
	larger += builds->count++;
	*larger = (struct build){ 0 };
	snprintf(larger->id, sizeof(larger->id), "%s", id);
	return larger;
}

static void measure(struct build *build, const FTSENT *entry)
{
	if (entry->fts_info == FTS_D && entry->fts_statp->st_mtime > build->used)
		build->used = entry->fts_statp->st_mtime;
	if (entry->fts_info == FTS_F)
		build->bytes += (uint64_t)entry->fts_statp->st_size;
}

/* What cannot be removed is counted again next time. */
static void remove_entry(struct build *build, const FTSENT *entry)
{
	if (!build->unneeded)
		return;
	if (entry->fts_info == FTS_DP)
		rmdir(entry->fts_path);
	else if (entry->fts_info != FTS_D)
		unlink(entry->fts_path);
}

/* Calls EACH for everything that belongs to a build; unknown builds are added. */
static int each_entry(struct builds *builds, const char *names,
		      void (*each)(struct build *build, const FTSENT *entry))
{
	char root[PATH_MAX], *const roots[] = { root, NULL };
	FTS *tree;
	struct build *build = NULL;
	FTSENT *entry;
	int error = 0;

	if (snprintf(root, sizeof(root), "%s", names) >= (int)sizeof(root))
		return error_set(-ENAMETOOLONG, "the path %s is too long", names);
	tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	while (tree && !error && (entry = fts_read(tree))) {
		if (entry->fts_level == LEVEL_KIND && !strcmp(entry->fts_name, LINKS))
			fts_set(tree, entry, FTS_SKIP);
		if (entry->fts_level == LEVEL_ID && entry->fts_info == FTS_D &&
		    is_id(entry->fts_name)) {
			build = find_build(builds, entry->fts_name);
			if (!build)
				build = add_build(builds, entry->fts_name);
			error = build ? 0 : -ENOMEM;
		}
		if (build && entry->fts_level >= LEVEL_ID)
			each(build, entry);
		if (entry->fts_level <= LEVEL_ID && entry->fts_info == FTS_DP)
			build = NULL;
	}
	if (!tree || fts_close(tree))
		return error_set(-errno, "cannot read %s: %s", names, strerror(errno));
	return error ? error_set(error, "no memory for the names in %s", names) : 0;
}

static int by_use(const void *left, const void *right)
{
	const struct build *one = left, *other = right;

	return (one->used > other->used) - (one->used < other->used);
}

static void choose(struct builds *builds, const struct needed *needed, int64_t since,
		   uint64_t bytes, struct pruned_symbols *removed)
{
	qsort(builds->all, builds->count, sizeof(builds->all[0]), by_use);
	for (size_t i = 0; i < builds->count && removed->bytes < bytes; i++) {
		struct build *build = &builds->all[i];

		if (build->used >= since || tfind(build->id, &needed->ids, by_id))
			continue;
		build->unneeded = true;
		removed->builds++;
		removed->bytes += build->bytes;
	}
}

/* Removes dangling links. */
static void remove_links(const struct builds *builds, const char *names)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < builds->count; i++) {
		const char *id = builds->all[i].id;
		int length =
			snprintf(path, sizeof(path), "%s/" LINKS "/%.2s/%s", names, id, id + 2);

		if (builds->all[i].unneeded && length < (int)sizeof(path) && access(path, F_OK))
			unlink(path);
	}
}

int prune_symbols(const char *directory, const char *names, int64_t since, uint64_t bytes,
		  struct pruned_symbols *removed)
{
	struct needed needed = { 0 };
	struct builds builds = { 0 };
	int error = read_recordings(&needed, directory);

	*removed = (struct pruned_symbols){ 0 };
	if (!error)
		error = each_entry(&builds, names, measure);
	if (!error && builds.count) {
		choose(&builds, &needed, since, bytes, removed);
		error = each_entry(&builds, names, remove_entry);
		remove_links(&builds, names);
	}
	tdestroy(needed.ids, free);
	free(builds.all);
	return error;
}
