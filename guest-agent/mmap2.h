/* SPDX-License-Identifier: Apache-2.0 */
/* PERF_RECORD_MMAP2 behind its header, as perf_event_open(2) has it; the path follows. */
#ifndef KVMSCOPE_GUEST_AGENT_MMAP2_H
#define KVMSCOPE_GUEST_AGENT_MMAP2_H

#include <stdint.h>

#include "guest-agent/mapped_build_id.h"

struct mmap2 {
	uint32_t pid, tid;
	uint64_t start, size, offset;
	union {
		struct {
			uint32_t major, minor;
			uint64_t inode, generation;
		};
		struct { /* with PERF_RECORD_MISC_MMAP_BUILD_ID */
			uint8_t build_id_size, reserved[3];
			uint8_t build_id[BUILD_ID_MAX];
		};
	};
	uint32_t prot, flags;
};

#endif
