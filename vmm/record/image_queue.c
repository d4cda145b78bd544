/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/image_queue.h"

#include <assert.h>
#include <stdlib.h>

#include "shared/array.h"
#include "shared/clock_ns.h"

#define FIRST_WAIT   (100 * NS_PER_MS)
#define LONGEST_WAIT (30000 * NS_PER_MS)

struct queued_image {
	struct user_image *image;
	uint64_t since; /* ns, when it was first seen */
	uint64_t next;  /* ns, when it is due; UINT64_MAX: suspended */
	uint64_t wait;  /* ns, interval before the next try */
};

static void add(struct image_queue *queue, struct user_image *image, uint64_t now)
{
	if (array_reserve(&queue->images, &queue->capacity, queue->count + 1))
		return;
	queue->images[queue->count++] =
		(struct queued_image){ .image = image, .since = now, .wait = FIRST_WAIT };
}

static bool is_queued(const struct image_queue *queue, const struct user_image *image)
{
	return user_image_kind(image) == USER_IMAGE_FILE ||
	       (queue->vdso && user_image_kind(image) == USER_IMAGE_VDSO);
}

static void add_new(struct image_queue *queue, struct user_images *images, uint64_t now)
{
	struct user_image *image;

	if (queue->generation != user_images_generation(images)) {
		queue->generation = user_images_generation(images);
		queue->seen = 0;
		queue->count = 0;
	}
	while ((image = user_images_loaded(images, queue->seen))) {
		if (is_queued(queue, image))
			add(queue, image, now);
		queue->seen++;
	}
}

static bool is_due(const struct image_queue *queue, const struct queued_image *image, uint64_t now)
{
	return image->next <= now && now - image->since >= queue->delay;
}

struct user_image *image_queue_next(struct image_queue *queue, struct user_images *images,
				    uint64_t now)
{
	add_new(queue, images, now);
	for (queue->due = 0; queue->due < queue->count; queue->due++)
		if (is_due(queue, &queue->images[queue->due], now))
			return queue->images[queue->due].image;
	return NULL;
}

void image_queue_retry(struct image_queue *queue, uint64_t now)
{
	struct queued_image *image = &queue->images[queue->due];

	image->next = now + image->wait;
	image->wait = image->wait < LONGEST_WAIT / 2 ? 2 * image->wait : LONGEST_WAIT;
}

void image_queue_done(struct image_queue *queue)
{
	queue->images[queue->due] = queue->images[--queue->count];
}

void image_queue_suspend(struct image_queue *queue)
{
	queue->images[queue->due].next = UINT64_MAX;
}

void image_queue_resume(struct image_queue *queue, const struct user_image *image)
{
	for (queue->due = 0; queue->images[queue->due].image != image; queue->due++)
		assert(queue->due + 1 < queue->count);
}

void image_queue_expire(struct image_queue *queue)
{
	queue->delay = 0;
	for (size_t i = 0; i < queue->count; i++)
		queue->images[i].next = 0;
}

void image_queue_free(struct image_queue *queue)
{
	free(queue->images);
	*queue = (struct image_queue){ 0 };
}

int image_memory_read(void *memory, uint64_t offset, void *to, size_t size)
{
	const struct image_memory *from = memory;

	return user_image_read(from->image, from->kernel, from->view, offset, to, size);
}
