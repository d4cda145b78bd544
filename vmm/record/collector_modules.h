/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every module that was loaded during a recording. perf accepts the symbols of a boot only if all
 * modules of the recording are listed at their addresses, so unloaded ones stay, with their
 * symbols.
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
	bool *gone;                   /* owned; for each: unloaded */
	bool *shared;                 /* owned; for each: others were at its addresses, too */
	size_t count, capacity;
	struct module_timeline timeline;
	struct symbols *unloaded; /* owned; of the unloaded ones; NULL: none */
};

/*
 * The scan NOW found the COUNT modules of LIST; LATEST was the scan before. A module that comes
 * back at another address is left out: perf identifies modules by name. 0, or -ENOMEM: some new
 * ones may be missing.
 */
int collector_modules_scan(struct collector_modules *modules, const struct guest_module *list,
			   size_t count, const struct collector_scan *latest,
			   const struct collector_scan *now);

/* NEWER has the symbols of the modules that were found last. Symbols of modules that are gone are
 * kept from OLDER, the previous kernel, NULL at first. 0, or -ENOMEM with everything unchanged. */
int collector_modules_update(struct collector_modules *modules, const struct guest_kernel *older,
			     const struct guest_kernel *newer);

/* Frees what it holds; zeroed, it holds nothing. */
void collector_modules_free(struct collector_modules *modules);

#endif
