/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/kernel_image.h"

#include <errno.h>
#include <stdlib.h>

#include "vmm/guest/linux/kallsyms.h"
#include "vmm/guest/page_walk.h"

#define STEP     (64ull << 10) /* images are aligned to 2 MiB, holes in them end at pages */
#define CHUNK    (256ull << 10)
#define COPY_MAX (256ull << 20)

/* The size of the page at GVA, 0 if it is not mapped to RAM. */
static uint64_t mapped_page(const struct guest_view *view, const struct guest_paging *paging,
			    uint64_t gva)
{
	struct guest_translation translation;
	uint8_t byte;

	if (guest_translate(view, paging, gva, &translation) ||
	    guest_read_physical(view, translation.gpa, &byte, 1))
		return 0;
	return translation.page_size;
}

bool kernel_image_next_range(const struct guest_view *view, const struct guest_paging *paging,
			     uint64_t from, struct mapped_range *range)
{
	uint64_t start = kernel_image_start(paging), end = kernel_image_end(paging);
	uint64_t gva = from < start ? start : from, page = 0;

	while (gva < end && !(page = mapped_page(view, paging, gva)))
		gva = (gva | (STEP - 1)) + 1;
	if (!page)
		return false;
	range->start = gva & ~(page - 1);
	if (range->start < from)
		range->start = gva;
	while (gva < end && (page = mapped_page(view, paging, gva)))
		gva = (gva | (page - 1)) + 1;
	range->end = gva < end ? gva : end;
	return true;
}

int kernel_image_find_token_index(const struct guest_view *view, const struct guest_paging *paging,
				  const struct mapped_range *range, uint64_t from,
				  uint64_t *token_index)
{
	uint8_t *chunk = malloc(CHUNK);
	int error = chunk ? -ENOENT : -ENOMEM;

	while (error == -ENOENT && from < range->end) {
		uint64_t size = range->end - from < CHUNK ? range->end - from : CHUNK;
		uint64_t offset;

		if (guest_read_virtual(view, paging, from, chunk, size)) {
			error = -EFAULT;
		} else if (kallsyms_find_token_index(span_of(chunk, size), 0, &offset)) {
			*token_index = from + offset;
			error = 0;
		} else if (size < CHUNK) {
			break;
		}
		/* Tokens and index must be in one chunk: chunks overlap by more than both. */
		from += CHUNK - (32ull << 10);
	}
	free(chunk);
	return error;
}

int guest_copy_virtual(const struct guest_view *view, const struct guest_paging *paging,
		       uint64_t gva, uint64_t size, uint8_t **copy)
{
	if (size > COPY_MAX)
		return -EFBIG;
	*copy = malloc(size ? size : 1);
	if (!*copy)
		return -ENOMEM;
	if (guest_read_virtual(view, paging, gva, *copy, size)) {
		free(*copy);
		*copy = NULL;
		return -EFAULT;
	}
	return 0;
}
