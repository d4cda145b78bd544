/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the modules that overlap an address range; modules may overlap each other. One thread. */
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
	uint64_t reach; /* largest end of this one and those before it */
};

/* Room for COUNT. -ENOMEM. */
int module_spans_open(struct module_spans *spans, size_t count);
/* Frees what it holds; zeroed, it holds nothing. */
void module_spans_close(struct module_spans *spans);

/* Adds MODULE, which stays where it is; at most as many as there is room for. */
void module_spans_add(struct module_spans *spans, const struct guest_module *module);
/* After the last one was added. */
void module_spans_finish(struct module_spans *spans);

/*
 * Iterates over the modules that overlap MODULE, until NULL; *AT is the position, 0 at first. The
 * time grows with the number of modules that start before MODULE and end after its start: few.
 */
const struct guest_module *module_spans_next(const struct module_spans *spans,
					     const struct guest_module *module, size_t *at);

#endif
