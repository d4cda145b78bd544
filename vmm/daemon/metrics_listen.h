/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVMSCOPE_DAEMON_METRICS_LISTEN_H
#define KVMSCOPE_DAEMON_METRICS_LISTEN_H

/*
 * Opens a listening socket at WHERE: "127.0.0.1:9754", "[::1]:9754", port 0: any; or the path of a
 * UNIX socket, "/run/kvmscope/metrics.sock", which only the daemon's user may use. A socket that an
 * earlier daemon left there is replaced. Returns the descriptor; the errors of the socket; -EINVAL:
 * WHERE is none of these.
 */
int metrics_listen(const char *where);

#endif
