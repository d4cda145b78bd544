/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/collector_kernel_parts.h"

#include <string.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "shared/log.h"

/* ns per turn; the rings hold some hundred times as much. */
#define TABLES_TIME  (10 * NS_PER_MS)
#define SYMBOLS_TIME (10 * NS_PER_MS)
#define LAST_TIME    NS_PER_S

const struct sample *collector_user_complete(const struct collector_kernel *kernel,
					     const struct sample *sample, struct sample *room)
{
	if (!sample->deferred)
		return sample;
	deferred_lookup(collector_kernel_is_lost(kernel) ? NULL : collector_kernel_newest(kernel),
			kernel->options->view, sample, room);
	return room;
}

/* Images without a name stay unknown. */
static void add_image(struct image_catalog *catalog, const struct user_image *image)
{
	const char *name = user_image_name(image);
	union {
		struct sideband_mmap mmap;
		uint8_t bytes[SIDEBAND_SIZE_MAX];
	} file = { .mmap = { .build_id_size = 0 } };
	const uint8_t *build_id;
	uint32_t device;

	if (!name || sizeof(file.mmap) + strlen(name) + 1 > sizeof(file))
		return;
	file.mmap.build_id_size = (uint8_t)user_image_build_id(image, &build_id);
	memcpy(file.mmap.build_id, build_id, file.mmap.build_id_size);
	user_image_file(image, &device, &file.mmap.inode, &file.mmap.generation);
	file.mmap.major = device >> 20;
	file.mmap.minor = device & 0xfffff;
	memcpy(file.mmap.name, name, strlen(name) + 1);
	if (image_catalog_add(catalog, user_image_number(image), &file.mmap))
		log_debug("no memory for the name of %s", name);
}

void collector_user_add_images(struct image_catalog *catalog, const struct user_images *images)
{
	const struct user_image *image;

	image_catalog_begin(catalog, user_images_generation(images));
	for (; (image = user_images_loaded(images, catalog->scanned)); catalog->scanned++)
		add_image(catalog, image);
}

static void identify(void *parser, const struct elf_source *file, struct image_identity *identity)
{
	image_parser_identity(parser, file, identity);
}

void collector_user_load(struct collector_kernel *kernel)
{
	const struct guest_kernel *running = collector_kernel_newest(kernel);
	struct kernel_memory memory = { .view = kernel->options->view };

	THREAD_CHECK(&kernel->thread);
	if (!running)
		return;
	if (running->images) {
		user_images_identify(running->images, kernel->options->parser ? identify : NULL,
				     kernel->options->parser);
		user_images_load(running->images, running, kernel->options->view);
		collector_user_add_images(&kernel->boot.images, running->images);
	}
	memory.paging = &running->paging;
	if (running->cgroups)
		guest_cgroups_load(running->cgroups, &memory, &running->tasks.cgroups);
}

void collector_user_make_tables(const struct collector_kernel *kernel, struct user_tables *tables,
				uint64_t now)
{
	const struct guest_kernel *running = collector_kernel_newest(kernel);

	if (!running || !running->images || collector_kernel_is_lost(kernel))
		return;
	while (user_tables_step(tables, running->images, running, kernel->options->view, now) &&
	       clock_ns(CLOCK_MONOTONIC) - now < TABLES_TIME)
		;
}

/* The next kernel may use the memory of one that has ended. */
static void find_symbols(struct collector_kernel *kernel, struct user_symbols *symbols,
			 uint64_t now, uint64_t limit)
{
	const struct guest_kernel *running = collector_kernel_newest(kernel);

	if (!symbols || !running || !running->images)
		return;
	while (collector_kernel_is_certain(kernel) &&
	       user_symbols_step(symbols, running->images, running, kernel->options->view, now)) {
		collector_kernel_check_runs(kernel);
		user_symbols_commit(symbols, collector_kernel_is_certain(kernel), now);
		if (clock_ns(CLOCK_MONOTONIC) - now >= limit)
			return;
	}
}

void collector_user_find_symbols(struct collector_kernel *kernel, struct user_symbols *symbols,
				 uint64_t now)
{
	THREAD_CHECK(&kernel->thread);
	find_symbols(kernel, symbols, now, SYMBOLS_TIME);
}

void collector_user_last_symbols(struct collector_kernel *kernel, struct user_symbols *symbols)
{
	THREAD_CHECK(&kernel->thread);
	if (symbols)
		user_symbols_expire(symbols);
	find_symbols(kernel, symbols, clock_ns(CLOCK_MONOTONIC), LAST_TIME);
}
