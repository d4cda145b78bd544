/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/virtio_device.h"

#include <assert.h>
#include <errno.h>
#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"

#define COMMON_FEATURES                                                                            \
	(1ull << VIRTIO_F_VERSION_1 | 1ull << VIRTIO_RING_F_EVENT_IDX |                            \
	 1ull << VIRTIO_RING_F_INDIRECT_DESC)

static void raise_interrupt(struct virtio_device *device, uint32_t bit)
{
	pthread_mutex_lock(&device->interrupt_lock);
	if (!device->interrupt_status)
		irq_line_set(&device->line, true);
	device->interrupt_status |= bit;
	pthread_mutex_unlock(&device->interrupt_lock);
}

uint32_t virtio_device_interrupt_status(struct virtio_device *device)
{
	uint32_t status;

	pthread_mutex_lock(&device->interrupt_lock);
	status = device->interrupt_status;
	pthread_mutex_unlock(&device->interrupt_lock);
	return status;
}

void virtio_device_acknowledge(struct virtio_device *device, uint32_t interrupts)
{
	pthread_mutex_lock(&device->interrupt_lock);
	if (device->interrupt_status && !(device->interrupt_status & ~interrupts))
		irq_line_set(&device->line, false);
	device->interrupt_status &= ~interrupts;
	pthread_mutex_unlock(&device->interrupt_lock);
}

void virtio_device_interrupt(struct virtio_device *device, unsigned int queue)
{
	if (device->queues[queue].ready && virtio_queue_wants_interrupt(&device->queues[queue]))
		raise_interrupt(device, VIRTIO_MMIO_INT_VRING);
}

/* Section 2.1.2: a configuration change notifies the driver if it has set DRIVER_OK. */
void virtio_device_fault(struct virtio_device *device, const char *reason)
{
	if (!atomic_fetch_add(&device->faults, 1))
		log_warning(
			"%s: the guest's driver violated the protocol (%s): the device is stopped until it is reset",
			device->operations->name, reason);
	device->status |= VIRTIO_CONFIG_S_NEEDS_RESET;
	if (device->status & VIRTIO_CONFIG_S_DRIVER_OK)
		raise_interrupt(device, VIRTIO_MMIO_INT_CONFIG);
}

uint64_t virtio_device_faults(struct virtio_device *device)
{
	return atomic_load(&device->faults);
}

/* True if a driver has started the device and not violated the protocol since. */
static bool is_live(const struct virtio_device *device)
{
	return (device->status & (VIRTIO_CONFIG_S_DRIVER_OK | VIRTIO_CONFIG_S_NEEDS_RESET)) ==
	       VIRTIO_CONFIG_S_DRIVER_OK;
}

bool virtio_device_negotiated(const struct virtio_device *device, unsigned int feature)
{
	return device->driver_features >> feature & 1;
}

bool virtio_device_pop(struct virtio_device *device, unsigned int queue, struct virtio_chain *chain)
{
	int result;

	if (!is_live(device) || !device->queues[queue].ready)
		return false;
	result = virtio_queue_pop(&device->queues[queue], chain);
	if (result < 0)
		virtio_device_fault(device, error_message());
	return result > 0;
}

void virtio_device_push(struct virtio_device *device, unsigned int queue,
			const struct virtio_chain *chain, uint32_t written)
{
	/* The driver may have disabled the queue while the device had the chain. */
	if (device->queues[queue].ready)
		virtio_queue_push(&device->queues[queue], chain, written);
}

static void wake(struct virtio_device *device, uint64_t queues)
{
	uint64_t one = 1;

	atomic_fetch_or(&device->notified, queues);
	/* EAGAIN means that the counter is full, so the loop wakes anyway. */
	if (write(device->notify_fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN);
}

void virtio_device_notify(struct virtio_device *device, unsigned int queue)
{
	if (queue < device->queue_count)
		wake(device, 1ull << queue);
}

static void on_notified(void *context, int fd, uint32_t events)
{
	struct virtio_device *device = context;
	uint64_t count, queues;

	if (read(fd, &count, sizeof(count)) < 0)
		return;
	queues = atomic_exchange(&device->notified, 0);
	pthread_mutex_lock(&device->lock);
	for (unsigned int i = 0; i < device->queue_count; i++) {
		if ((queues >> i & 1) && is_live(device))
			device->operations->notify(device, i);
	}
	if (!is_live(device) && device->operations->was_reset)
		device->operations->was_reset(device);
	pthread_mutex_unlock(&device->lock);
}

static void reset(struct virtio_device *device)
{
	device->status = 0;
	device->driver_features = 0;
	device->features_page = 0;
	device->driver_features_page = 0;
	device->queue_selected = 0;
	for (unsigned int i = 0; i < device->queue_count; i++)
		virtio_queue_reset(&device->queues[i]);
	virtio_device_acknowledge(device, UINT32_MAX);
	if (device->operations->reset)
		device->operations->reset(device);
	wake(device, 0);
}

/* Section 3.1.1: bits are only added, and in order; early ones are ignored. */
void virtio_device_set_status(struct virtio_device *device, uint8_t status)
{
	uint8_t added = status & ~device->status & ~VIRTIO_CONFIG_S_NEEDS_RESET;

	if (!status) {
		reset(device);
		return;
	}
	if (device->driver_features & ~device->features ||
	    !virtio_device_negotiated(device, VIRTIO_F_VERSION_1))
		added &= ~VIRTIO_CONFIG_S_FEATURES_OK;
	if (!((device->status | added) & VIRTIO_CONFIG_S_FEATURES_OK))
		added &= ~VIRTIO_CONFIG_S_DRIVER_OK;
	device->status |= added;
	/* Section 3.1.1 allows drivers to fill queues before DRIVER_OK. */
	if (added & VIRTIO_CONFIG_S_DRIVER_OK)
		wake(device, UINT64_MAX);
}

void virtio_device_set_queue_ready(struct virtio_device *device, unsigned int number, bool ready)
{
	struct virtio_queue *queue = &device->queues[number];

	if (!ready) {
		queue->ready = false;
		return;
	}
	if (queue->ready || !(device->status & VIRTIO_CONFIG_S_FEATURES_OK))
		return;
	queue->event_index = virtio_device_negotiated(device, VIRTIO_RING_F_EVENT_IDX);
	queue->indirect = virtio_device_negotiated(device, VIRTIO_RING_F_INDIRECT_DESC);
	if (virtio_queue_enable(queue))
		virtio_device_fault(device, error_message());
}

void virtio_device_reset(struct virtio_device *device)
{
	pthread_mutex_lock(&device->lock);
	virtio_device_set_status(device, 0);
	pthread_mutex_unlock(&device->lock);
}

static int make_queues(struct virtio_device *device, const struct virtio_device_options *options)
{
	assert(options->queue_count <= VIRTIO_DEVICE_QUEUES_MAX);
	assert(options->queue_size && options->queue_size <= VIRTIO_QUEUE_SIZE_MAX);
	device->queues = calloc(options->queue_count, sizeof(*device->queues));
	if (!device->queues)
		return error_set(-ENOMEM, "no memory for the queues of %s",
				 options->operations->name);
	device->queue_count = options->queue_count;
	for (unsigned int i = 0; i < device->queue_count; i++)
		device->queues[i] = (struct virtio_queue){ .memory = options->memory,
							   .size_max = options->queue_size };
	return 0;
}

int virtio_device_init(struct virtio_device *device, const struct virtio_device_options *options)
{
	int error;

	device->operations = options->operations;
	device->memory = options->memory;
	device->loop = options->loop;
	device->features = options->features | COMMON_FEATURES;
	device->config = options->config;
	device->config_size = options->config_size;
	device->line = options->line;
	pthread_mutex_init(&device->lock, NULL);
	pthread_mutex_init(&device->interrupt_lock, NULL);
	device->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (device->notify_fd < 0)
		return error_set(-errno, "cannot create an eventfd for %s: %m",
				 device->operations->name);
	error = make_queues(device, options);
	return error ? error
		     : event_loop_add(device->loop, device->notify_fd, EPOLLIN, on_notified,
				      device);
}

void virtio_device_destroy(struct virtio_device *device)
{
	if (!device)
		return;
	if (device->notify_fd >= 0)
		event_loop_remove(device->loop, device->notify_fd);
	device->operations->destroy(device);
}

void virtio_device_release(struct virtio_device *device)
{
	if (device->notify_fd >= 0)
		close(device->notify_fd);
	free(device->queues);
	pthread_mutex_destroy(&device->interrupt_lock);
	pthread_mutex_destroy(&device->lock);
}
