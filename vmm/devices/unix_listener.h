/* SPDX-License-Identifier: Apache-2.0 */
/* A UNIX stream socket that listens at a path. Any thread. */
#ifndef KVMSCOPE_DEVICES_UNIX_LISTENER_H
#define KVMSCOPE_DEVICES_UNIX_LISTENER_H

/*
 * Listens at PATH, accessible only to the owner, with a backlog of one. Returns a non-blocking
 * descriptor, which the caller closes (and unlinks PATH). A stale socket is replaced. -EADDRINUSE
 * if another process listens there, or PATH is not a socket; -ENAMETOOLONG; the errors of bind(2).
 */
int unix_listener_open(const char *path);

#endif
