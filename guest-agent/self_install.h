/* SPDX-License-Identifier: Apache-2.0 */
/* `kvmscope-agent install`: copies this program into the system and adds a service for the init
 * that is there: systemd, OpenRC, or busybox with its inittab.
 */
#ifndef KVMSCOPE_GUEST_AGENT_SELF_INSTALL_H
#define KVMSCOPE_GUEST_AGENT_SELF_INSTALL_H

/* ARGV is the command and [--root DIR], the system to change. Prints each change. Returns the exit
 * status: 0 success, 1 failure with a message on standard error, 2 wrong usage. Both are
 * idempotent.
 */
int install_command(int argc, char **argv);
int uninstall_command(int argc, char **argv);

#endif
