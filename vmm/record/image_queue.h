/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's files of which something is wanted that is not all in its memory at first: each is
 * looked at again, ever more rarely. One thread, no vCPU's.
 */
#ifndef KVMSCOPE_RECORD_IMAGE_QUEUE_H
#define KVMSCOPE_RECORD_IMAGE_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/linux/user_image.h"

struct queued_image;

/* Zeroed: none. */
struct image_queue {
	uint32_t generation; /* of the images that what follows is of; 0: of none */
	uint32_t seen;       /* so many of them were looked at */
	struct queued_image *images;
	size_t count;
	size_t due;     /* the one that image_queue_next() told */
	uint64_t delay; /* ns that one has to be known for before it is looked at; the owner's to
			   set */
};

/*
 * A file of IMAGES that was settled, whose time has come; NULL: none has. NOW is ns of any steady
 * clock. Images of another boot take the place of all that waited. Without memory, new ones are
 * passed over.
 */
struct user_image *image_queue_next(struct image_queue *waiting, struct user_images *images,
				    uint64_t now);

/* That one is to be looked at again; */
void image_queue_retry(struct image_queue *waiting, uint64_t now);
/* or never. */
void image_queue_done(struct image_queue *waiting);

/* All that wait are due now, whatever the delay was: it is the last time. */
void image_queue_expire(struct image_queue *waiting);

/* Frees what it holds; zeroed, it holds nothing. */
void image_queue_free(struct image_queue *waiting);

#endif
