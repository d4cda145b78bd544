/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is mapped: files of the guest, its modules. Each is there once, and as
 * long as somebody holds it: a guest can make any number of names. The
 * resolver's thread.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_IMAGE_H
#define KVMSCOPE_RESOLVE_RESOLVER_IMAGE_H

#include <stdint.h>

#include "shared/sideband_record.h"
#include "vmm/resolve/resolver_store.h"

/* Two images are the same one if all of this is. */
struct resolver_image {
	struct resolver_node node;
	uint32_t holders;
	uint32_t major, minor; /* of its device; these four 0 where not known */
	uint64_t inode, generation;
	uint8_t build_id_size; /* 0: not known */
	uint8_t build_id[SIDEBAND_BUILD_ID_MAX];
	char name[]; /* as the guest says it: not cleaned */
};

/* Of what a record says is mapped. Held once for the caller; NULL without memory. */
struct resolver_image *resolver_image_of_mmap(struct resolver_store *store,
					      const struct sideband_mmap *mmap);
struct resolver_image *resolver_image_of_module(struct resolver_store *store,
						const struct sideband_module *module);

/* One holder more; gives IMAGE, which may be NULL. */
static inline struct resolver_image *resolver_image_hold(struct resolver_image *image)
{
	if (image)
		image->holders++;
	return image;
}

/* One holder less; the last frees it. NULL is a no-op. */
void resolver_image_release(struct resolver_store *store, struct resolver_image *image);

#endif
