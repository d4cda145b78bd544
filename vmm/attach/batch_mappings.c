// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/batch_mappings.h"

#include "vmm/guest/linux/guest_kernel.h"

const struct guest_view *batch_mappings_before(struct batch_mappings *self,
					       const struct guest_view *live, uint64_t time)
{
	uint64_t since = self->before.since;
	const struct guest_view *view = batch_view_for(&self->before, live, time);

	if (self->before.since != since)
		self->behind_begun = false;
	return view;
}

static bool covers(const struct user_mapping *mapping, uint64_t address)
{
	return address - mapping->start < mapping->end - mapping->start;
}

static bool is_of(const struct batch_mapping *found, const struct batch_mappings *self,
		  const struct user_map *map, const struct guest_task *task)
{
	return found->mm == task->mm && found->page_table == task->page_table &&
	       found->since == self->before.since && found->pages == self->before.count &&
	       found->images == user_images_generation(map->kernel->images);
}

static const struct user_mapping *find_found(const struct batch_mappings *self,
					     const struct user_map *map,
					     const struct guest_task *task, uint64_t address)
{
	size_t there = self->count < BATCH_MAPPINGS ? self->count : BATCH_MAPPINGS;

	for (size_t i = 0; i < there; i++)
		if (is_of(&self->found[i], self, map, task) &&
		    covers(&self->found[i].mapping, address))
			return &self->found[i].mapping;
	return NULL;
}

static void look(struct batch_mappings *self, struct user_map *map, const struct guest_task *task,
		 uint64_t address)
{
	const struct user_mapping *mapping = user_map_find(map, address);

	self->behind_begun = false;
	if (mapping)
		self->found[self->count++ % BATCH_MAPPINGS] =
			(struct batch_mapping){ .mm = task->mm,
						.page_table = task->page_table,
						.images =
							user_images_generation(map->kernel->images),
						.since = self->before.since,
						.pages = self->before.count,
						.mapping = *mapping };
}

void batch_mappings_find(struct batch_mappings *self, struct user_map *map,
			 const struct guest_task *task, uint64_t address)
{
	const struct user_mapping *mapping;

	if (!map->mm || user_map_find_cached(map, address))
		return;
	mapping = find_found(self, map, task, address);
	if (mapping)
		user_map_add(map, mapping);
	else
		look(self, map, task, address);
}

static bool is_behind(const struct batch_mappings *self, const struct batch_view *code)
{
	return self->behind_begun && self->code_since == code->since &&
	       self->code_pages == code->count;
}

const struct guest_view *batch_mappings_behind(struct batch_mappings *self,
					       const struct guest_view *live,
					       const struct batch_view *code)
{
	if (!is_behind(self, code))
		batch_view_forget(&self->behind);
	self->behind_begun = true;
	self->code_since = code->since;
	self->code_pages = code->count;
	return batch_view_for(&self->behind, live, 0);
}
