/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's files that something is read from which is not all in guest memory at first: each is
 * tried again at growing intervals. One thread, not a vCPU's.
 */
#ifndef KVMSCOPE_RECORD_IMAGE_QUEUE_H
#define KVMSCOPE_RECORD_IMAGE_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/linux/user_image.h"

struct queued_image;

/* Zeroed: none. */
struct image_queue {
	uint32_t generation; /* of the table that IMAGES are of; 0: none */
	uint32_t seen;       /* entries of that table that were scanned */
	struct queued_image *images;
	size_t count, capacity;
	size_t due; /* index of the image that image_queue_next() returned */
	uint64_t
		delay; /* ns from the first sight of an image to its first try; the owner sets it */
};

/*
 * A file of IMAGES that is due at NOW (ns of any steady clock); NULL: none. A table of another boot
 * replaces the whole queue. Without memory, new images are skipped.
 */
struct user_image *image_queue_next(struct image_queue *queue, struct user_images *images,
				    uint64_t now);

/* Try that image again later; */
void image_queue_retry(struct image_queue *queue, uint64_t now);
/* or never again. */
void image_queue_done(struct image_queue *queue);

/* All queued images are due now, whatever the delay: this is the last time. */
void image_queue_expire(struct image_queue *queue);

/* Frees what it holds; zeroed, it holds nothing. */
void image_queue_free(struct image_queue *queue);

#endif
