/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/resolve/image_catalog.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"

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
