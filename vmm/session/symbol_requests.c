/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/session/symbol_requests.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shared/error.h"
#include "shared/hash.h"
#include "shared/log.h"
#include "shared/thread_check.h"
#include "vmm/symbols/image_file.h"

/* Most images that are requested in one session, as a guest can create any number. There are twice
 * as many slots. */
#define IMAGES_MAX 8192u
#define SLOTS      16384u

struct build {
	uint8_t size; /* 0: none */
	uint8_t id[SIDEBAND_BUILD_ID_MAX];
};

struct mapped_image {
	struct build build;
	bool asked;
};

struct symbol_requests {
	struct thread_check thread;
	struct image_symbols names;
	size_t limit;
	struct mapped_image images[SLOTS]; /* hashed by build */
	size_t image_count;
	uint64_t unasked;
	bool more;
};

int symbol_requests_create(struct symbol_requests **result,
			   const struct build_id_cache_location *cache, size_t limit)
{
	struct symbol_requests *symbols = calloc(1, sizeof(*symbols));
	int error;

	if (!symbols)
		return error_set(-ENOMEM, "no memory for the symbols of user-space images");
	symbols->limit = limit;
	error = image_symbols_open(&symbols->names, cache, limit);
	if (error)
		free(symbols);
	else
		*result = symbols;
	return error;
}

/* The slot of BUILD, or the free one it would get. There is always a free one. */
static struct mapped_image *find(struct symbol_requests *symbols, const struct build *build)
{
	for (size_t i = (size_t)hash_mix_bytes(0, build, sizeof(*build));; i++) {
		struct mapped_image *slot = &symbols->images[i % SLOTS];

		if (!slot->build.size || !memcmp(&slot->build, build, sizeof(*build)))
			return slot;
	}
}

static int request(struct symbol_requests *symbols, struct agent *agent,
		   const struct sideband_mmap *mapping)
{
	struct agent_image image = {
		.pid = mapping->head.pid,
		.start = mapping->start,
		.end = mapping->start + mapping->length,
		.build_id_size = mapping->build_id_size,
		.path = mapping->name,
	};

	if (image_symbols_has_all(&symbols->names, span_of(mapping->build_id, image.build_id_size)))
		return 0;
	memcpy(image.build_id, mapping->build_id, sizeof(image.build_id));
	return agent_request_symbols(agent, &image);
}

static bool is_code(const struct sideband_mmap *mapping)
{
	return mapping->build_id_size && mapping->prot & PROT_EXEC && *mapping->name == '/';
}

/* NULL: the table is full. */
static struct mapped_image *find_or_add(struct symbol_requests *symbols, const struct build *build)
{
	struct mapped_image *image = find(symbols, build);

	if (image->build.size)
		return image;
	if (symbols->image_count == IMAGES_MAX) {
		symbols->more = true;
		return NULL;
	}
	image->build = *build;
	symbols->image_count++;
	symbols->unasked++;
	return image;
}

void symbol_requests_add_mapping(struct symbol_requests *symbols, struct agent *agent,
				 const struct sideband_mmap *mapping)
{
	struct build build = { .size = mapping->build_id_size };
	struct mapped_image *image;

	THREAD_CHECK(&symbols->thread);
	if (!is_code(mapping))
		return;
	memcpy(build.id, mapping->build_id, mapping->build_id_size);
	image = find_or_add(symbols, &build);
	/* A request that fails now is repeated when the image is mapped again. */
	if (!image || image->asked || request(symbols, agent, mapping))
		return;
	image->asked = true;
	symbols->unasked--;
}

static void store(struct symbol_requests *symbols, const struct agent_image_table *table)
{
	struct span bytes = span_of(table->bytes, table->size);
	size_t cost = image_file_cost(bytes);

	if (!guest_account_charge(table->account, cost)) {
		symbols->names.statistics.dropped++;
		return;
	}
	image_symbols_replace(&symbols->names, bytes,
			      span_of(table->build_id, table->build_id_size));
	guest_account_release(table->account, cost);
}

void symbol_requests_update(struct symbol_requests *symbols, struct agent *agent)
{
	struct agent_mappings mappings = agent_pop_mappings(agent);
	struct agent_image_table *table;
	struct sideband_mmap *mapping;

	THREAD_CHECK(&symbols->thread);
	while ((mapping = agent_mappings_pop(&mappings))) {
		symbol_requests_add_mapping(symbols, agent, mapping);
		free(mapping);
	}
	while ((table = agent_pop_symbols(agent))) {
		store(symbols, table);
		agent_image_table_free(table);
	}
}

struct reported_kernel *symbol_requests_kernel(struct agent *agent, uint64_t modules_hash)
{
	struct agent_image_table *table = agent_pop_kernel(agent);
	struct reported_kernel *kernel = NULL;

	if (!table) {
		agent_request_kernel(agent, modules_hash);
		return NULL;
	}
	if (reported_kernel_create(&kernel, span_of(table->bytes, table->size), table->account))
		log_debug("%s", error_message());
	agent_image_table_free(table);
	return kernel;
}

void symbol_requests_count(const struct symbol_requests *symbols,
			   struct symbol_requests_statistics *statistics)
{
	*statistics = (struct symbol_requests_statistics){
		.names = symbols->names.statistics,
		.unasked = symbols->unasked + symbols->more, /* at least one */
		.more = symbols->more,
	};
}

void symbol_requests_report(const struct symbol_requests *symbols,
			    const struct agent_statistics *statistics)
{
	const struct agent_tables_statistics *tables = &statistics->tables;
	/* An agent without the feature was not asked for anything. */
	bool answers = statistics->features & AGENT_FEATURE_TABLES;
	unsigned long long dropped, not_fetched, waiting = answers ? tables->waiting : 0;
	struct symbol_requests_statistics counts;

	symbol_requests_count(symbols, &counts);
	dropped = tables->dropped + counts.names.dropped;
	not_fetched = tables->refused + (answers ? counts.unasked : 0);
	log_debug("symbols of user-space images: %llu requested, %llu stored, %llu had none",
		  (unsigned long long)tables->requested, (unsigned long long)counts.names.added,
		  (unsigned long long)(tables->without + counts.names.nameless));
	if (dropped)
		log_warning(
			"the symbols of %llu of the guest's user-space images were dropped: they exceed "
			"%zu MiB",
			dropped, symbols->limit >> 20);
	if (not_fetched)
		log_warning(
			"the symbols of %s%llu of the guest's user-space images could not be fetched",
			counts.more ? "at least " : "", not_fetched);
	if (waiting)
		log_info(
			"the guest ended before it sent the symbols of %llu of its user-space images",
			waiting);
}

void symbol_requests_destroy(struct symbol_requests *symbols)
{
	if (!symbols)
		return;
	image_symbols_close(&symbols->names);
	free(symbols);
}
