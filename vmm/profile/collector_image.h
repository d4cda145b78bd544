/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the collector's kernel is to perf and to the build-id cache: its range,
 * symbols, build id and modules, and their mappings in the file. The
 * collector's thread.
 */
#ifndef KVMSCOPE_PROFILE_COLLECTOR_IMAGE_H
#define KVMSCOPE_PROFILE_COLLECTOR_IMAGE_H

#include "vmm/profile/collector_kernel.h"

/* Fills kernel->image from FOUND (NULL: nothing was found) and the given symbols. -ENOMEM. */
int collector_image_describe(struct collector_kernel *kernel, const struct guest_kernel *found);

/* Takes the modules of FOUND, where OLDER (NULL at first) was before. -ENOMEM: the modules are as they were.
 */
int collector_image_set_modules(struct collector_kernel *kernel, const struct guest_kernel *older,
				const struct guest_kernel *found);

/* Writes the mapping of the kernel and of the modules; of the modules that have none yet. Errors of writing.
 */
int collector_image_map(struct collector_kernel *kernel);
int collector_image_map_modules(struct collector_kernel *kernel);

/* Does ADDRESS lie in the image or in a module? */
bool collector_image_has(const struct collector_kernel *kernel, uint64_t address);

/* Are the given symbols those of a Linux kernel? There are given ones. */
bool collector_image_given_is_linux(const struct collector_kernel *kernel);

#endif
