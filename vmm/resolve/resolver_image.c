/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/resolve/resolver_image.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/hash.h"

static uint64_t hash_image(const struct resolver_image *image, const char *name)
{
	uint64_t hash = hash_mix(image->inode, (uint64_t)image->major << 32 | image->minor);

	hash = hash_mix(hash, image->generation);
	hash = hash_mix_bytes(hash, image->build_id, image->build_id_size);
	return hash_mix_bytes(hash, name, strlen(name));
}

static bool same_image(const struct resolver_image *a, const struct resolver_image *b,
		       const char *name)
{
	return a->major == b->major && a->minor == b->minor && a->inode == b->inode &&
	       a->generation == b->generation && a->build_id_size == b->build_id_size &&
	       !memcmp(a->build_id, b->build_id, a->build_id_size) && !strcmp(a->name, name);
}

static struct resolver_image *find(const struct resolver_store *store, uint64_t hash,
				   const struct resolver_image *wanted, const char *name)
{
	struct resolver_node *node = resolver_table_first(&store->images, hash);

	while (node && !same_image((struct resolver_image *)node, wanted, name))
		node = resolver_table_next(node);
	return (struct resolver_image *)node;
}

static size_t size_of(const char *name)
{
	return sizeof(struct resolver_image) + strlen(name) + 1;
}

static struct resolver_image *keep(struct resolver_store *store,
				   const struct resolver_image *wanted, const char *name)
{
	uint64_t hash = hash_image(wanted, name);
	struct resolver_image *image = find(store, hash, wanted, name);
	struct resolver_node node;

	if (image)
		return resolver_image_hold(image);
	image = resolver_store_add(store, &store->images, hash, size_of(name));
	if (!image)
		return NULL;
	node = image->node;
	*image = *wanted;
	image->node = node;
	image->holders = 1;
	memcpy(image->name, name, strlen(name) + 1);
	return image;
}

struct resolver_image *resolver_image_of_mmap(struct resolver_store *store,
					      const struct sideband_mmap *mmap)
{
	struct resolver_image image = {
		.major = mmap->major,
		.minor = mmap->minor,
		.inode = mmap->inode,
		.generation = mmap->generation,
		.build_id_size = mmap->build_id_size,
	};

	memcpy(image.build_id, mmap->build_id, mmap->build_id_size);
	return keep(store, &image, mmap->name);
}

void resolver_image_describe(const struct resolver_image *image, struct sideband_mmap *mmap)
{
	mmap->major = image->major;
	mmap->minor = image->minor;
	mmap->inode = image->inode;
	mmap->generation = image->generation;
	mmap->build_id_size = image->build_id_size;
	memcpy(mmap->build_id, image->build_id, sizeof(mmap->build_id));
	memcpy(mmap->name, image->name, strlen(image->name) + 1);
}

struct resolver_image *resolver_image_of_module(struct resolver_store *store,
						const struct sideband_module *module)
{
	struct resolver_image image = { .build_id_size = module->build_id_size };

	memcpy(image.build_id, module->build_id, module->build_id_size);
	return keep(store, &image, module->name);
}

void resolver_image_release(struct resolver_store *store, struct resolver_image *image)
{
	if (image && !--image->holders)
		resolver_store_remove(store, &store->images, &image->node, size_of(image->name));
}

/* --- catalog ---------------------------------------------------------------------- */

void image_catalog_begin(struct image_catalog *catalog, uint32_t generation)
{
	if (catalog->generation == generation)
		return;
	image_catalog_free(catalog);
	catalog->generation = generation;
}

int image_catalog_add(struct image_catalog *catalog, uint32_t number,
		      const struct sideband_mmap *mmap)
{
	size_t known = catalog->count;

	if (array_reserve(&catalog->images, &catalog->count, (size_t)number + 1))
		return -ENOMEM;
	memset(catalog->images + known, 0, (catalog->count - known) * sizeof(*catalog->images));
	if (!catalog->images[number])
		catalog->images[number] = resolver_image_of_mmap(&catalog->store, mmap);
	return catalog->images[number] ? 0 : -ENOMEM;
}

const struct resolver_image *image_catalog_find(const struct image_catalog *catalog,
						const struct sample_mapping *mapping)
{
	if (!catalog || mapping->images != catalog->generation || mapping->image >= catalog->count)
		return NULL;
	return catalog->images[mapping->image];
}

void image_catalog_free(struct image_catalog *catalog)
{
	for (size_t i = 0; i < catalog->count; i++)
		resolver_image_release(&catalog->store, catalog->images[i]);
	free(catalog->images);
	resolver_table_free(&catalog->store.images, NULL);
	*catalog = (struct image_catalog){ 0 };
}
