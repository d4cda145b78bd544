/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/virtio_rng.h"

#include <errno.h>
#include <linux/virtio_ids.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"

#define QUEUE_REQUESTS   0
#define QUEUE_SIZE       16
#define PERIODS_A_SECOND 10

/* The budget is replenished at the end of each period in which it was used. */
struct virtio_rng {
	struct virtio_device device;
	int timer_fd;
	uint64_t budget, budget_max; /* bytes of this period */
	struct virtio_chain chain;
};

/* getrandom() is not interrupted for up to 256 bytes. */
static uint32_t fill(struct virtio_buffers *buffers, uint64_t size)
{
	uint8_t random[256];
	uint64_t done = 0;

	while (done < size) {
		size_t part = size - done < sizeof(random) ? size - done : sizeof(random);

		if (getrandom(random, part, 0) != (ssize_t)part)
			break;
		done += virtio_buffers_write(buffers, random, part);
	}
	return (uint32_t)done;
}

static void start_period(struct virtio_rng *rng)
{
	struct itimerspec when = { .it_value.tv_nsec = NS_PER_S / PERIODS_A_SECOND };

	timerfd_settime(rng->timer_fd, 0, &when, NULL);
}

/* Terminates: each chain consumes at least one byte of the budget. */
static void serve(struct virtio_rng *rng)
{
	struct virtio_device *device = &rng->device;
	struct virtio_chain *chain = &rng->chain;

	while (rng->budget && virtio_device_pop(device, QUEUE_REQUESTS, chain)) {
		uint64_t size = chain->writable.size;

		if (!size) {
			virtio_device_fault(device,
					    "a request for entropy without a buffer for it");
			break;
		}
		if (size > rng->budget)
			size = rng->budget;
		if (rng->budget == rng->budget_max)
			start_period(rng);
		rng->budget -= size;
		virtio_device_push(device, QUEUE_REQUESTS, chain, fill(&chain->writable, size));
	}
	virtio_device_interrupt(device, QUEUE_REQUESTS);
}

static void notify(struct virtio_device *device, unsigned int queue)
{
	serve((struct virtio_rng *)device);
}

static void on_period_end(void *context, int fd, uint32_t events)
{
	struct virtio_rng *rng = context;
	uint64_t expirations;

	if (read(fd, &expirations, sizeof(expirations)) < 0)
		return;
	pthread_mutex_lock(&rng->device.lock);
	rng->budget = rng->budget_max;
	serve(rng);
	pthread_mutex_unlock(&rng->device.lock);
}

static void destroy(struct virtio_device *device)
{
	struct virtio_rng *rng = (struct virtio_rng *)device;

	if (rng->timer_fd >= 0) {
		event_loop_remove(device->loop, rng->timer_fd);
		close(rng->timer_fd);
	}
	virtio_device_release(device);
	free(rng);
}

static const struct virtio_device_operations operations = {
	.name = "virtio-rng",
	.id = VIRTIO_ID_RNG,
	.notify = notify,
	.destroy = destroy,
};

static int open_timer(struct virtio_rng *rng)
{
	rng->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (rng->timer_fd < 0)
		return error_set(-errno, "cannot create a timer for virtio-rng: %m");
	return event_loop_add(rng->device.loop, rng->timer_fd, EPOLLIN, on_period_end, rng);
}

int virtio_rng_create(struct virtio_device **result, uint32_t bytes_per_second,
		      const struct memory *memory, struct event_loop *loop, struct irq_line line)
{
	struct virtio_device_options common = { .operations = &operations,
						.memory = memory,
						.loop = loop,
						.line = line,
						.queue_count = 1,
						.queue_size = QUEUE_SIZE };
	uint32_t rate = bytes_per_second ? bytes_per_second : VIRTIO_RNG_RATE_DEFAULT;
	struct virtio_rng *rng = calloc(1, sizeof(*rng));
	int error;

	*result = NULL;
	if (!rng)
		return error_set(-ENOMEM, "no memory for virtio-rng");
	rng->timer_fd = -1;
	rng->budget_max = rate / PERIODS_A_SECOND ? rate / PERIODS_A_SECOND : 1;
	rng->budget = rng->budget_max;
	error = virtio_device_init(&rng->device, &common);
	if (!error)
		error = open_timer(rng);
	if (error)
		virtio_device_destroy(&rng->device);
	else
		*result = &rng->device;
	return error;
}
