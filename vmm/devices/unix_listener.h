/* SPDX-License-Identifier: Apache-2.0 */
/* A UNIX stream socket that listens at a path. Any thread. */
#ifndef KVMSCOPE_DEVICES_UNIX_LISTENER_H
#define KVMSCOPE_DEVICES_UNIX_LISTENER_H

/*
 * Listens at PATH, accessible to the owner only, with a backlog of one;
 * returns the descriptor, non-blocking, which the caller closes (and unlinks
 * PATH). A socket that nobody listens on any more is replaced. -EADDRINUSE if
 * somebody does, or PATH is something else; -ENAMETOOLONG; the errors of bind(2).
 */
int unix_listener_open(const char *path);

#endif
