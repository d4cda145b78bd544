/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entropy device (virtio 1.2, section 5.4): fills the guest's buffers from getrandom(2) at a
 * limited rate, so that a guest cannot consume unlimited host time. Above the rate, buffers wait.
 */
#ifndef KVMSCOPE_DEVICES_VIRTIO_RNG_H
#define KVMSCOPE_DEVICES_VIRTIO_RNG_H

#include "vmm/devices/virtio_device.h"

#define VIRTIO_RNG_RATE_DEFAULT (1u << 20)

/* A rate of 0 is VIRTIO_RNG_RATE_DEFAULT. The errors of virtio_device_init() and timerfd_create(2).
 * Any thread. End with virtio_device_destroy(). */
int virtio_rng_create(struct virtio_device **device, uint32_t bytes_per_second,
		      const struct memory *memory, struct event_loop *loop, struct irq_line line);

#endif
