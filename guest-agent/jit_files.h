/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JIT maps that the host asked for (AGENT_TABLE_JIT_MAP): each is looked at before a round, and
 * what is new there is told. A round then says of them, too, that nothing is missing.
 */
#ifndef KVMSCOPE_GUEST_AGENT_JIT_FILES_H
#define KVMSCOPE_GUEST_AGENT_JIT_FILES_H

#include <stdint.h>

#include "guest-agent/send_queue.h"

/* That are followed at a time. Of more, those that have waited longest for a file are followed no
 * more; where all have one, who asks is not answered. */
#define JIT_MAPS_MAX 64u

/* From now on follows the map of process PID; from its beginning, if it does so already. */
void jit_maps_request(uint32_t pid);

enum jit_maps_result {
	JIT_MAPS_ALL,
	JIT_MAPS_MORE, /* there is more, which was said; to be called again in JIT_MAPS_INTERVAL_MS
			*/
	JIT_MAPS_NO_ROOM, /* OUTPUT is full: a round must not be told now */
};

/* Bytes of lines that are told in that time, however often they are looked at: as fast as tables,
 * at most. */
#define JIT_MAPS_PART        32768u
#define JIT_MAPS_INTERVAL_MS 16u

/* Tells what is new by now. */
enum jit_maps_result jit_maps_send(struct output *output);

/* Nobody wants them any more. */
void jit_maps_reset(void);

#endif
