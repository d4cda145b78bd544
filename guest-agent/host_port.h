/* SPDX-License-Identifier: Apache-2.0 */
/* The virtio port to the host. */
#ifndef KVMSCOPE_GUEST_AGENT_HOST_PORT_H
#define KVMSCOPE_GUEST_AGENT_HOST_PORT_H

/*
 * Opens /dev/virtio-ports/NAME, or where no udev made that link the device
 * that sysfs calls NAME; it does not block. Negative errno, -ENOENT where there is no such port
 * (yet).
 */
int port_open(const char *name);

#endif
