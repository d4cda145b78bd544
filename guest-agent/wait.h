/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting, the only place where signals are taken: they are blocked
 * elsewhere, so that none comes between looking whether to stop and waiting.
 */
#ifndef KVMSCOPE_GUEST_AGENT_WAIT_H
#define KVMSCOPE_GUEST_AGENT_WAIT_H

#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>

/* As poll(2); TIMEOUT in ms, -1 without. */
static inline int wait_for_any(struct pollfd *fds, nfds_t count, int timeout)
{
	struct timespec time = { timeout / 1000, timeout % 1000 * 1000000l };
	sigset_t none;

	sigemptyset(&none);
	return ppoll(fds, count, timeout < 0 ? NULL : &time, &none);
}

static inline void wait_ms(int ms)
{
	wait_for_any(NULL, 0, ms);
}

#endif
