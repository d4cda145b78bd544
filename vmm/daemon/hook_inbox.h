/* SPDX-License-Identifier: Apache-2.0 */
/* Receives messages of libvirt's hook (hook_message.h): by a socket while the daemon runs, and
 * from a spool if it did not run or was too slow. The main thread. */
#ifndef KVMSCOPE_DAEMON_HOOK_INBOX_H
#define KVMSCOPE_DAEMON_HOOK_INBOX_H

#include <stdint.h>

#include "vmm/daemon/hook_message.h"

struct hook_inbox;

/* MESSAGE and what it points to are valid during the call only. */
typedef void hook_handler(void *context, const struct hook_message *message);

/* Listens in DIRECTORY, the run directory, which must exist. Replaces a socket that a dead daemon
 * left. -ENOMEM, and the errors of bind(2). */
int hook_inbox_open(struct hook_inbox **inbox, const char *directory, hook_handler *handle,
		    void *context);

/* For poll(): readable when a message has arrived. Not for the spool, which is read each time. */
int hook_inbox_fd(const struct hook_inbox *inbox);

/* Handles all messages, those of the spool first and oldest first. Invalid ones are logged.
 * Removes what a killed hook left unfinished in the spool. */
void hook_inbox_read(struct hook_inbox *inbox);

/* Number of messages that the hook dropped because the spool was full. */
uint64_t hook_inbox_dropped(const struct hook_inbox *inbox);

/* Removes the socket. NULL is a no-op. */
void hook_inbox_close(struct hook_inbox *inbox);

#endif
