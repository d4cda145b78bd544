/* SPDX-License-Identifier: Apache-2.0 */
/* Answers the host's requests for tables (AGENT_REQUEST): one at a time, compressed, in small
 * parts, at most at TABLE_RATE, and only while nothing else is queued. This limits the cost in the
 * guest and never delays events.
 */
#ifndef KVMSCOPE_GUEST_AGENT_TABLE_SENDER_H
#define KVMSCOPE_GUEST_AGENT_TABLE_SENDER_H

#include <stdbool.h>
#include <stdint.h>

#include "guest-agent/send_queue.h"
#include "shared/agent_protocol.h"

/* Uncompressed bytes: TABLE_PART per interval, TABLE_RATE per second. */
#define TABLE_PART        32768u
#define TABLE_INTERVAL_MS 16u
#define TABLE_RATE        (TABLE_PART * 1000u / TABLE_INTERVAL_MS)

/* Accepts MESSAGE, of type AGENT_REQUEST; an invalid one is ignored. */
void table_request(const struct agent_message *message, struct output *output);

/* Time (clock_raw_ms()) of the next table_step(); UINT64_MAX: no request. */
uint64_t table_due(void);

/* Queues the next part if it is due and OUTPUT is empty. False if it queued nothing. */
bool table_step(struct output *output);

/* Cancels the request. */
void table_cancel(void);

#endif
