/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/image_queue.h"

#include <stdbool.h>
#include <stdlib.h>

#include "shared/clock_ns.h"

#define FIRST_WAIT   (100 * NS_PER_MS)
#define LONGEST_WAIT (30000 * NS_PER_MS)

struct queued_image {
	struct user_image *image;
	uint64_t since; /* ns, when it was first seen */
	uint64_t next;  /* ns, when it is due */
	uint64_t wait;  /* ns, interval before the next try */
};

/* The array grows whenever its count is a power of two. */
static void add(struct image_queue *waiting, struct user_image *image, uint64_t now)
{
	size_t count = waiting->count;

	if (!(count & (count - 1))) {
		void *grown = realloc(waiting->images,
				      (count ? 2 * count : 1) * sizeof(*waiting->images));

		if (!grown)
			return;
		waiting->images = grown;
	}
	waiting->images[waiting->count++] =
		(struct queued_image){ .image = image, .since = now, .wait = FIRST_WAIT };
}

static void add_new(struct image_queue *waiting, struct user_images *images, uint64_t now)
{
	struct user_image *image;

	if (waiting->generation != user_images_generation(images)) {
		waiting->generation = user_images_generation(images);
		waiting->seen = 0;
		waiting->count = 0;
	}
	while ((image = user_images_loaded(images, waiting->seen))) {
		if (user_image_kind(image) == USER_IMAGE_FILE)
			add(waiting, image, now);
		waiting->seen++;
	}
}

static bool is_due(const struct image_queue *waiting, const struct queued_image *image,
		   uint64_t now)
{
	return image->next <= now && now - image->since >= waiting->delay;
}

struct user_image *image_queue_next(struct image_queue *waiting, struct user_images *images,
				    uint64_t now)
{
	add_new(waiting, images, now);
	for (waiting->due = 0; waiting->due < waiting->count; waiting->due++)
		if (is_due(waiting, &waiting->images[waiting->due], now))
			return waiting->images[waiting->due].image;
	return NULL;
}

void image_queue_retry(struct image_queue *waiting, uint64_t now)
{
	struct queued_image *image = &waiting->images[waiting->due];

	image->next = now + image->wait;
	image->wait = image->wait < LONGEST_WAIT / 2 ? 2 * image->wait : LONGEST_WAIT;
}

void image_queue_done(struct image_queue *waiting)
{
	waiting->images[waiting->due] = waiting->images[--waiting->count];
}

void image_queue_expire(struct image_queue *waiting)
{
	waiting->delay = 0;
	for (size_t i = 0; i < waiting->count; i++)
		waiting->images[i].next = 0;
}

void image_queue_free(struct image_queue *waiting)
{
	free(waiting->images);
	*waiting = (struct image_queue){ 0 };
}
