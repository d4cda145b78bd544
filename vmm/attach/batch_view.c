// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/batch_view.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "shared/clock_ns.h"

static const uint8_t *find_page(const struct batch_view *self, uint64_t gpa)
{
	size_t there = self->count < BATCH_VIEW_PAGES ? self->count : BATCH_VIEW_PAGES;

	for (size_t i = 0; i < there; i++)
		if (self->gpas[i] == gpa)
			return self->pages[i];
	return NULL;
}

/* NULL: it is not all RAM. */
static const uint8_t *read_page(struct batch_view *self, uint64_t gpa)
{
	size_t place = self->count % BATCH_VIEW_PAGES;

	/* Until it is read, there is none in its place. */
	self->gpas[place] = UINT64_MAX;
	self->count++;
	if (guest_read_physical(self->live, gpa, self->pages[place], BATCH_VIEW_PAGE))
		return NULL;
	self->gpas[place] = gpa;
	return self->pages[place];
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

void batch_view_forget(struct batch_view *self)
{
	self->since = 0;
}
