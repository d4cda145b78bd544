// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/stack_view.h"

#include <errno.h>

#include "vmm/guest/page_walk.h"

#define PAGE 4096ull
/* Where the copy lies in the view: behind all GPAs, which have 52 bits. */
#define COPY_GPA (1ull << 60)

static bool is_module(const struct guest_kernel *kernel, uint64_t gva)
{
	for (size_t i = 0; i < kernel->module_count; i++)
		if (gva - kernel->modules[i].start < kernel->modules[i].size)
			return true;
	return false;
}

static bool is_code(const struct guest_kernel *kernel, uint64_t gva)
{
	return (gva >= kernel->text_start && gva < kernel->text_end) || is_module(kernel, gva);
}

/* Pages that the copy begins or ends in are partly there. */
static bool is_copied(const struct attach_stack *stack, uint64_t gva)
{
	uint64_t first = stack->registers.rsp & ~(PAGE - 1);

	return stack->size && gva >= first && gva < stack->registers.rsp + stack->size;
}

static int translate(const struct guest_view *view, uint64_t gva,
		     struct guest_translation *translation)
{
	const struct stack_view *self = view->context;
	const struct attach_stack *stack = self->stack;

	if (is_copied(stack, gva)) {
		*translation = (struct guest_translation){
			.gpa = COPY_GPA + (gva - (stack->registers.rsp & ~(PAGE - 1))),
			.page_size = PAGE
		};
		return 0;
	}
	if (!is_code(self->kernel, gva))
		return -EFAULT;
	return guest_translate(self->live, &self->kernel->paging, gva, translation);
}

static int read_live(const struct guest_view *view, uint64_t gpa, void *to, size_t size)
{
	const struct stack_view *self = view->context;

	return guest_read_physical(self->live, gpa, to, size);
}

void stack_view_init(struct stack_view *self, const struct guest_view *live,
		     const struct guest_kernel *kernel, const struct attach_stack *stack)
{
	*self = (struct stack_view){ .live = live, .kernel = kernel, .stack = stack };
	self->regions[0] = (struct guest_region){ .gpa = 0, .size = 1ull << 52 };
	self->regions[1] = (struct guest_region){ .gpa = COPY_GPA + stack->registers.rsp % PAGE,
						  .size = stack->size,
						  .hva = stack->bytes };
	self->view = (struct guest_view){ .regions = self->regions,
					  .region_count = 2,
					  .read = read_live,
					  .translate = translate,
					  .context = self };
}
