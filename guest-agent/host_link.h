/* SPDX-License-Identifier: Apache-2.0 */
/* The session with the host on one descriptor: waits for AGENT_START, then sends events, the
 * snapshot, rounds and pongs until AGENT_STOP or the next AGENT_START. Without a session the agent
 * uses nothing of the guest's kernel.
 */
#ifndef KVMSCOPE_GUEST_AGENT_HOST_LINK_H
#define KVMSCOPE_GUEST_AGENT_HOST_LINK_H

#include <stdbool.h>

/* Serves FD (not owned, non-blocking) until it fails, *STOP is true or, with ONCE, the first
 * session has ended. Returns a negative errno on failure, else 0. Once per process at a time.
 */
int session_serve(int fd, bool once, const volatile bool *stop);

#endif
