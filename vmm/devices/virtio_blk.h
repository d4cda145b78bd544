/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The block device (virtio 1.2, section 5.2) on a raw image: a file or a block
 * device of the host. Reads, writes, flush (fdatasync) and the id string;
 * discard and write-zeroes are not offered. A driver that does not take
 * VIRTIO_BLK_F_FLUSH gets each write flushed (section 5.2.6.2).
 *
 * Requests are served one after the other on the devices' thread, straight
 * between the image and guest memory.
 */
#ifndef KVMSCOPE_DEVICES_VIRTIO_BLK_H
#define KVMSCOPE_DEVICES_VIRTIO_BLK_H

#include <stdbool.h>

#include "vmm/devices/virtio_device.h"

struct virtio_blk_options {
	const char *path; /* raw image; its size is rounded down to whole sectors of 512 bytes */
	bool read_only;
	const char
		*id; /* at most 20 bytes are shown, in /dev/disk/by-id and the like; NULL: none */
};

/*
 * Opens and locks the image, for reading by several or writing by one: -EBUSY
 * if another VM has it. Else the errors of open(2) and virtio_device_init().
 * Any thread. virtio_device_destroy() ends it.
 */
int virtio_blk_create(struct virtio_device **device, const struct virtio_blk_options *options,
		      const struct memory *memory, struct event_loop *loop, struct irq_line line);

#endif
