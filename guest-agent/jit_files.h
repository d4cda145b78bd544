/* SPDX-License-Identifier: Apache-2.0 */
/* The JIT maps that the host requested (AGENT_TABLE_JIT_MAP). Their new lines are sent before each
 * round, so that a round covers them, too.
 */
#ifndef KVMSCOPE_GUEST_AGENT_JIT_FILES_H
#define KVMSCOPE_GUEST_AGENT_JIT_FILES_H

#include <stdint.h>

#include "guest-agent/send_queue.h"

/* Most maps followed at the same time. A further request replaces the map that has waited longest
 * for a file; if all have one, the request is ignored. */
#define JIT_MAPS_MAX 64u

/* Starts following the map of process PID; restarts from its beginning if it is followed already.
 */
void jit_maps_request(uint32_t pid);

enum jit_maps_result {
	JIT_MAPS_ALL,
	JIT_MAPS_MORE, /* lines are left, and reported as such; call again in JIT_MAPS_INTERVAL_MS
			*/
	JIT_MAPS_NO_ROOM, /* OUTPUT is full: do not send a round now */
};

/* Rate limit: bytes of lines per interval, the same as for tables. */
#define JIT_MAPS_PART        32768u
#define JIT_MAPS_INTERVAL_MS 16u

/* Sends the lines that are new. */
enum jit_maps_result jit_maps_send(struct output *output);

/* The session ended: stops following all maps. */
void jit_maps_reset(void);

#endif
