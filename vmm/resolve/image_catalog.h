/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files behind the mappings that samples carry (struct sample_mapping names an image only by
 * number). The collector adds an image as soon as its name has been read from guest memory; the
 * resolver and the file state look mappings up here. Collector thread.
 */
#ifndef KVMSCOPE_RESOLVE_IMAGE_CATALOG_H
#define KVMSCOPE_RESOLVE_IMAGE_CATALOG_H

#include <stddef.h>
#include <stdint.h>

#include "shared/sample_record.h"
#include "vmm/resolve/resolver_image.h"

/* Zeroed: empty. */
struct image_catalog {
	struct resolver_store store; /* of its own: no guest fills it beyond USER_IMAGES_MAX */
	uint32_t generation;         /* table of images that the numbers belong to */
	uint32_t scanned;            /* entries of that table which were added, or have no name */
	struct resolver_image **images; /* by number; held; NULL: not known */
	size_t count;
};

/* Drops all images if GENERATION is not that of the catalog. */
void image_catalog_begin(struct image_catalog *catalog, uint32_t generation);

/* Image NUMBER of this generation is the file that MMAP describes. -ENOMEM: it stays unknown. */
int image_catalog_add(struct image_catalog *catalog, uint32_t number,
		      const struct sideband_mmap *mmap);

/* The image of MAPPING; NULL: not known. Valid until the next generation. */
const struct resolver_image *image_catalog_find(const struct image_catalog *catalog,
						const struct sample_mapping *mapping);

/* Frees what it holds; it is empty afterwards. */
void image_catalog_free(struct image_catalog *catalog);

#endif
