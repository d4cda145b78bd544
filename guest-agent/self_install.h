/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `kvmscope-agent install`: this program into the system, and a service that starts it, for the
 * init that is there: systemd, OpenRC, or busybox's with its inittab.
 */
#ifndef KVMSCOPE_GUEST_AGENT_SELF_INSTALL_H
#define KVMSCOPE_GUEST_AGENT_SELF_INSTALL_H

/*
 * The words behind the command: [--root DIR], the system to be changed. Says what it did; exit
 * status: 0 done, 1 failed with its reason on standard error, 2 wrong usage. Doing it twice is as
 * once.
 */
int install_command(int argc, char **argv);
int uninstall_command(int argc, char **argv);

#endif
