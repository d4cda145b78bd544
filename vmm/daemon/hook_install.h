/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hook's place: QEMU.D/kvmscope below libvirt's directory of hooks, where libvirt runs whatever
 * it finds (from 6.5 on; libvirt: docs/hooks.html). The program itself is copied there, no link to
 * it: security modules let libvirtd run what lies in its own configuration. What others have there
 * is never touched. Main thread.
 */
#ifndef KVMSCOPE_DAEMON_HOOK_INSTALL_H
#define KVMSCOPE_DAEMON_HOOK_INSTALL_H

#include <limits.h>
#include <stdbool.h>

#define HOOKS_DIRECTORY "/etc/libvirt/hooks"

enum hook_state {
	HOOK_ABSENT,
	HOOK_CURRENT, /* it is this program's */
	HOOK_OTHER,   /* it is kvmscope's, of another version */
	HOOK_FOREIGN, /* it is somebody else's */
};

/* Of HOOKS, libvirt's directory; PATH gets the hook's. The errors of reading it; -ENAMETOOLONG. */
int hook_find(const char *hooks, enum hook_state *state, char path[PATH_MAX]);

/* Is there a hook of another's for QEMU, so that libvirt that runs has looked here already? */
bool hook_has_others(const char *hooks);

/* Puts it there, or brings it up to date. -EEXIST: somebody else's is there; the errors of
 * mkdir(2), open(2), rename(2). */
int hook_install(const char *hooks);

/* Removes ours, and its directory if nothing else is in it. -ENOENT: there is none; -EEXIST as
 * above. */
int hook_uninstall(const char *hooks);

#endif
