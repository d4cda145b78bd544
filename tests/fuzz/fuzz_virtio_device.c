/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver that uses each device arbitrarily, through its registers and guest memory. Input: the
 * kind of device, then steps of enum step.
 */
#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shared/span.h"
#include "vmm/devices/virtio_blk.h"
#include "vmm/devices/virtio_console.h"
#include "vmm/devices/virtio_mmio.h"
#include "vmm/devices/virtio_rng.h"

#define GPA      0xd0000000ull
#define RAM_SIZE (1u << 20)
#define POKED    (64u << 10) /* bytes of RAM that inputs write */
#define IMAGE    (16u << 10)

/* Each step takes its arguments from the input. */
enum step {
	STEP_WRITE,  /* u8 offset in words, u32 value */
	STEP_READ,   /* u16 offset, u8 log2 of size */
	STEP_POKE,   /* u16 GPA, u8 size, bytes */
	STEP_NOTIFY, /* u8 queue */
	STEP_START,  /* u8 features to omit: the regular initialization up to DRIVER_OK */
	STEP_SEND,   /* u8 number of bytes from the host side of the console */
	STEP_HANG_UP,
	STEPS,
};

struct input {
	struct span span;
	uint64_t at;
};

struct run {
	struct input input;
	struct bus bus;
	struct virtio_device *device;
	int peer;
};

static struct memory memory;
static struct event_loop *loop;
static int image_fd, pass_fd;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	image_fd = memfd_create("image", 0);
	pass_fd = eventfd(0, EFD_NONBLOCK);
	if (image_fd < 0 || pass_fd < 0 || ftruncate(image_fd, IMAGE) ||
	    memory_create(&memory, RAM_SIZE) || event_loop_create(&loop))
		abort();
	return 0;
}

static uint32_t next_value(struct input *input, unsigned int size)
{
	uint32_t value = 0;

	span_copy(input->span, input->at, &value, size);
	input->at += size;
	return value;
}

static void set_line(void *context, unsigned int gsi, bool high)
{
}

static struct virtio_device *make_device(uint8_t kind, int fd)
{
	struct irq_line line = { .set = set_line };
	struct virtio_console_port ports[] = { { .name = "first", .fd = fd },
					       { .name = "second", .fd = fd } };
	struct virtio_console_options console = { .ports = ports, .port_count = 2 };
	struct virtio_blk_options blk = { .read_only = kind & 4 };
	struct virtio_device *device = NULL;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", image_fd);
	blk.path = path;
	if (kind % 3 == 0)
		virtio_blk_create(&device, &blk, &memory, loop, line);
	else if (kind % 3 == 1)
		virtio_console_create(&device, &console, &memory, loop, line);
	else
		virtio_rng_create(&device, 1000, &memory, loop, line);
	if (!device)
		abort();
	return device;
}

static void write_register(struct run *run, uint64_t offset, uint32_t value)
{
	bus_dispatch(&run->bus, BUS_MMIO, GPA + offset, true, &value, sizeof(value));
}

static void pass(void *context, int fd, uint32_t events)
{
	uint64_t count;

	if (read(fd, &count, sizeof(count)) > 0)
		sem_post(context);
}

/* Waits until the event loop has made a full pass, so that results do not depend on its timing. */
static void settle(void)
{
	uint64_t one = 1;
	sem_t passed;

	sem_init(&passed, 0, 0);
	if (event_loop_add(loop, pass_fd, EPOLLIN, pass, &passed))
		abort();
	for (int i = 0; i < 2; i++) {
		if (write(pass_fd, &one, sizeof(one)) < 0)
			abort();
		sem_wait(&passed);
	}
	event_loop_remove(loop, pass_fd);
	sem_destroy(&passed);
}

static void notify(struct run *run, uint32_t queue)
{
	write_register(run, VIRTIO_MMIO_QUEUE_NOTIFY, queue);
	settle();
}

static void setup_queue(struct run *run, uint32_t queue)
{
	write_register(run, VIRTIO_MMIO_QUEUE_SEL, queue);
	write_register(run, VIRTIO_MMIO_QUEUE_NUM, 16);
	write_register(run, VIRTIO_MMIO_QUEUE_DESC_LOW, queue * 0x400);
	write_register(run, VIRTIO_MMIO_QUEUE_AVAIL_LOW, queue * 0x400 + 0x100);
	write_register(run, VIRTIO_MMIO_QUEUE_USED_LOW, queue * 0x400 + 0x200);
	write_register(run, VIRTIO_MMIO_QUEUE_READY, 1);
}

static void start(struct run *run, uint32_t left_out)
{
	uint64_t features = run->device->features & ~((uint64_t)left_out << 26);

	write_register(run, VIRTIO_MMIO_STATUS, 0);
	for (uint32_t page = 0; page < 2; page++) {
		write_register(run, VIRTIO_MMIO_DRIVER_FEATURES_SEL, page);
		write_register(run, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)(features >> page * 32));
	}
	write_register(run, VIRTIO_MMIO_STATUS, VIRTIO_CONFIG_S_FEATURES_OK);
	for (uint32_t queue = 0; queue < run->device->queue_count; queue++)
		setup_queue(run, queue);
	write_register(run, VIRTIO_MMIO_STATUS, VIRTIO_CONFIG_S_DRIVER_OK);
}

static void poke(struct run *run)
{
	uint64_t gpa = next_value(&run->input, 2) % POKED;
	uint32_t size = next_value(&run->input, 1);
	struct span bytes;

	if (span_part(run->input.span, run->input.at, size, &bytes))
		memory_write(&memory, gpa, bytes.data, bytes.size);
	run->input.at += size;
}

static void read_register(struct run *run)
{
	uint64_t offset = next_value(&run->input, 2) % VIRTIO_MMIO_SIZE, value;

	bus_dispatch(&run->bus, BUS_MMIO, GPA + offset, false, &value,
		     1u << next_value(&run->input, 1) % 4);
}

static void send_bytes(struct run *run)
{
	uint8_t bytes[256] = { 0 };

	if (run->peer >= 0)
		send(run->peer, bytes, next_value(&run->input, 1), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void hang_up(struct run *run)
{
	if (run->peer >= 0)
		close(run->peer);
	run->peer = -1;
}

static void do_step(struct run *run)
{
	uint32_t offset;

	switch (next_value(&run->input, 1) % STEPS) {
	case STEP_WRITE:
		offset = next_value(&run->input, 1) * 4 % VIRTIO_MMIO_SIZE;
		write_register(run, offset, next_value(&run->input, 4));
		break;
	case STEP_READ:
		read_register(run);
		break;
	case STEP_POKE:
		poke(run);
		break;
	case STEP_NOTIFY:
		notify(run, next_value(&run->input, 1));
		break;
	case STEP_START:
		start(run, next_value(&run->input, 1));
		break;
	case STEP_SEND:
		send_bytes(run);
		break;
	default:
		hang_up(run);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run run = { .input = { .span = { data, size } } };
	int pair[2];

	if (!size || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 0;
	memset(memory.regions[0].hva, 0, POKED);
	run.peer = pair[1];
	run.device = make_device((uint8_t)next_value(&run.input, 1), pair[0]);
	close(pair[0]);
	atomic_store(&run.device->faults, 1); /* only the first one is logged */
	if (virtio_mmio_add(run.device, &run.bus, GPA))
		abort();
	while (run.input.at < size)
		do_step(&run);
	virtio_device_destroy(run.device);
	hang_up(&run);
	return 0;
}
