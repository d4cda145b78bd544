/* SPDX-License-Identifier: Apache-2.0 */
/* The container of a cgroup, from the path that the container runtime gave it. Any thread. */
#ifndef KVMSCOPE_REPORT_CONTAINER_NAME_H
#define KVMSCOPE_REPORT_CONTAINER_NAME_H

#include <stddef.h>

#define CONTAINER_NAME_SIZE 288 /* runtime and a name of up to NAME_MAX, 255 bytes */

/*
 * Writes the name to NAME of SIZE bytes, truncated if necessary; "" if the path names no container:
 *
 *	.../docker-ID.scope, /docker/ID			docker ID
 *	.../cri-containerd-ID.scope			containerd ID
 *	.../crio-ID.scope, .../libpod-ID.scope		crio ID, podman ID
 *	/kubepods/.../ID				kubernetes ID
 *	/lxc/NAME, /lxc.payload.NAME			lxc NAME
 *	.../machine-NAME.scope				machine NAME (systemd-machined)
 *
 * An ID has 64 hexadecimal digits; the first 12 are shown, as the runtimes do. If containers are
 * nested, the innermost one is used.
 */
void container_name(const char *cgroup, char *name, size_t size);

#endif
