/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Installs the hook as qemu.d/kvmscope in libvirt's directory of hooks, where libvirt (from 6.5
 * on) runs every program (libvirt: docs/hooks.html). The program is copied, not linked: security
 * modules let libvirtd run only what is in its own configuration. Files of others are never
 * changed. Main thread.
 */
#ifndef KVMSCOPE_DAEMON_HOOK_INSTALL_H
#define KVMSCOPE_DAEMON_HOOK_INSTALL_H

#include <limits.h>
#include <stdbool.h>

#define HOOKS_DIRECTORY "/etc/libvirt/hooks"

enum hook_state {
	HOOK_ABSENT,
	HOOK_CURRENT, /* of this version */
	HOOK_OTHER,   /* of another version of kvmscope */
	HOOK_FOREIGN, /* not kvmscope's */
};

/* Determines the state of the hook in HOOKS, libvirt's directory, and its PATH. The errors of
 * reading it; -ENAMETOOLONG. */
int hook_find(const char *hooks, enum hook_state *state, char path[PATH_MAX]);

/* True if there is another QEMU hook, so that a running libvirt already reads this directory. */
bool hook_has_others(const char *hooks);

/* Installs or updates the hook. -EEXIST: another file has its name; the errors of mkdir(2),
 * open(2), rename(2). */
int hook_install(const char *hooks);

/*
 * Removes our hook, and its directory if that is empty. -ENOENT: there is none; -EEXIST as above.
 */
int hook_uninstall(const char *hooks);

#endif
