/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the collector's kernel is to perf and to the build-id cache: its range,
 * symbols, build id and modules, and their mappings in the file. The
 * collector's thread.
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_IMAGE_H
#define KVMSCOPE_RECORD_COLLECTOR_IMAGE_H

#include "vmm/record/collector_kernel.h"

/* Fills kernel->image from FOUND (NULL: nothing was found) and the given symbols. -ENOMEM. */
int collector_image_describe(struct collector_kernel *kernel, const struct guest_kernel *found);

/* The look NOW saw the COUNT modules of LIST. -ENOMEM: the modules are as they were. */
int collector_image_update_modules(struct collector_kernel *kernel, const struct guest_module *list,
				   size_t count, const struct collector_scan *now);

/* Takes the modules' symbols of FOUND, where OLDER (NULL at first) was before. -ENOMEM: they are as
 * they were.
 */
int collector_image_set_modules(struct collector_kernel *kernel, const struct guest_kernel *older,
				const struct guest_kernel *found);

/* Writes the mapping of the kernel and of the modules; what was not told yet of modules. Errors of
 * writing.
 */
int collector_image_map(struct collector_kernel *kernel);
int collector_image_map_modules(struct collector_kernel *kernel);

/* Are the given symbols those of a Linux kernel? There are given ones. */
bool collector_image_given_is_linux(const struct collector_kernel *kernel);

#endif
