/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers the host's questions for tables (AGENT_REQUEST): one at a time, in small
 * parts, compressed, not faster than TABLE_RATE, and only while nothing else waits to be sent. So
 * it costs the guest little, and never makes events wait.
 */
#ifndef KVMSCOPE_GUEST_AGENT_TABLE_SENDER_H
#define KVMSCOPE_GUEST_AGENT_TABLE_SENDER_H

#include <stdbool.h>
#include <stdint.h>

#include "guest-agent/send_queue.h"
#include "shared/agent_protocol.h"

/* Bytes a second, before they are compressed: so many at once in each interval. */
#define TABLE_PART        32768u
#define TABLE_INTERVAL_MS 16u
#define TABLE_RATE        (TABLE_PART * 1000u / TABLE_INTERVAL_MS)

/* Takes MESSAGE, of type AGENT_REQUEST; one that can not be is passed over. */
void table_request(const struct agent_message *message, struct output *output);

/* When, in ms of clock_raw_ms(), table_step() has something to do; UINT64_MAX: nothing is asked
 * for. */
uint64_t table_due(void);

/* One part into OUTPUT, if it is time and OUTPUT is empty. False: there is nothing new in it. */
bool table_step(struct output *output);

/* Nobody wants the rest any more. */
void table_cancel(void);

#endif
