/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Build ids of mapped files. The agent reads them from the files, as it cannot request them from
 * the kernel (kernel_events.c), and caches them while a file is unchanged.
 */
#ifndef KVMSCOPE_GUEST_AGENT_BUILD_IDS_H
#define KVMSCOPE_GUEST_AGENT_BUILD_IDS_H

#include <stddef.h>
#include <stdint.h>

#include "guest-agent/mapped_build_id.h"
#include "guest-agent/mapped_file.h"

/* Limits for reading files: per second on average, and in one burst. Mappings beyond them get no
 * build id. */
#define BUILD_IDS_RATE  200
#define BUILD_IDS_BURST 1000

/* Stores the build id of MAPPING's file. Returns its size, 0 if the file has none or cannot be
 * identified. */
size_t build_ids_find(const struct mapped_file *mapping, uint8_t build_id[BUILD_ID_MAX]);

/*
 * Adds the build id to RECORD, a whole record of the kernel, if it is a mapping of code. Clears
 * PERF_RECORD_MISC_MMAP_BUILD_ID in a mapping where another user of perf caused it
 * (kernel_events.c).
 */
void build_ids_add(uint8_t *record);

#endif
