/* SPDX-License-Identifier: Apache-2.0 */
/* Which container a cgroup is, by its path, where whoever made it has written that there. Any
 * thread. */
#ifndef KVMSCOPE_REPORT_CONTAINER_NAME_H
#define KVMSCOPE_REPORT_CONTAINER_NAME_H

#include <stddef.h>

#define CONTAINER_NAME_SIZE 288 /* a name has NAME_MAX of Linux, 255 bytes, at most */

/*
 * Writes what CGROUP says into NAME of SIZE bytes, cut off where it is longer; "" for a cgroup that
 *is no container's, or does not say so:
 *
 *	.../docker-ID.scope, /docker/ID			docker ID
 *	.../cri-containerd-ID.scope			containerd ID
 *	.../crio-ID.scope, .../libpod-ID.scope		crio ID, podman ID
 *	/kubepods/.../ID				kubernetes ID
 *	/lxc/NAME, /lxc.payload.NAME			lxc NAME
 *	.../machine-NAME.scope				machine NAME (systemd-machined)
 *
 * Of an ID of 64 hexadecimal digits the first 12 stand there, as those programs show it themselves.
 *The innermost counts.
 */
void container_name(const char *cgroup, char *name, size_t size);

#endif
