/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images: the guest's files and modules. Each exists once, and only as long as it is held, as a
 * guest can create any number of names. Collector thread.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_IMAGE_H
#define KVMSCOPE_RESOLVE_RESOLVER_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "vmm/resolve/resolver_store.h"

/* Images are equal if all of this is. */
struct resolver_image {
	struct resolver_node node;
	uint32_t holders;
	uint32_t major, minor; /* of its device; these four are 0 if unknown */
	uint64_t inode, generation;
	uint8_t build_id_size; /* 0: unknown */
	uint8_t build_id[SIDEBAND_BUILD_ID_MAX];
	char name[]; /* the guest's bytes, not cleaned */
};

/* The image that a record describes, held once for the caller; NULL without memory. */
struct resolver_image *resolver_image_of_mmap(struct resolver_store *store,
					      const struct sideband_mmap *mmap);
struct resolver_image *resolver_image_of_module(struct resolver_store *store,
						const struct sideband_module *module);

/* The reverse: fills in the device, inode, build id and name of MMAP, which has room for the name.
 */
void resolver_image_describe(const struct resolver_image *image, struct sideband_mmap *mmap);

/* Adds a holder; returns IMAGE, which may be NULL. */
static inline struct resolver_image *resolver_image_hold(struct resolver_image *image)
{
	if (image)
		image->holders++;
	return image;
}

/* Removes a holder; the last one frees it. NULL is a no-op. */
void resolver_image_release(struct resolver_store *store, struct resolver_image *image);

/*
 * The files behind the mappings that samples carry: struct sample_mapping refers to an image by
 * number. The collector adds an image as soon as its name has been read from guest memory; the
 * resolver and the file state look mappings up here. Zeroed: empty.
 */
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
