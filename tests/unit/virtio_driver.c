/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/virtio_driver.h"

#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <semaphore.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "vmm/devices/virtio_mmio.h"

#define QUEUE_STRIDE     0x2000ull
#define QUEUES_START     0x10000ull
#define AVAILABLE_OFFSET 0x800
#define USED_OFFSET      0x1000
#define PATIENCE_SECONDS 10

static void set_line(void *context, unsigned int gsi, bool high)
{
	struct driver *driver = context;

	atomic_store(&driver->line, high);
}

bool driver_init(struct driver *driver)
{
	*driver = (struct driver){ 0 };
	return !memory_create(&driver->memory, DRIVER_MEMORY_SIZE) &&
	       !event_loop_create(&driver->loop);
}

struct irq_line driver_line(struct driver *driver)
{
	return (struct irq_line){ .set = set_line, .context = driver, .gsi = 5 };
}

bool driver_attach(struct driver *driver, struct virtio_device *device)
{
	driver->device = device;
	return device && !virtio_mmio_add(device, &driver->bus, DRIVER_MMIO);
}

void driver_end(struct driver *driver)
{
	virtio_device_destroy(driver->device);
	event_loop_destroy(driver->loop);
	memory_destroy(&driver->memory);
}

uint32_t driver_read(struct driver *driver, uint64_t offset)
{
	uint32_t value;

	bus_dispatch(&driver->bus, BUS_MMIO, DRIVER_MMIO + offset, false, &value, sizeof(value));
	return value;
}

void driver_write(struct driver *driver, uint64_t offset, uint32_t value)
{
	bus_dispatch(&driver->bus, BUS_MMIO, DRIVER_MMIO + offset, true, &value, sizeof(value));
}

void *driver_memory(struct driver *driver, uint64_t gpa)
{
	return memory_pointer(&driver->memory, gpa, 1);
}

static void add_status(struct driver *driver, uint32_t bits)
{
	driver_write(driver, VIRTIO_MMIO_STATUS, driver_read(driver, VIRTIO_MMIO_STATUS) | bits);
}

bool driver_negotiate(struct driver *driver, uint64_t features)
{
	driver_write(driver, VIRTIO_MMIO_STATUS, 0);
	add_status(driver, VIRTIO_CONFIG_S_ACKNOWLEDGE);
	add_status(driver, VIRTIO_CONFIG_S_DRIVER);
	for (uint32_t page = 0; page < 2; page++) {
		driver_write(driver, VIRTIO_MMIO_DRIVER_FEATURES_SEL, page);
		driver_write(driver, VIRTIO_MMIO_DRIVER_FEATURES,
			     (uint32_t)(features >> page * 32));
	}
	add_status(driver, VIRTIO_CONFIG_S_FEATURES_OK);
	return driver_read(driver, VIRTIO_MMIO_STATUS) & VIRTIO_CONFIG_S_FEATURES_OK;
}

uint64_t driver_descriptors_gpa(unsigned int queue)
{
	return QUEUES_START + queue * QUEUE_STRIDE;
}

uint64_t driver_available_gpa(unsigned int queue)
{
	return driver_descriptors_gpa(queue) + AVAILABLE_OFFSET;
}

uint64_t driver_used_gpa(unsigned int queue)
{
	return driver_descriptors_gpa(queue) + USED_OFFSET;
}

bool driver_setup_queue(struct driver *driver, unsigned int number)
{
	struct driver_queue *queue = &driver->queues[number];

	memset(driver_memory(driver, driver_descriptors_gpa(number)), 0, QUEUE_STRIDE);
	*queue = (struct driver_queue){
		.descriptors = driver_memory(driver, driver_descriptors_gpa(number)),
		.available = driver_memory(driver, driver_available_gpa(number)),
		.used = driver_memory(driver, driver_used_gpa(number))
	};
	driver_write(driver, VIRTIO_MMIO_QUEUE_SEL, number);
	driver_write(driver, VIRTIO_MMIO_QUEUE_NUM, DRIVER_QUEUE_SIZE);
	driver_write(driver, VIRTIO_MMIO_QUEUE_DESC_LOW, (uint32_t)driver_descriptors_gpa(number));
	driver_write(driver, VIRTIO_MMIO_QUEUE_AVAIL_LOW, (uint32_t)driver_available_gpa(number));
	driver_write(driver, VIRTIO_MMIO_QUEUE_USED_LOW, (uint32_t)driver_used_gpa(number));
	driver_write(driver, VIRTIO_MMIO_QUEUE_READY, 1);
	return driver_read(driver, VIRTIO_MMIO_QUEUE_READY) == 1;
}

void driver_go(struct driver *driver)
{
	add_status(driver, VIRTIO_CONFIG_S_DRIVER_OK);
}

bool driver_start(struct driver *driver, unsigned int queues)
{
	uint64_t features;

	driver_write(driver, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 1);
	features = (uint64_t)driver_read(driver, VIRTIO_MMIO_DEVICE_FEATURES) << 32;
	driver_write(driver, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 0);
	features |= driver_read(driver, VIRTIO_MMIO_DEVICE_FEATURES);
	if (!driver_negotiate(driver, features))
		return false;
	for (unsigned int i = 0; i < queues; i++) {
		if (!driver_setup_queue(driver, i))
			return false;
	}
	driver_go(driver);
	return true;
}

void driver_describe(struct driver *driver, unsigned int queue, uint16_t index, uint64_t gpa,
		     uint32_t size, uint16_t flags, uint16_t next)
{
	driver->queues[queue].descriptors[index] =
		(struct vring_desc){ .addr = gpa, .len = size, .flags = flags, .next = next };
}

void driver_offer(struct driver *driver, unsigned int number, uint16_t head)
{
	struct vring_avail *available = driver->queues[number].available;

	__atomic_store_n(&available->ring[available->idx % DRIVER_QUEUE_SIZE], head,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&available->idx, available->idx + 1, __ATOMIC_RELEASE);
}

void driver_submit(struct driver *driver, unsigned int queue, uint16_t head)
{
	driver_offer(driver, queue, head);
	driver_write(driver, VIRTIO_MMIO_QUEUE_NOTIFY, queue);
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

bool driver_needs_reset(struct driver *driver)
{
	return driver_read(driver, VIRTIO_MMIO_STATUS) & VIRTIO_CONFIG_S_NEEDS_RESET;
}

uint16_t driver_used_index(struct driver *driver, unsigned int queue)
{
	return __atomic_load_n(&driver->queues[queue].used->idx, __ATOMIC_ACQUIRE);
}

bool driver_wait_used(struct driver *driver, unsigned int number, struct vring_used_elem *element)
{
	struct driver_queue *queue = &driver->queues[number];
	time_t start = time(NULL);

	while (driver_used_index(driver, number) == queue->seen) {
		if (driver_needs_reset(driver) || time(NULL) > start + PATIENCE_SECONDS)
			return false;
		nap();
	}
	*element = queue->used->ring[queue->seen++ % DRIVER_QUEUE_SIZE];
	return true;
}

bool driver_wait_needs_reset(struct driver *driver)
{
	time_t start = time(NULL);

	while (!driver_needs_reset(driver)) {
		if (time(NULL) > start + PATIENCE_SECONDS)
			return false;
		nap();
	}
	return true;
}

static void post(void *context, int fd, uint32_t events)
{
	uint64_t count;

	if (read(fd, &count, sizeof(count)) > 0)
		sem_post(context);
}

/*
 * Handlers run one at a time: after two handled events that were raised after the notification, the
 * notification has been handled too, in whatever order.
 */
void driver_settle(struct driver *driver)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	uint64_t one = 1;
	sem_t done;

	sem_init(&done, 0, 0);
	event_loop_add(driver->loop, fd, EPOLLIN, post, &done);
	for (int i = 0; i < 2; i++) {
		if (write(fd, &one, sizeof(one)) > 0)
			sem_wait(&done);
	}
	event_loop_remove(driver->loop, fd);
	close(fd);
	sem_destroy(&done);
}
