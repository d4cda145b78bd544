/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's images that something is read from. Not all of an image is in guest memory at first,
 * so each is tried again at growing intervals. One thread, not a vCPU's.
 */
#ifndef KVMSCOPE_RECORD_IMAGE_QUEUE_H
#define KVMSCOPE_RECORD_IMAGE_QUEUE_H

#include <stdbool.h>
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
	/* Set by the owner: */
	bool vdso;      /* queue the vDSO, too, besides files */
	uint64_t delay; /* ns from the first sight of an image to its first try */
};

/* An image of IMAGES that is due at NOW (ns of any steady clock); NULL: none. A table of another
 * boot replaces the whole queue. Without memory, new images are skipped. */
struct user_image *image_queue_next(struct image_queue *queue, struct user_images *images,
				    uint64_t now);

/* Tries that image again later, */
void image_queue_retry(struct image_queue *queue, uint64_t now);
/* never again, */
void image_queue_done(struct image_queue *queue);
/* or not before image_queue_resume(), after which one of the two above decides. */
void image_queue_suspend(struct image_queue *queue);
void image_queue_resume(struct image_queue *queue, const struct user_image *image);

/* All queued images are due now, whatever the delay: this is the last time. */
void image_queue_expire(struct image_queue *queue);

/* Frees what it holds; zeroed, it holds nothing. */
void image_queue_free(struct image_queue *queue);

/* An image in guest memory: the context of an elf_source that reads it by image_memory_read(). */
struct image_memory {
	const struct user_image *image;
	const struct guest_kernel *kernel;
	const struct guest_view *view;
};

int image_memory_read(void *memory, uint64_t offset, void *to, size_t size);

#endif
