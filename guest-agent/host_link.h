/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Talks with the host on one descriptor: waits for its AGENT_START, then
 * tells events, snapshot, rounds and the time until AGENT_STOP or the next
 * start. While no session is open the guest's kernel is not asked for
 * anything.
 */
#ifndef KVMSCOPE_GUEST_AGENT_HOST_LINK_H
#define KVMSCOPE_GUEST_AGENT_HOST_LINK_H

#include <stdbool.h>

/*
 * Serves FD (not owned, does not block) until it fails, or *STOP is true, or
 * with ONCE until the first session has ended. Negative errno; 0 for the
 * latter two. One at a time in a process.
 */
int session_serve(int fd, bool once, const volatile bool *stop);

#endif
