/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where messages of libvirt's hook arrive (hook_message.h): a socket while the daemon lives, a
 * spool for the time when it did not, or was too slow. The main thread.
 */
#ifndef KVMSCOPE_DAEMON_HOOK_INBOX_H
#define KVMSCOPE_DAEMON_HOOK_INBOX_H

#include <stdint.h>

#include "vmm/daemon/hook_message.h"

struct hook_inbox;

/* MESSAGE and what it points to are valid during the call. */
typedef void hook_taker(void *context, const struct hook_message *message);

/*
 * Listens in DIRECTORY, the run directory, which is there. One that a dead daemon left is replaced.
 * -ENOMEM, and the errors of bind(2).
 */
int hook_inbox_open(struct hook_inbox **inbox, const char *directory, hook_taker *take,
		    void *context);

/* Can be polled: readable when there is something to take. The spool is not told of: it is looked
 * into each time. */
int hook_inbox_fd(const struct hook_inbox *inbox);

/* Gives all that came, the spool's first and oldest first. What is no message is left out, and
 * said. What a hook that was killed did not finish in the spool goes. */
void hook_inbox_take(struct hook_inbox *inbox);

/* Messages that the hook dropped for want of room in the spool. */
uint64_t hook_inbox_dropped(const struct hook_inbox *inbox);

/* Removes the socket. Works on NULL. */
void hook_inbox_close(struct hook_inbox *inbox);

#endif
