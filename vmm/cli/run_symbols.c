// SPDX-License-Identifier: Apache-2.0
#include "vmm/cli/run_symbols.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/profile/build_id_cache.h"
#include "vmm/profile/image_file.h"

/* Images that are asked for in one run, at most: a guest can make any number. There are twice as many slots.
 */
#define IMAGES_MAX 8192u
#define SLOTS      16384u

struct build {
	uint8_t size; /* 0: none */
	uint8_t id[SIDEBAND_BUILD_ID_MAX];
};

/* That is mapped somewhere. */
struct seen {
	struct build build;
	bool asked; /* for */
};

/* What was put into the cache, the oldest first. */
struct added {
	struct added *next;
	struct build build;
	size_t size; /* bytes */
};

struct run_symbols {
	char directory[PATH_MAX];
	size_t limit;
	struct seen seen[SLOTS];
	size_t seen_count;
	struct added *oldest, **last;
	size_t bytes;
	struct run_symbols_statistics statistics;
};

int run_symbols_create(struct run_symbols **result, size_t limit)
{
	struct run_symbols *symbols = calloc(1, sizeof(*symbols));
	int error;

	if (!symbols)
		return error_set(-ENOMEM, "no memory for the names of the guest's programs");
	error = build_id_cache_directory(symbols->directory, sizeof(symbols->directory));
	if (error) {
		free(symbols);
		return error;
	}
	symbols->limit = limit;
	symbols->last = &symbols->oldest;
	*result = symbols;
	return 0;
}

/* Its place, or the free one that it would have. There always is a free one. */
static struct seen *find(struct run_symbols *symbols, const struct build *build)
{
	uint64_t hash = 0;

	memcpy(&hash, build->id, sizeof(hash));
	for (size_t i = (size_t)(hash * 0x9e3779b97f4a7c15ull >> 40);; i++) {
		struct seen *slot = &symbols->seen[i % SLOTS];

		if (!slot->build.size || !memcmp(&slot->build, build, sizeof(*build)))
			return slot;
	}
}

static int want(struct run_symbols *symbols, struct agent *agent, const struct sideband_mmap *mapping)
{
	struct agent_image image = {
		.pid = mapping->head.pid,
		.start = mapping->start,
		.end = mapping->start + mapping->length,
		.build_id_size = mapping->build_id_size,
		.path = mapping->name,
	};

	if (build_id_cache_has_image(symbols->directory, mapping->build_id, image.build_id_size))
		return 0;
	memcpy(image.build_id, mapping->build_id, sizeof(image.build_id));
	return agent_want_symbols(agent, &image);
}

static bool is_code(const struct sideband_mmap *mapping)
{
	return mapping->build_id_size && mapping->prot & PROT_EXEC && *mapping->name == '/';
}

/* NULL: there are too many to remember one more. */
static struct seen *find_or_add(struct run_symbols *symbols, const struct build *build)
{
	struct seen *seen = find(symbols, build);

	if (seen->build.size)
		return seen;
	if (symbols->seen_count == IMAGES_MAX) {
		symbols->statistics.more = true;
		return NULL;
	}
	seen->build = *build;
	symbols->seen_count++;
	symbols->statistics.unasked++;
	return seen;
}

void run_symbols_see(struct run_symbols *symbols, struct agent *agent, const struct sideband_mmap *mapping)
{
	struct build build = { .size = mapping->build_id_size };
	struct seen *seen;

	if (!is_code(mapping))
		return;
	memcpy(build.id, mapping->build_id, mapping->build_id_size);
	seen = find_or_add(symbols, &build);
	/* If it can not be asked for now, it is when somebody maps it next. */
	if (!seen || seen->asked || want(symbols, agent, mapping))
		return;
	seen->asked = true;
	symbols->statistics.unasked--;
}

static void drop_oldest(struct run_symbols *symbols)
{
	struct added *added = symbols->oldest;

	build_id_cache_remove_image(symbols->directory, added->build.id, added->build.size);
	symbols->oldest = added->next;
	if (!symbols->oldest)
		symbols->last = &symbols->oldest;
	symbols->bytes -= added->size;
	symbols->statistics.added--;
	symbols->statistics.dropped++;
	free(added);
}

static int remember(struct run_symbols *symbols, const struct agent_image_table *table, size_t size)
{
	struct added *added = calloc(1, sizeof(*added));

	if (!added) {
		build_id_cache_remove_image(symbols->directory, table->build_id, table->build_id_size);
		return error_set(-ENOMEM, "no memory for the names of the guest's programs");
	}
	added->build.size = (uint8_t)table->build_id_size;
	memcpy(added->build.id, table->build_id, sizeof(added->build.id));
	added->size = size;
	*symbols->last = added;
	symbols->last = &added->next;
	symbols->bytes += size;
	symbols->statistics.added++;
	while (symbols->bytes > symbols->limit)
		drop_oldest(symbols);
	return 0;
}

static int add_file(struct run_symbols *symbols, const struct agent_image_table *table,
		    const struct bytes *file)
{
	int result;

	if (file->failed)
		return error_set(-ENOMEM, "no memory for the names of a program of the guest");
	if (!file->size) {
		symbols->statistics.nameless++;
		return 0;
	}
	result = build_id_cache_add_image(symbols->directory, table->build_id, table->build_id_size, file);
	return result > 0 ? remember(symbols, table, file->size) : result;
}

static void add(struct run_symbols *symbols, const struct agent_image_table *table)
{
	struct bytes file;

	image_file_make(&file, span_of(table->bytes, table->size), table->build_id, table->build_id_size);
	if (add_file(symbols, table, &file) && !symbols->statistics.failed++)
		log_warning("names of the guest's programs can not be kept: %s", error_message());
	free(file.data);
}

void run_symbols_turn(struct run_symbols *symbols, struct agent *agent)
{
	struct agent_image_table *table;

	while ((table = agent_take_symbols(agent))) {
		add(symbols, table);
		free(table);
	}
}

void run_symbols_statistics(const struct run_symbols *symbols, struct run_symbols_statistics *statistics)
{
	*statistics = symbols->statistics;
	statistics->unasked += statistics->more; /* one at least */
}

void run_symbols_destroy(struct run_symbols *symbols)
{
	if (!symbols)
		return;
	while (symbols->oldest) {
		struct added *added = symbols->oldest;

		symbols->oldest = added->next;
		free(added);
	}
	free(symbols);
}
