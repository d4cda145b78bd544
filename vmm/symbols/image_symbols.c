/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/image_symbols.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/symbols/build_id_cache.h"
#include "vmm/symbols/image_file.h"
#include "vmm/symbols/installed_symbols.h"
#include "vmm/symbols/symbol_paths.h"

/* A file in the cache, in a list from the oldest to the newest. */
struct added_image {
	struct added_image *next;
	uint8_t build_id[20];
	size_t build_id_size;
	size_t size;    /* bytes of the file */
	uint64_t stamp; /* of the file */
};

int image_symbols_open(struct image_symbols *symbols,
		       const struct build_id_cache_location *location, size_t limit)
{
	*symbols = (struct image_symbols){ .location = location, .limit = limit, .installed = "" };
	symbols->last = &symbols->oldest;
	return build_id_cache_open(location, symbols->directory, sizeof(symbols->directory));
}

bool image_symbols_are_installed(const struct image_symbols *symbols, struct span build_id)
{
	return installed_symbols_exist(symbols->installed, build_id);
}

static void warn_about_perf(struct image_symbols *symbols, struct span build_id)
{
	char path[SYMBOL_PATH_MAX];

	if (symbols->statistics.misread++ ||
	    !symbol_paths_installed_debug(path, symbols->installed, build_id))
		return;
	log_warning(
		"perf (seen with 6.1) misreads the addresses in %s, and shows wrong symbols for that file of "
		"the guest: use kvmscope report, or perf report --symfs DIRECTORY with an "
		"empty directory",
		path);
}

/* True if kvmscope put a stripped file into the cache and this machine has all its symbols, which
 * perf combines wrongly with it. */
static bool is_superseded(struct image_symbols *symbols, struct span build_id)
{
	bool ours;

	if (!build_id_cache_image_is_stripped(symbols->directory, build_id, &ours) ||
	    !image_symbols_are_installed(symbols, build_id))
		return false;
	if (!ours)
		warn_about_perf(symbols, build_id);
	return ours;
}

bool image_symbols_has(struct image_symbols *symbols, struct span build_id)
{
	if (!build_id_cache_has_image(symbols->directory, build_id) ||
	    is_superseded(symbols, build_id))
		return false;
	build_id_cache_touch(symbols->directory, build_id);
	return true;
}

/* True if its source had no more symbols a while ago, and no other source is known. */
static bool was_exhausted(const struct image_symbols *symbols, struct span build_id)
{
	return build_id_cache_image_is_exhausted(symbols->directory, build_id,
						 IMAGE_SYMBOLS_REMEMBERED) &&
	       !image_symbols_are_installed(symbols, build_id);
}

bool image_symbols_has_all(const struct image_symbols *symbols, struct span build_id)
{
	if (!build_id_cache_has_whole_image(symbols->directory, build_id) &&
	    !was_exhausted(symbols, build_id))
		return false;
	build_id_cache_touch(symbols->directory, build_id);
	return true;
}

/* Removes it from the list, but not from the cache. */
static void unlink_image(struct image_symbols *symbols, struct added_image **at)
{
	struct added_image *added = *at;

	*at = added->next;
	if (symbols->last == &added->next)
		symbols->last = at;
	symbols->bytes -= added->size;
	symbols->statistics.added--;
	free(added);
}

/* False if another session replaced the file, e.g. with more symbols from the agent. */
static bool is_unchanged(const struct image_symbols *symbols, const struct added_image *added)
{
	return build_id_cache_image_stamp(symbols->directory,
					  span_of(added->build_id, added->build_id_size)) ==
	       added->stamp;
}

static void drop_image(struct image_symbols *symbols, struct added_image **at)
{
	if (is_unchanged(symbols, *at))
		build_id_cache_remove_image(symbols->directory,
					    span_of((*at)->build_id, (*at)->build_id_size));
	unlink_image(symbols, at);
	symbols->statistics.dropped++;
}

/* NULL: not added by this session. */
static struct added_image **find(struct image_symbols *symbols, struct span build_id)
{
	for (struct added_image **at = &symbols->oldest; *at; at = &(*at)->next)
		if ((*at)->build_id_size == build_id.size &&
		    !memcmp((*at)->build_id, build_id.data, build_id.size))
			return at;
	return NULL;
}

void image_symbols_remove(struct image_symbols *symbols, struct span build_id)
{
	struct added_image **at = find(symbols, build_id);

	if (at)
		drop_image(symbols, at);
}

static int list_image(struct image_symbols *symbols, struct span build_id, size_t size)
{
	struct added_image *added = calloc(1, sizeof(*added)), **before = find(symbols, build_id);

	if (before)
		unlink_image(symbols, before);
	if (!added) {
		build_id_cache_remove_image(symbols->directory, build_id);
		return error_set(-ENOMEM, "no memory for the symbols of the guest's programs");
	}
	added->build_id_size = build_id.size;
	memcpy(added->build_id, build_id.data, build_id.size);
	added->size = size;
	added->stamp = build_id_cache_image_stamp(symbols->directory, build_id);
	*symbols->last = added;
	symbols->last = &added->next;
	symbols->bytes += size;
	symbols->statistics.added++;
	symbols->statistics.written += size;
	while (symbols->oldest && symbols->bytes > symbols->limit)
		drop_image(symbols, &symbols->oldest);
	return 0;
}

typedef int image_put(const char *directory, struct span build_id, const struct bytes *file);

static int put_file(struct image_symbols *symbols, image_put *put, const struct bytes *file,
		    struct span build_id)
{
	int result;

	if (file->failed)
		return error_set(-ENOMEM, "no memory for the symbols of a program of the guest");
	if (!file->size) {
		symbols->statistics.nameless++;
		return 0;
	}
	if (symbols->location && !symbols->location->has_room(symbols->location->context))
		return -ENOSPC;
	result = put(symbols->directory, build_id, file);
	return result > 0 ? list_image(symbols, build_id, file->size) : result;
}

static void put_table(struct image_symbols *symbols, image_put *put, bool exhausted,
		      struct span table, struct span build_id)
{
	struct bytes file, all;

	if (installed_symbols_add(&all, table, symbols->installed, build_id)) {
		table = span_of(all.data, all.size);
		put = build_id_cache_replace_image;
	}
	image_file_make(&file, table, build_id, exhausted);
	if (put_file(symbols, put, &file, build_id) && !symbols->statistics.failed++)
		log_warning("cannot store symbols of the guest's programs: %s", error_message());
	free(file.data);
	free(all.data);
}

void image_symbols_add(struct image_symbols *symbols, struct span table, struct span build_id)
{
	put_table(symbols, build_id_cache_add_image, false, table, build_id);
}

void image_symbols_replace(struct image_symbols *symbols, struct span table, struct span build_id)
{
	put_table(symbols, build_id_cache_replace_image, true, table, build_id);
}

void image_symbols_close(struct image_symbols *symbols)
{
	while (symbols->oldest) {
		struct added_image *added = symbols->oldest;

		symbols->oldest = added->next;
		free(added);
	}
}
