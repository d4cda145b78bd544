/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/numbered_frames.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/error.h"
#include "shared/hash.h"
#include "vmm/report/folded.h"

#define ROOTS_MAX    2  /* program and thread */
#define COMM_VISIBLE 15 /* bytes of a name that a comm has (TASK_COMM_LEN) */

static const char *image_of(const struct profile_frame *frame)
{
	return frame ? frame->image : NULL;
}

static const char *build_of(const struct profile_frame *frame)
{
	return frame ? frame->build_id : NULL;
}

static bool same_frame(const void *item, const void *key)
{
	const struct numbered_frame *a = item, *b = key;

	return a->name == b->name && image_of(a->frame) == image_of(b->frame) &&
	       build_of(a->frame) == build_of(b->frame);
}

static int add_frame(struct numbered_frames *frames, const struct numbered_frame *wanted,
		     uint64_t hash)
{
	struct numbered_frame *frame = pool_alloc(&frames->pool, sizeof(*frame));

	if (!frame || hash_table_add(&frames->table, hash, frame) ||
	    array_reserve(&frames->list, &frames->capacity, frames->count + 1))
		return -ENOMEM;
	*frame = *wanted;
	frame->number = (uint32_t)frames->count;
	frames->list[frames->count++] = frame;
	return 0;
}

/* Appends the number of a frame to STACK. 0 or -ENOMEM. */
static int append(struct numbered_frames *frames, struct numbered_stack *stack, const char *name,
		  const struct profile_frame *of)
{
	struct numbered_frame wanted = { .name = pool_string(&frames->pool, name), .frame = of };
	const struct numbered_frame *found;
	uint64_t hash = hash_mix((uintptr_t)wanted.name, (uintptr_t)image_of(of));

	if (!wanted.name)
		return -ENOMEM;
	hash = hash_mix(hash, (uintptr_t)build_of(of));
	found = hash_table_find(&frames->table, hash, same_frame, &wanted);
	if (!found && add_frame(frames, &wanted, hash))
		return -ENOMEM;
	stack->frames[stack->depth++] = found ? found->number : (uint32_t)frames->count - 1;
	return 0;
}

/* A thread's comm is by default the beginning of its program's name. */
static bool thread_has_name(const struct profile_stack *stack)
{
	return *stack->comm && *stack->app && strncmp(stack->comm, stack->app, COMM_VISIBLE) != 0;
}

static const struct numbered_stack *number_stack(struct numbered_frames *frames,
						 const struct profile_stack *stack)
{
	struct numbered_stack *numbered = pool_alloc(
		&frames->pool, sizeof(*numbered) + (ROOTS_MAX + stack->depth) * sizeof(uint32_t));
	char text[256];
	const char *root = *stack->app ? stack->app : folded_comm(stack, text, sizeof(text));
	int error = numbered ? append(frames, numbered, root, NULL) : -ENOMEM;

	if (!error && thread_has_name(stack))
		error = append(frames, numbered, stack->comm, NULL);
	for (size_t i = stack->depth; i-- > 0 && !error;)
		error = append(frames, numbered,
			       folded_frame_name(stack->frames[i], text, sizeof(text)),
			       stack->frames[i]);
	return error ? NULL : numbered;
}

int numbered_frames_make(struct numbered_frames *frames, const struct profile *profile)
{
	size_t count = profile_stack_count(profile), done = 0;

	*frames = (struct numbered_frames){ 0 };
	frames->stacks = calloc(count + 1, sizeof(*frames->stacks));
	for (; frames->stacks && done < count; done++) {
		frames->stacks[done] = number_stack(frames, profile_stack(profile, done));
		if (!frames->stacks[done])
			break;
	}
	if (!frames->stacks || done < count)
		return error_set(-ENOMEM, "no memory for the profile");
	return 0;
}

void numbered_frames_free(struct numbered_frames *frames)
{
	hash_table_free(&frames->table);
	pool_free(&frames->pool);
	free(frames->list);
	free(frames->stacks);
}

size_t samples_of_vcpu(const struct profile *profile, size_t first)
{
	const struct profile_sample *samples = profile_samples_by_vcpu(profile);
	size_t all = (size_t)profile_samples(profile), end = first;

	while (end < all && samples[end].vcpu == samples[first].vcpu)
		end++;
	return end - first;
}

void vcpu_name(uint32_t vcpu, char *text, size_t size)
{
	if (vcpu == UINT32_MAX)
		snprintf(text, size, "unknown vCPU");
	else
		snprintf(text, size, "vCPU %u", vcpu);
}
