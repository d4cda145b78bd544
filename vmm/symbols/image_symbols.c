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

/* What was put into the cache, the oldest first. */
struct added_image {
	struct added_image *next;
	uint8_t build_id[20];
	size_t build_id_size;
	size_t size;    /* bytes of the file */
	uint64_t stamp; /* of the file */
};

int image_symbols_open(struct image_symbols *names, const struct build_id_cache_location *place,
		       size_t limit)
{
	*names = (struct image_symbols){ .place = place, .limit = limit, .installed = "" };
	names->last = &names->oldest;
	return build_id_cache_open(place, names->directory, sizeof(names->directory));
}

bool image_symbols_are_installed(const struct image_symbols *names, const uint8_t *build_id,
				 size_t build_id_size)
{
	return installed_symbols_exist(names->installed, build_id, build_id_size);
}

static void warn_of_perf(struct image_symbols *names, const uint8_t *build_id, size_t build_id_size)
{
	char path[SYMBOL_PATH_MAX];

	if (names->statistics.misread++ ||
	    !symbol_paths_installed_debug(path, names->installed, build_id, build_id_size))
		return;
	log_warning(
		"perf (seen with 6.1) takes the addresses in %s for others than they are, and shows wrong names "
		"of that file of the guest: use kvmscope report, or perf report --symfs DIRECTORY with an "
		"empty directory",
		path);
}

/* A stripped file in the cache, of which this machine has all names: perf puts them together
 * wrongly. */
static bool is_outdone(struct image_symbols *names, const uint8_t *build_id, size_t build_id_size)
{
	bool ours;

	if (!build_id_cache_image_is_stripped(names->directory, build_id, build_id_size, &ours) ||
	    !image_symbols_are_installed(names, build_id, build_id_size))
		return false;
	if (!ours)
		warn_of_perf(names, build_id, build_id_size);
	return ours;
}

bool image_symbols_has(struct image_symbols *names, const uint8_t *build_id, size_t build_id_size)
{
	if (!build_id_cache_has_image(names->directory, build_id, build_id_size) ||
	    is_outdone(names, build_id, build_id_size))
		return false;
	build_id_cache_touch(names->directory, build_id, build_id_size);
	return true;
}

/* A while ago, by who has no more of them; and there is nobody else who has. */
static bool was_told(const struct image_symbols *names, const uint8_t *build_id,
		     size_t build_id_size)
{
	return build_id_cache_image_is_exhausted(names->directory, build_id, build_id_size,
						 IMAGE_SYMBOLS_REMEMBERED) &&
	       !image_symbols_are_installed(names, build_id, build_id_size);
}

bool image_symbols_has_all(const struct image_symbols *names, const uint8_t *build_id,
			   size_t build_id_size)
{
	if (!build_id_cache_has_whole_image(names->directory, build_id, build_id_size) &&
	    !was_told(names, build_id, build_id_size))
		return false;
	build_id_cache_touch(names->directory, build_id, build_id_size);
	return true;
}

/* Its file stays. */
static void forget(struct image_symbols *names, struct added_image **at)
{
	struct added_image *added = *at;

	*at = added->next;
	if (names->last == &added->next)
		names->last = at;
	names->bytes -= added->size;
	names->statistics.added--;
	free(added);
}

/* Another one in its place is somebody else's, who knew more: the agent of memory's. */
static bool is_still_there(const struct image_symbols *names, const struct added_image *added)
{
	return build_id_cache_image_stamp(names->directory, added->build_id,
					  added->build_id_size) == added->stamp;
}

static void drop(struct image_symbols *names, struct added_image **at)
{
	if (is_still_there(names, *at))
		build_id_cache_remove_image(names->directory, (*at)->build_id,
					    (*at)->build_id_size);
	forget(names, at);
	names->statistics.dropped++;
}

/* NULL: it was not added. */
static struct added_image **find(struct image_symbols *names, const uint8_t *build_id,
				 size_t build_id_size)
{
	for (struct added_image **at = &names->oldest; *at; at = &(*at)->next)
		if ((*at)->build_id_size == build_id_size &&
		    !memcmp((*at)->build_id, build_id, build_id_size))
			return at;
	return NULL;
}

void image_symbols_remove(struct image_symbols *names, const uint8_t *build_id,
			  size_t build_id_size)
{
	struct added_image **at = find(names, build_id, build_id_size);

	if (at)
		drop(names, at);
}

static int remember(struct image_symbols *names, const uint8_t *build_id, size_t build_id_size,
		    size_t size)
{
	struct added_image *added = calloc(1, sizeof(*added)),
			   **before = find(names, build_id, build_id_size);

	if (before)
		forget(names, before);
	if (!added) {
		build_id_cache_remove_image(names->directory, build_id, build_id_size);
		return error_set(-ENOMEM, "no memory for the names of the guest's programs");
	}
	added->build_id_size = build_id_size;
	memcpy(added->build_id, build_id, build_id_size);
	added->size = size;
	added->stamp = build_id_cache_image_stamp(names->directory, build_id, build_id_size);
	*names->last = added;
	names->last = &added->next;
	names->bytes += size;
	names->statistics.added++;
	names->statistics.written += size;
	while (names->oldest && names->bytes > names->limit)
		drop(names, &names->oldest);
	return 0;
}

typedef int image_put(const char *directory, const uint8_t *build_id, size_t build_id_size,
		      const struct bytes *file);
typedef void image_make(struct bytes *to, struct span table, const uint8_t *build_id,
			size_t build_id_size);

static int put_file(struct image_symbols *names, image_put *put, const struct bytes *file,
		    const uint8_t *build_id, size_t build_id_size)
{
	int result;

	if (file->failed)
		return error_set(-ENOMEM, "no memory for the names of a program of the guest");
	if (!file->size) {
		names->statistics.nameless++;
		return 0;
	}
	if (names->place && !names->place->has_room(names->place->context))
		return -ENOSPC;
	result = put(names->directory, build_id, build_id_size, file);
	return result > 0 ? remember(names, build_id, build_id_size, file->size) : result;
}

static void put_table(struct image_symbols *names, image_make *make, image_put *put,
		      struct span table, const uint8_t *build_id, size_t build_id_size)
{
	struct bytes file, all;

	if (installed_symbols_add(&all, table, names->installed, build_id, build_id_size)) {
		table = span_of(all.data, all.size);
		put = build_id_cache_replace_image;
	}
	make(&file, table, build_id, build_id_size);
	if (put_file(names, put, &file, build_id, build_id_size) && !names->statistics.failed++)
		log_warning("names of the guest's programs can not be kept: %s", error_message());
	free(file.data);
	free(all.data);
}

void image_symbols_add(struct image_symbols *names, struct span table, const uint8_t *build_id,
		       size_t build_id_size)
{
	put_table(names, image_file_make, build_id_cache_add_image, table, build_id, build_id_size);
}

void image_symbols_replace(struct image_symbols *names, struct span table, const uint8_t *build_id,
			   size_t build_id_size)
{
	put_table(names, image_file_make_exhausted, build_id_cache_replace_image, table, build_id,
		  build_id_size);
}

void image_symbols_close(struct image_symbols *names)
{
	while (names->oldest) {
		struct added_image *added = names->oldest;

		names->oldest = added->next;
		free(added);
	}
}
