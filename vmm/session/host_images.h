/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the host's kernel, its modules and the VMM's executable files are mapped: what a recording
 * needs for the host's call chains. Any thread.
 */
#ifndef KVMSCOPE_SESSION_HOST_IMAGES_H
#define KVMSCOPE_SESSION_HOST_IMAGES_H

#include <stddef.h>
#include <sys/types.h>

#include "vmm/record/collector.h"

struct host_images;

/*
 * Reads them for process VMM. What may not be read is missing, with a warning that names the right
 * that is needed; files that the VMM maps later are missing, too. -ENOMEM.
 */
int host_images_read(struct host_images **images, pid_t vmm, enum perspective perspective);
/* Stores the symbols of the host's kernel and modules in perf's build-id cache, for reports on
 * other machines and after the next boot. Warns with the reason if that fails. */
void host_images_store(const struct host_images *images);
/* Their COUNT mappings, valid until host_images_free(). */
const struct perf_data_mapping *host_images_mappings(const struct host_images *images,
						     size_t *count);
void host_images_free(struct host_images *images); /* NULL is a no-op */

#endif
