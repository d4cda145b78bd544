/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every module that a guest's kernel was seen with during a recording. perf
 * takes the symbols of a boot only if all modules of the recording stand
 * there where they were, so one that is unloaded stays, with its symbols.
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_MODULES_H
#define KVMSCOPE_RECORD_COLLECTOR_MODULES_H

#include <stdbool.h>
#include <stddef.h>

#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/symbol_table.h"
#include "vmm/record/module_timeline.h"

/* Zeroed: none yet. */
struct collector_modules {
	struct guest_module *modules; /* owned; no two of one name; new ones are added at the end */
	bool *gone;                   /* owned; for each: it is loaded no more */
	bool *shared;                 /* owned; for each: its place was another one's, too */
	size_t count;
	struct module_timeline timeline;
	struct symbols *unloaded; /* owned; of those gone; NULL: of none */
};

/*
 * The look NOW saw the COUNT modules of LIST; LATEST was the look before. One that comes back at
 * another address is left out: perf knows a module by its name. 0 or -ENOMEM: of new ones less is
 * known then.
 */
int collector_modules_scan(struct collector_modules *modules, const struct guest_module *list,
			   size_t count, const struct collector_scan *latest,
			   const struct collector_scan *now);

/*
 * NEWER has the symbols of the modules that were seen last; OLDER is the kernel as it was before,
 * NULL at first: of those that are gone its symbols are kept. 0 or -ENOMEM, with what was known
 * before.
 */
int collector_modules_update(struct collector_modules *modules, const struct guest_kernel *older,
			     const struct guest_kernel *newer);

/* Frees what it holds; zeroed, it holds nothing. */
void collector_modules_free(struct collector_modules *modules);

#endif
