// SPDX-License-Identifier: Apache-2.0
#include "vmm/session/agent_names.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shared/error.h"
#include "vmm/symbols/image_file.h"

/* Images that are asked for in one run, at most: a guest can make any number. There are twice as
 * many slots.
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

struct agent_names {
	struct image_symbols names;
	struct seen seen[SLOTS];
	size_t seen_count;
	uint64_t unasked;
	bool more;
};

int agent_names_create(struct agent_names **result, const struct build_id_cache_location *place,
		       size_t limit)
{
	struct agent_names *symbols = calloc(1, sizeof(*symbols));
	int error;

	if (!symbols)
		return error_set(-ENOMEM, "no memory for the names of the guest's programs");
	error = image_symbols_open(&symbols->names, place, limit);
	if (error) {
		free(symbols);
		return error;
	}
	*result = symbols;
	return 0;
}

/* Its place, or the free one that it would have. There always is a free one. */
static struct seen *find(struct agent_names *symbols, const struct build *build)
{
	uint64_t hash = 0;

	memcpy(&hash, build->id, sizeof(hash));
	for (size_t i = (size_t)(hash * 0x9e3779b97f4a7c15ull >> 40);; i++) {
		struct seen *slot = &symbols->seen[i % SLOTS];

		if (!slot->build.size || !memcmp(&slot->build, build, sizeof(*build)))
			return slot;
	}
}

static int want(struct agent_names *symbols, struct agent *agent,
		const struct sideband_mmap *mapping)
{
	struct agent_image image = {
		.pid = mapping->head.pid,
		.start = mapping->start,
		.end = mapping->start + mapping->length,
		.build_id_size = mapping->build_id_size,
		.path = mapping->name,
	};

	if (image_symbols_has_all(&symbols->names, mapping->build_id, image.build_id_size))
		return 0;
	memcpy(image.build_id, mapping->build_id, sizeof(image.build_id));
	return agent_want_symbols(agent, &image);
}

static bool is_code(const struct sideband_mmap *mapping)
{
	return mapping->build_id_size && mapping->prot & PROT_EXEC && *mapping->name == '/';
}

/* NULL: there are too many to remember one more. */
static struct seen *find_or_add(struct agent_names *symbols, const struct build *build)
{
	struct seen *seen = find(symbols, build);

	if (seen->build.size)
		return seen;
	if (symbols->seen_count == IMAGES_MAX) {
		symbols->more = true;
		return NULL;
	}
	seen->build = *build;
	symbols->seen_count++;
	symbols->unasked++;
	return seen;
}

void agent_names_see(struct agent_names *symbols, struct agent *agent,
		     const struct sideband_mmap *mapping)
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
	symbols->unasked--;
}

static void put_names(struct agent_names *symbols, const struct agent_image_table *table)
{
	struct span bytes = span_of(table->bytes, table->size);
	size_t cost = image_file_cost(bytes);

	if (!guest_account_charge(table->account, cost)) {
		symbols->names.statistics.dropped++;
		return;
	}
	image_symbols_replace(&symbols->names, bytes, table->build_id, table->build_id_size);
	guest_account_release(table->account, cost);
}

void agent_names_turn(struct agent_names *symbols, struct agent *agent)
{
	struct agent_mappings mappings = agent_take_mappings(agent);
	struct agent_image_table *table;
	struct sideband_mmap *mapping;

	while ((mapping = agent_mappings_take(&mappings))) {
		agent_names_see(symbols, agent, mapping);
		free(mapping);
	}

	while ((table = agent_take_symbols(agent))) {
		put_names(symbols, table);
		agent_image_table_free(table);
	}
}

void agent_names_statistics(const struct agent_names *symbols,
			    struct agent_names_statistics *statistics)
{
	*statistics = (struct agent_names_statistics){
		.names = symbols->names.statistics,
		.unasked = symbols->unasked + symbols->more, /* one at least */
		.more = symbols->more,
	};
}

void agent_names_destroy(struct agent_names *symbols)
{
	if (!symbols)
		return;
	image_symbols_close(&symbols->names);
	free(symbols);
}
