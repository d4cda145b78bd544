/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/sample_views.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/page_walk.h"

#define PAGE 4096ull
/* GPAs of the copies in the view: above all real ones, which have 52 bits. */
#define COPY_GPA(kind) ((1ull << 60) + ((uint64_t)(kind) << 40))
#define EFER_NXE       (1ull << 11)
#define PAGE_WRITABLE  (1ull << 1)
#define PAGE_NX        (1ull << 63)

static bool is_kernel_code(const struct guest_kernel *kernel, uint64_t gva)
{
	if (!kernel)
		return false;
	if (gva >= kernel->text_start && gva < kernel->text_end)
		return true;
	for (size_t i = 0; i < kernel->module_count; i++)
		if (gva - kernel->modules[i].start < kernel->modules[i].size)
			return true;
	return false;
}

/* Includes the partly copied pages at both ends. */
static bool find_copy(const struct attach_guest_state *stack, uint64_t gva, uint64_t *gpa)
{
	for (unsigned int i = 0; i < ATTACH_STACKS; i++) {
		const struct attach_stack *copy = &stack->stacks[i];
		uint64_t first = copy->gva & ~(PAGE - 1);

		if (!copy->size || gva < first || gva - first >= copy->gva - first + copy->size)
			continue;
		*gpa = COPY_GPA(i) + (gva - first);
		return true;
	}
	return false;
}

/* Linux has no executable data, as far as the processor can forbid that. Also of a kernel that is
 * not known yet. */
static int translate_user_code(const struct stack_view *self, uint64_t gva,
			       struct guest_translation *translation)
{
	const struct guest_paging *paging = &self->stack->registers.paging;

	if (!(paging->efer & EFER_NXE) || guest_translate(self->live, paging, gva, translation) ||
	    translation->flags & PAGE_NX)
		return -EFAULT;
	return 0;
}

/* A module that is not listed yet: Linux maps its code read-only, and nothing else executable
 * (CONFIG_STRICT_MODULE_RWX). */
static int translate_new_code(const struct stack_view *self, uint64_t gva,
			      struct guest_translation *translation)
{
	const struct guest_paging *paging = &self->kernel->paging;

	if (!(paging->efer & EFER_NXE) || guest_translate(self->live, paging, gva, translation) ||
	    translation->flags & (PAGE_NX | PAGE_WRITABLE))
		return -EFAULT;
	return 0;
}

static int translate(const struct guest_view *view, uint64_t gva,
		     struct guest_translation *translation)
{
	const struct stack_view *self = view->context;
	uint64_t gpa;

	if (find_copy(self->stack, gva, &gpa)) {
		*translation = (struct guest_translation){ .gpa = gpa, .page_size = PAGE };
		return 0;
	}
	if (is_kernel_code(self->kernel, gva))
		return guest_translate(self->live, &self->kernel->paging, gva, translation);
	return self->kernel && gva >> 63 ? translate_new_code(self, gva, translation)
					 : translate_user_code(self, gva, translation);
}

static int read_live(const struct guest_view *view, uint64_t gpa, void *to, size_t size)
{
	const struct stack_view *self = view->context;

	return guest_read_physical(self->live, gpa, to, size);
}

void stack_view_init(struct stack_view *self, const struct guest_view *live,
		     const struct guest_kernel *kernel, const struct attach_guest_state *stack)
{
	size_t count = 1;

	*self = (struct stack_view){ .live = live, .kernel = kernel, .stack = stack };
	self->regions[0] = (struct guest_region){ .gpa = 0, .size = 1ull << 52 };
	for (unsigned int i = 0; i < ATTACH_STACKS; i++)
		if (stack->stacks[i].size)
			self->regions[count++] =
				(struct guest_region){ .gpa = COPY_GPA(i) +
							      stack->stacks[i].gva % PAGE,
						       .size = stack->stacks[i].size,
						       .hva = stack->stacks[i].bytes };
	self->view = (struct guest_view){ .regions = self->regions,
					  .region_count = count,
					  .read = read_live,
					  .translate = translate,
					  .context = self };
}

static const uint8_t *find_page(const struct batch_view *self, uint64_t gpa)
{
	size_t there = self->count < BATCH_VIEW_PAGES ? self->count : BATCH_VIEW_PAGES;

	for (size_t i = 0; i < there; i++)
		if (self->gpas[i] == gpa)
			return self->pages[i];
	return NULL;
}

/* NULL: not RAM. */
static const uint8_t *read_page(struct batch_view *self, uint64_t gpa)
{
	size_t slot = self->count % BATCH_VIEW_PAGES;

	/* Invalid while the page is being read. */
	self->gpas[slot] = UINT64_MAX;
	self->count++;
	if (guest_read_physical(self->live, gpa, self->pages[slot], BATCH_VIEW_PAGE))
		return NULL;
	self->gpas[slot] = gpa;
	return self->pages[slot];
}

static int read_in_page(struct batch_view *self, uint64_t gpa, void *to, size_t size)
{
	uint64_t offset = gpa % BATCH_VIEW_PAGE;
	const uint8_t *page = find_page(self, gpa - offset);

	if (!page)
		page = read_page(self, gpa - offset);
	if (!page)
		return guest_read_physical(self->live, gpa, to, size);
	memcpy(to, page + offset, size);
	return 0;
}

static int read_batch(const struct guest_view *view, uint64_t gpa, void *to, size_t size)
{
	uint8_t *bytes = to;

	while (size) {
		uint64_t left = BATCH_VIEW_PAGE - gpa % BATCH_VIEW_PAGE;
		size_t part = left < size ? (size_t)left : size;

		if (read_in_page(view->context, gpa, bytes, part))
			return -EFAULT;
		bytes += part;
		gpa += part;
		size -= part;
	}
	return 0;
}

const struct guest_view *batch_view_for(struct batch_view *self, const struct guest_view *live,
					uint64_t time)
{
	if (!self->since || time >= self->since) {
		self->count = 0;
		self->since = clock_ns(CLOCK_MONOTONIC_RAW);
	}
	self->live = live;
	self->everything = (struct guest_region){ .gpa = 0, .size = UINT64_MAX };
	self->view = (struct guest_view){ .regions = &self->everything,
					  .region_count = 1,
					  .read = read_batch,
					  .context = self,
					  .remote = live->remote };
	return &self->view;
}

void batch_view_invalidate(struct batch_view *self)
{
	self->since = 0;
}

const struct guest_view *batch_mappings_before(struct batch_mappings *self,
					       const struct guest_view *live, uint64_t time)
{
	uint64_t since = self->before.since;
	const struct guest_view *view = batch_view_for(&self->before, live, time);

	if (self->before.since != since)
		self->after_valid = false;
	return view;
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
		    address >= self->found[i].mapping.start && address < self->found[i].mapping.end)
			return &self->found[i].mapping;
	return NULL;
}

static void find_mapping(struct batch_mappings *self, struct user_map *map,
			 const struct guest_task *task, uint64_t address)
{
	const struct user_mapping *mapping = user_map_find(map, address);

	self->after_valid = false;
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
		find_mapping(self, map, task, address);
}

static bool is_after_valid(const struct batch_mappings *self, const struct batch_view *code)
{
	return self->after_valid && self->code_since == code->since &&
	       self->code_pages == code->count;
}

const struct guest_view *batch_mappings_after(struct batch_mappings *self,
					      const struct guest_view *live,
					      const struct batch_view *code)
{
	if (!is_after_valid(self, code))
		batch_view_invalidate(&self->after);
	self->after_valid = true;
	self->code_since = code->since;
	self->code_pages = code->count;
	return batch_view_for(&self->after, live, 0);
}
