/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The block device (virtio 1.2, section 5.2) on a raw image: a file or a block device of the host.
 * Reads, writes, flush (fdatasync) and the id string; no discard and no write-zeroes. Each write is
 * flushed for a driver without VIRTIO_BLK_F_FLUSH (section 5.2.6.2).
 *
 * Requests are handled one at a time on the devices' thread, directly between image and guest
 * memory.
 */
#ifndef KVMSCOPE_DEVICES_VIRTIO_BLK_H
#define KVMSCOPE_DEVICES_VIRTIO_BLK_H

#include <stdbool.h>

#include "vmm/devices/virtio_device.h"

struct virtio_blk_options {
	const char *path; /* raw image; its size is rounded down to sectors of 512 bytes */
	bool read_only;
	const char *id; /* at most 20 bytes, shown in /dev/disk/by-id; may be NULL */
};

/*
 * Opens the image and locks it for several readers or one writer: -EBUSY if another VM has it.
 * Other errors of open(2) and virtio_device_init(). Any thread. End with virtio_device_destroy().
 */
int virtio_blk_create(struct virtio_device **device, const struct virtio_blk_options *options,
		      const struct memory *memory, struct event_loop *loop, struct irq_line line);

#endif
