/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's kernel as perf and the build-id cache have it: range, symbols, build id and modules,
 * and their mappings in the file. Collector thread.
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_IMAGE_H
#define KVMSCOPE_RECORD_COLLECTOR_IMAGE_H

#include "vmm/record/collector_kernel.h"

/* Fills kernel->boot.image from FOUND (NULL: none) and the given symbols. -ENOMEM. */
int collector_image_describe(struct collector_kernel *kernel, const struct guest_kernel *found);

/* The scan NOW found the COUNT modules of LIST. -ENOMEM: the modules are unchanged. */
int collector_image_update_modules(struct collector_kernel *kernel, const struct guest_module *list,
				   size_t count, const struct collector_scan *now);

/* Takes the symbols of modules from FOUND, which replaces OLDER (NULL at first). -ENOMEM: they are
 * unchanged. */
int collector_image_set_modules(struct collector_kernel *kernel, const struct guest_kernel *older,
				const struct guest_kernel *found);

/* Write the mappings of kernel and modules; only of modules, those not yet written. Errors of
 * writing. */
int collector_image_map(struct collector_kernel *kernel);
int collector_image_map_modules(struct collector_kernel *kernel);

/* Are the given symbols, which there are, those of a Linux kernel? */
bool collector_image_given_is_linux(const struct collector_kernel *kernel);

/*
 * For a guest that is a single ELF program, whose code may run at any privilege level: writes a
 * user-space mapping for each executable segment of the ELF file PATH, at its virtual addresses.
 * -EINVAL if it is not an ELF file; the errors of open() and of writing.
 */
int collector_image_map_program(struct perf_data_writer *writer, const char *path, pid_t pid);

#endif
