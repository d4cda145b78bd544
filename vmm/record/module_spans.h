/* SPDX-License-Identifier: Apache-2.0 */
/* Where modules lie, of which some may lie in each other's place: which of them are in a range. One
 * thread.
 */
#ifndef KVMSCOPE_RECORD_MODULE_SPANS_H
#define KVMSCOPE_RECORD_MODULE_SPANS_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/linux/guest_kernel.h"

/* Zeroed: none. */
struct module_spans {
	struct module_span *spans; /* owned; by start */
	size_t count;
};

struct module_span {
	const struct guest_module *module;
	uint64_t reach; /* where the last ends, of this one and those before it */
};

/* Room for COUNT. -ENOMEM. */
int module_spans_open(struct module_spans *spans, size_t count);
/* Frees what it holds; zeroed, it holds nothing. */
void module_spans_close(struct module_spans *spans);

/* One of them, no more than there is room for; it must stay where it is. */
void module_spans_add(struct module_spans *spans, const struct guest_module *module);
/* All were added. */
void module_spans_finish(struct module_spans *spans);

/*
 * Those in whose place MODULE is, one after the other, until NULL; AT is where the search is, 0 at
 * first. Each in time that grows with how many lie before MODULE and reach behind its start, which
 * few do.
 */
const struct guest_module *module_spans_next(const struct module_spans *spans,
					     const struct guest_module *module, size_t *at);

#endif
