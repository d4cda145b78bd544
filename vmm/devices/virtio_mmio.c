/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/virtio_mmio.h"

#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <string.h>

#include "shared/span.h"

#define MAGIC   0x74726976 /* "virt" */
#define VERSION 2
#define VENDOR  0x534d564b /* "KVMS" */

static struct virtio_queue *selected_queue(struct virtio_device *device)
{
	return device->queue_selected < device->queue_count
		       ? &device->queues[device->queue_selected]
		       : NULL;
}

static uint32_t read_register(struct virtio_device *device, uint64_t offset)
{
	const struct virtio_queue *queue = selected_queue(device);

	switch (offset) {
	case VIRTIO_MMIO_MAGIC_VALUE:
		return MAGIC;
	case VIRTIO_MMIO_VERSION:
		return VERSION;
	case VIRTIO_MMIO_DEVICE_ID:
		return device->operations->id;
	case VIRTIO_MMIO_VENDOR_ID:
		return VENDOR;
	case VIRTIO_MMIO_DEVICE_FEATURES:
		return device->features_page < 2
			       ? (uint32_t)(device->features >> device->features_page * 32)
			       : 0;
	case VIRTIO_MMIO_QUEUE_NUM_MAX:
		return queue ? queue->size_max : 0;
	case VIRTIO_MMIO_QUEUE_READY:
		return queue && queue->ready;
	case VIRTIO_MMIO_STATUS:
		return device->status;
	case VIRTIO_MMIO_SHM_LEN_LOW:
	case VIRTIO_MMIO_SHM_LEN_HIGH:
	case VIRTIO_MMIO_SHM_BASE_LOW:
	case VIRTIO_MMIO_SHM_BASE_HIGH:
		return UINT32_MAX; /* no such region */
	default:
		return 0; /* also the configuration's generation, which never changes */
	}
}

/* Section 2.2: accepted features are fixed from FEATURES_OK on. */
static void write_driver_features(struct virtio_device *device, uint32_t value)
{
	uint32_t page = device->driver_features_page;

	if (page >= 2 || (device->status & VIRTIO_CONFIG_S_FEATURES_OK))
		return;
	device->driver_features &= ~(UINT64_C(0xffffffff) << page * 32);
	device->driver_features |= (uint64_t)value << page * 32;
}

/* Address and size of a queue are fixed while it is ready (section 4.2.2.2). */
static void write_queue_register(struct virtio_queue *queue, uint64_t offset, uint32_t value)
{
	const struct {
		uint64_t low, high; /* offsets of its registers */
		uint64_t *address;
	} addresses[] = {
		{ VIRTIO_MMIO_QUEUE_DESC_LOW, VIRTIO_MMIO_QUEUE_DESC_HIGH,
		  &queue->descriptors_gpa },
		{ VIRTIO_MMIO_QUEUE_AVAIL_LOW, VIRTIO_MMIO_QUEUE_AVAIL_HIGH, &queue->driver_gpa },
		{ VIRTIO_MMIO_QUEUE_USED_LOW, VIRTIO_MMIO_QUEUE_USED_HIGH, &queue->device_gpa },
	};

	if (queue->ready)
		return;
	if (offset == VIRTIO_MMIO_QUEUE_NUM)
		queue->size = value;
	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		uint64_t *address = addresses[i].address;

		if (offset == addresses[i].low)
			*address = (*address & ~UINT64_C(0xffffffff)) | value;
		else if (offset == addresses[i].high)
			*address = (*address & UINT64_C(0xffffffff)) | (uint64_t)value << 32;
	}
}

static void write_register(struct virtio_device *device, uint64_t offset, uint32_t value)
{
	struct virtio_queue *queue = selected_queue(device);

	switch (offset) {
	case VIRTIO_MMIO_DEVICE_FEATURES_SEL:
		device->features_page = value;
		break;
	case VIRTIO_MMIO_DRIVER_FEATURES:
		write_driver_features(device, value);
		break;
	case VIRTIO_MMIO_DRIVER_FEATURES_SEL:
		device->driver_features_page = value;
		break;
	case VIRTIO_MMIO_QUEUE_SEL:
		device->queue_selected = value;
		break;
	case VIRTIO_MMIO_QUEUE_READY:
		if (queue)
			virtio_device_set_queue_ready(device, device->queue_selected, value & 1);
		break;
	case VIRTIO_MMIO_STATUS:
		virtio_device_set_status(device, (uint8_t)value);
		break;
	default:
		if (queue)
			write_queue_register(queue, offset, value);
	}
}

/* Registers that do not wait for the device's current request. True if OFFSET is one of them. */
static bool access_without_lock(struct virtio_device *device, uint64_t offset, bool write,
				uint32_t *value)
{
	if (write && offset == VIRTIO_MMIO_QUEUE_NOTIFY)
		virtio_device_notify(device, *value);
	else if (write && offset == VIRTIO_MMIO_INTERRUPT_ACK)
		virtio_device_acknowledge(device, *value);
	else if (!write && offset == VIRTIO_MMIO_INTERRUPT_STATUS)
		*value = virtio_device_interrupt_status(device);
	else
		return false;
	return true;
}

static void access_register(struct virtio_device *device, uint64_t offset, bool write,
			    uint32_t *value)
{
	if (access_without_lock(device, offset, write, value))
		return;
	pthread_mutex_lock(&device->lock);
	if (write)
		write_register(device, offset, *value);
	else
		*value = read_register(device, offset);
	pthread_mutex_unlock(&device->lock);
}

static void virtio_mmio_access(void *context, uint64_t offset, bool write, void *data,
			       unsigned int size)
{
	struct virtio_device *device = context;
	uint32_t value = 0;

	if (write)
		memcpy(&value, data, size < sizeof(value) ? size : sizeof(value));
	else
		memset(data, 0, size);
	if (offset >= VIRTIO_MMIO_CONFIG) { /* never writable, and constant */
		if (!write)
			span_copy(span_of(device->config, device->config_size),
				  offset - VIRTIO_MMIO_CONFIG, data, size);
		return;
	}
	if (size != sizeof(value) || offset % sizeof(value))
		return;
	access_register(device, offset, write, &value);
	if (!write)
		memcpy(data, &value, sizeof(value));
}

int virtio_mmio_add(struct virtio_device *device, struct bus *bus, uint64_t gpa)
{
	return bus_add(bus, BUS_MMIO, gpa, VIRTIO_MMIO_SIZE, virtio_mmio_access, device);
}
