/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images: the guest's files and modules. Each exists once, and only as long as it is held, as a
 * guest can create any number of names. Collector thread.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_IMAGE_H
#define KVMSCOPE_RESOLVE_RESOLVER_IMAGE_H

#include <stdint.h>

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

#endif
