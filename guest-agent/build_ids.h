/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The build ids of what processes map: the kernel is not asked for them (perf_sampling.c). Read
 * from the files, and remembered as long as a file does not change.
 */
#ifndef KVMSCOPE_GUEST_AGENT_BUILD_IDS_H
#define KVMSCOPE_GUEST_AGENT_BUILD_IDS_H

#include <stddef.h>
#include <stdint.h>

#include "guest-agent/mapped_build_id.h"
#include "guest-agent/mapped_file.h"

/* Files read in a second, in the long run; what comes faster stays without. And at once. */
#define BUILD_IDS_RATE  200
#define BUILD_IDS_BURST 1000

/* The build id of the file of MAPPING; 0 where there is none, or it can not be told whether it is
 * this one's.
 */
size_t build_ids_find(const struct mapped_file *mapping, uint8_t build_id[BUILD_ID_MAX]);

/* Puts it into RECORD, a whole record of the kernel, if that is a mapping of code, and takes out of
 * a mapping the bit that says so where somebody else has asked for build ids (perf_sampling.c). */
void build_ids_add(uint8_t *record);

#endif
