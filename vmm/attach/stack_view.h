/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest view of the kernel as it stood when a sample was taken: its stack
 * as it was copied then, its code as it is. All else, which may have changed since, can not be
 * read: a callchain ends there rather than go on with what is not true.
 */
#ifndef KVMSCOPE_ATTACH_STACK_VIEW_H
#define KVMSCOPE_ATTACH_STACK_VIEW_H

#include "vmm/attach/backend.h"
#include "vmm/guest/linux/guest_kernel.h"

struct stack_view {
	struct guest_view view;
	struct guest_region regions[2];
	const struct guest_view *live;
	const struct guest_kernel *kernel;
	const struct attach_stack *stack;
};

/* Everything must outlive VIEW. One thread at a time. */
void stack_view_init(struct stack_view *view, const struct guest_view *live,
		     const struct guest_kernel *kernel, const struct attach_stack *stack);

#endif
