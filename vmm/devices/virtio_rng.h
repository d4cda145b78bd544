/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entropy device (virtio 1.2, section 5.4): fills the guest's buffers from
 * getrandom(2), at a bounded rate, so that a guest can not spend the host's
 * time without limit. Above the rate, buffers wait.
 */
#ifndef KVMSCOPE_DEVICES_VIRTIO_RNG_H
#define KVMSCOPE_DEVICES_VIRTIO_RNG_H

#include "vmm/devices/virtio_device.h"

#define VIRTIO_RNG_RATE_DEFAULT (1u << 20)

struct virtio_rng_options {
	uint32_t bytes_per_second; /* 0: VIRTIO_RNG_RATE_DEFAULT */
};

/* As virtio_device_init(), and the errors of timerfd_create(2). Any thread. virtio_device_destroy()
 * ends it.
 */
int virtio_rng_create(struct virtio_device **device, const struct virtio_rng_options *options,
		      const struct memory *memory, struct event_loop *loop, struct irq_line line);

#endif
