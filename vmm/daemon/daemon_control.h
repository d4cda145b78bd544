/* SPDX-License-Identifier: Apache-2.0 */
/* The control commands of kvmscoped: docs/control-protocol.md. */
#ifndef KVMSCOPE_DAEMON_DAEMON_CONTROL_H
#define KVMSCOPE_DAEMON_DAEMON_CONTROL_H

#include "vmm/daemon/domain_set.h"
#include "vmm/daemon/hook_inbox.h"

struct daemon_control;

/*
 * Listens at DIRECTORY/kvmscoped.sock. All arguments must outlive it. -EADDRINUSE: another daemon
 * listens there; -ENOMEM, the errors of control_socket_open_at() and control_start(). Main thread.
 */
int daemon_control_open(struct daemon_control **control, const char *directory,
			struct domains *domains, const struct hook_inbox *inbox);
/* NULL is a no-op. */
void daemon_control_close(struct daemon_control *control);

#endif
