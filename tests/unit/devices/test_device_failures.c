/* SPDX-License-Identifier: Apache-2.0 */
/* Devices whose creation fails half-way: each descriptor that they open is refused once, and
 * nothing may be left over. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/devices/serial.h"
#include "vmm/devices/virtio_blk.h"
#include "vmm/devices/virtio_console.h"
#include "vmm/devices/virtio_rng.h"
#include "vmm/kvm/guest_ram.h"

struct fixture {
	struct memory memory;
	struct event_loop *loop;
	char image[64], socket[64];
	int fd;
};

static void set_line(void *context, unsigned int gsi, bool high)
{
}

static const struct irq_line line = { .set = set_line };

/* Creates a device and, on success, destroys it. */
typedef int try_device(struct fixture *fixture);

static int try_loop(struct fixture *fixture)
{
	struct event_loop *loop;
	int error = event_loop_create(&loop);

	event_loop_destroy(loop);
	return error;
}

static int try_serial(struct fixture *fixture)
{
	struct serial_options options = { .output_fd = fixture->fd, .input_fd = fixture->fd };
	struct serial *serial;
	int error = serial_create(&serial, &options, fixture->loop, line);

	serial_destroy(serial);
	return error;
}

static int try_rng(struct fixture *fixture)
{
	struct virtio_device *device;
	int error = virtio_rng_create(&device, 0, &fixture->memory, fixture->loop, line);

	virtio_device_destroy(device);
	return error;
}

static int try_blk(struct fixture *fixture)
{
	struct virtio_blk_options options = { .path = fixture->image };
	struct virtio_device *device;
	int error = virtio_blk_create(&device, &options, &fixture->memory, fixture->loop, line);

	virtio_device_destroy(device);
	return error;
}

static int try_console(struct fixture *fixture)
{
	struct virtio_console_port ports[] = {
		{ .name = "one", .fd = fixture->fd },
		{ .name = "two", .socket_path = fixture->socket, .fd = -1 }
	};
	struct virtio_console_options options = { .ports = ports, .port_count = 2 };
	struct virtio_device *device;
	int error = virtio_console_create(&device, &options, &fixture->memory, fixture->loop, line);

	virtio_device_destroy(device);
	return error;
}

static unsigned int open_files(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned int count = 0;

	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

/* The soft limit that leaves COUNT descriptors free; the process may have gaps in its
 * descriptors. */
static rlim_t limit_for(int count)
{
	rlim_t limit = 0;

	while (fcntl((int)limit, F_GETFD) >= 0 || count-- > 0)
		limit++;
	return limit;
}

/* Returns the number of failures before there were enough descriptors. */
static int fail_each(struct fixture *fixture, try_device *try, const char *name)
{
	unsigned int files = open_files();
	struct rlimit old, limit;
	int error = -1, failures = -1;

	getrlimit(RLIMIT_NOFILE, &old);
	while (error && failures < 20) {
		limit = (struct rlimit){ .rlim_cur = limit_for(++failures),
					 .rlim_max = old.rlim_max };
		setrlimit(RLIMIT_NOFILE, &limit);
		error_set(0, "nothing");
		error = try(fixture);
		setrlimit(RLIMIT_NOFILE, &old);
		if (error && !strcmp(error_message(), "nothing"))
			FAIL_TEST("%s fails with %d without a message", name, error);
		if (open_files() != files)
			FAIL_TEST("%s leaks a descriptor at failure %d", name, failures);
		if (error && !access(fixture->socket, F_OK))
			FAIL_TEST("%s does not remove its socket", name);
	}
	if (error)
		FAIL_TEST("%s never works: %s", name, error_message());
	return failures;
}

static bool setup(struct fixture *fixture, int pair[2])
{
	int image;

	strcpy(fixture->image, "/tmp/kvmscope-failures-XXXXXX");
	image = mkstemp(fixture->image);
	snprintf(fixture->socket, sizeof(fixture->socket), "/tmp/kvmscope-failures-%d.sock",
		 (int)getpid());
	fixture->fd = pair[0];
	return image >= 0 && !ftruncate(image, 4096) && !close(image) &&
	       !memory_create(&fixture->memory, 1 << 20) && !event_loop_create(&fixture->loop);
}

TEST(device_failures, leave_no_socket_or_descriptor)
{
	struct fixture fixture;
	int pair[2];

	REQUIRE_EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	REQUIRE(setup(&fixture, pair));
	CHECK_EQUAL(fail_each(&fixture, try_loop, "the event loop"), 2);
	CHECK_EQUAL(fail_each(&fixture, try_serial, "the serial port"), 2);
	CHECK_EQUAL(fail_each(&fixture, try_rng, "virtio-rng"), 2);
	CHECK_EQUAL(fail_each(&fixture, try_blk, "virtio-blk"), 2);
	CHECK_EQUAL(fail_each(&fixture, try_console, "virtio-console"), 3);
	event_loop_destroy(fixture.loop);
	memory_destroy(&fixture.memory);
	unlink(fixture.image);
	close(pair[0]);
	close(pair[1]);
}
