/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_console.h>
#include <linux/virtio_mmio.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/virtio_driver.h"
#include "vmm/devices/virtio_console.h"

#define CONTROL_RX 2
#define CONTROL_TX 3
#define PORT_RX    4
#define PORT_TX    5
#define QUEUES     6

#define CONTROL_BUFFERS (DRIVER_BUFFERS + 0x10000)
#define MESSAGE         (DRIVER_BUFFERS + 0x20000)
#define RECEIVED        (DRIVER_BUFFERS + 0x30000)
#define SENT            (DRIVER_BUFFERS + 0x40000)

struct fixture {
	struct driver driver;
	char path[64];
	uint16_t control_given; /* control receive buffers so far */
};

static void socket_path(struct fixture *fixture, const char *name)
{
	snprintf(fixture->path, sizeof(fixture->path), "/tmp/kvmscope-%d-%s.sock", (int)getpid(),
		 name);
	unlink(fixture->path);
}

static int create(struct fixture *fixture, const char *path, int fd, struct virtio_device **device)
{
	struct virtio_console_port port = { .name = "org.kvmscope.agent.0",
					    .socket_path = path,
					    .fd = fd };
	struct virtio_console_options options = { .ports = &port, .port_count = 1 };

	return virtio_console_create(device, &options, &fixture->driver.memory,
				     fixture->driver.loop, driver_line(&fixture->driver));
}

static bool setup(struct fixture *fixture, const char *path, int fd)
{
	struct virtio_device *device;

	fixture->control_given = 0;
	return driver_init(&fixture->driver) && !create(fixture, path, fd, &device) &&
	       driver_attach(&fixture->driver, device);
}

static void give_control_buffer(struct fixture *fixture)
{
	uint16_t index = fixture->control_given++ % DRIVER_QUEUE_SIZE;

	driver_describe(&fixture->driver, CONTROL_RX, index, CONTROL_BUFFERS + index * 0x100ull,
			0x100, VRING_DESC_F_WRITE, 0);
	driver_submit(&fixture->driver, CONTROL_RX, index);
}

/* Reads the next message of the device into *CONTROL, and its name into NAME. */
static bool hear(struct fixture *fixture, struct virtio_console_control *control, char *name)
{
	struct vring_used_elem used;
	const char *bytes;

	if (!driver_wait_used(&fixture->driver, CONTROL_RX, &used) || used.len < sizeof(*control))
		return false;
	bytes = driver_memory(&fixture->driver, CONTROL_BUFFERS + used.id * 0x100ull);
	memcpy(control, bytes, sizeof(*control));
	if (name) {
		memcpy(name, bytes + sizeof(*control), used.len - sizeof(*control));
		name[used.len - sizeof(*control)] = '\0';
	}
	give_control_buffer(fixture);
	return true;
}

static bool hears(struct fixture *fixture, uint16_t event, uint16_t value)
{
	struct virtio_console_control control;

	return hear(fixture, &control, NULL) && control.id == 1 && control.event == event &&
	       control.value == value;
}

static bool tell(struct fixture *fixture, uint32_t id, uint16_t event, uint16_t value)
{
	struct virtio_console_control control = { .id = id, .event = event, .value = value };
	struct vring_used_elem used;

	memory_write(&fixture->driver.memory, MESSAGE, &control, sizeof(control));
	driver_describe(&fixture->driver, CONTROL_TX, 0, MESSAGE, sizeof(control), 0, 0);
	driver_submit(&fixture->driver, CONTROL_TX, 0);
	return driver_wait_used(&fixture->driver, CONTROL_TX, &used);
}

/* As Linux does: queues, control buffers, then the messages of section 5.3.5. */
static bool start_guest(struct fixture *fixture)
{
	struct virtio_console_control control;
	char name[0x100] = "";

	if (!driver_start(&fixture->driver, QUEUES))
		return false;
	fixture->control_given = 0;
	for (int i = 0; i < 8; i++)
		give_control_buffer(fixture);
	if (!tell(fixture, UINT32_MAX, VIRTIO_CONSOLE_DEVICE_READY, 1) ||
	    !hears(fixture, VIRTIO_CONSOLE_PORT_ADD, 1) ||
	    !tell(fixture, 1, VIRTIO_CONSOLE_PORT_READY, 1))
		return false;
	return hear(fixture, &control, name) && control.event == VIRTIO_CONSOLE_PORT_NAME &&
	       !strcmp(name, "org.kvmscope.agent.0");
}

static bool open_in_guest(struct fixture *fixture)
{
	return tell(fixture, 1, VIRTIO_CONSOLE_PORT_OPEN, 1);
}

static bool guest_sends(struct fixture *fixture, const void *bytes, uint32_t size)
{
	struct vring_used_elem used;

	memory_write(&fixture->driver.memory, SENT, bytes, size);
	driver_describe(&fixture->driver, PORT_TX, 0, SENT, size, 0, 0);
	driver_submit(&fixture->driver, PORT_TX, 0);
	return driver_wait_used(&fixture->driver, PORT_TX, &used);
}

static void give_receive_buffer(struct fixture *fixture, uint32_t size)
{
	driver_describe(&fixture->driver, PORT_RX, 0, RECEIVED, size, VRING_DESC_F_WRITE, 0);
	driver_submit(&fixture->driver, PORT_RX, 0);
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(address.sun_path, path);
	return connect(fd, (struct sockaddr *)&address, sizeof(address)) ? -1 : fd;
}

TEST(virtio_console, talks_over_a_socket_pair)
{
	static struct fixture fixture;
	struct vring_used_elem used;
	char text[16] = "";
	int pair[2];

	REQUIRE_EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	REQUIRE(setup(&fixture, NULL, pair[0]));
	close(pair[0]);
	CHECK_EQUAL(driver_read(&fixture.driver, VIRTIO_MMIO_CONFIG + 4), 2); /* max_nr_ports */
	REQUIRE(start_guest(&fixture));
	REQUIRE(hears(&fixture, VIRTIO_CONSOLE_PORT_OPEN, 1));
	REQUIRE(open_in_guest(&fixture));
	CHECK(guest_sends(&fixture, "hello", 5));
	CHECK_EQUAL(read(pair[1], text, sizeof(text)), 5);
	CHECK_STRING(text, "hello");
	give_receive_buffer(&fixture, 100);
	REQUIRE_EQUAL(write(pair[1], "world", 5), 5);
	REQUIRE(driver_wait_used(&fixture.driver, PORT_RX, &used));
	CHECK_EQUAL(used.len, 5);
	CHECK(!memcmp(driver_memory(&fixture.driver, RECEIVED), "world", 5));
	close(pair[1]);
	give_receive_buffer(&fixture, 100);
	CHECK(hears(&fixture, VIRTIO_CONSOLE_PORT_OPEN, 0));
	driver_end(&fixture.driver);
}

TEST(virtio_console, lets_peers_come_and_go)
{
	static struct fixture fixture;
	struct vring_used_elem used;
	char text[16] = "";
	struct stat status;

	socket_path(&fixture, "peers");
	REQUIRE(setup(&fixture, fixture.path, -1));
	REQUIRE_EQUAL(stat(fixture.path, &status), 0);
	CHECK_EQUAL(status.st_mode & 0777, 0600);
	REQUIRE(start_guest(&fixture));
	REQUIRE(open_in_guest(&fixture));
	give_receive_buffer(&fixture, 100);
	for (int round = 0; round < 3; round++) {
		int peer = connect_to(fixture.path);

		REQUIRE(peer >= 0);
		CHECK(hears(&fixture, VIRTIO_CONSOLE_PORT_OPEN, 1));
		CHECK_EQUAL(write(peer, "ping", 4), 4);
		REQUIRE(driver_wait_used(&fixture.driver, PORT_RX, &used));
		CHECK_EQUAL(used.len, 4);
		give_receive_buffer(&fixture, 100);
		CHECK(guest_sends(&fixture, "pong", 4));
		CHECK_EQUAL(read(peer, text, sizeof(text)), 4);
		close(peer);
		CHECK(hears(&fixture, VIRTIO_CONSOLE_PORT_OPEN, 0));
	}
	driver_end(&fixture.driver);
	CHECK(stat(fixture.path, &status));
}

/* The next peer waits in the backlog, and the guest notices the change. */
TEST(virtio_console, serves_one_peer_at_a_time)
{
	static struct fixture fixture;
	int first, second;

	socket_path(&fixture, "one");
	REQUIRE(setup(&fixture, fixture.path, -1));
	REQUIRE(start_guest(&fixture));
	first = connect_to(fixture.path);
	CHECK(hears(&fixture, VIRTIO_CONSOLE_PORT_OPEN, 1));
	second = connect_to(fixture.path);
	CHECK(second >= 0);
	close(first); /* noticed although the guest has not opened the port */
	CHECK(hears(&fixture, VIRTIO_CONSOLE_PORT_OPEN, 0));
	CHECK(hears(&fixture, VIRTIO_CONSOLE_PORT_OPEN, 1));
	close(second);
	CHECK(hears(&fixture, VIRTIO_CONSOLE_PORT_OPEN, 0));
	driver_end(&fixture.driver);
}

/* Bytes written without a peer are dropped, and do not block the guest. */
TEST(virtio_console, drops_bytes_without_a_peer)
{
	static struct fixture fixture;

	socket_path(&fixture, "nobody");
	REQUIRE(setup(&fixture, fixture.path, -1));
	REQUIRE(start_guest(&fixture));
	REQUIRE(open_in_guest(&fixture));
	CHECK(guest_sends(&fixture, "hello", 5));
	CHECK_EQUAL(driver_used_index(&fixture.driver, PORT_TX), 1);
	driver_end(&fixture.driver);
}

/* Guest to host: the peer does not read, the chain is held, then all bytes arrive. */
TEST(virtio_console, holds_the_guest_back_for_a_slow_peer)
{
	static struct fixture fixture;
	static uint8_t bytes[2 << 20];
	struct vring_used_elem used;
	size_t received = 0, wrong = 0;
	int pair[2];

	REQUIRE_EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	REQUIRE(setup(&fixture, NULL, pair[0]));
	close(pair[0]);
	REQUIRE(start_guest(&fixture));
	REQUIRE(hears(&fixture, VIRTIO_CONSOLE_PORT_OPEN, 1));
	for (size_t i = 0; i < sizeof(bytes); i++)
		((uint8_t *)driver_memory(&fixture.driver, SENT))[i] = (uint8_t)(i * 3 + i / 251);
	driver_describe(&fixture.driver, PORT_TX, 0, SENT, sizeof(bytes), 0, 0);
	driver_submit(&fixture.driver, PORT_TX, 0);
	driver_settle(&fixture.driver);
	CHECK_EQUAL(driver_used_index(&fixture.driver, PORT_TX), 0);
	while (received < sizeof(bytes)) {
		ssize_t count = read(pair[1], bytes + received, sizeof(bytes) - received);

		REQUIRE(count > 0);
		received += (size_t)count;
	}
	for (size_t i = 0; i < sizeof(bytes); i++)
		wrong += bytes[i] != (uint8_t)(i * 3 + i / 251);
	CHECK_EQUAL(wrong, 0);
	CHECK(driver_wait_used(&fixture.driver, PORT_TX, &used));
	close(pair[1]);
	driver_end(&fixture.driver);
}

/* Host to guest: without buffers nothing is read, and all bytes of a peer that leaves arrive. */
TEST(virtio_console, holds_the_peer_back_for_a_slow_guest)
{
	static struct fixture fixture;
	struct vring_used_elem used;
	char text[16] = "";
	int peer;

	socket_path(&fixture, "slow");
	REQUIRE(setup(&fixture, fixture.path, -1));
	REQUIRE(start_guest(&fixture));
	REQUIRE(open_in_guest(&fixture));
	peer = connect_to(fixture.path);
	REQUIRE(hears(&fixture, VIRTIO_CONSOLE_PORT_OPEN, 1));
	CHECK_EQUAL(write(peer, "abcdefghij", 10), 10);
	close(peer);
	driver_settle(&fixture.driver);
	for (int i = 0; i < 5; i++) {
		give_receive_buffer(&fixture, 2);
		REQUIRE(driver_wait_used(&fixture.driver, PORT_RX, &used));
		CHECK_EQUAL(used.len, 2);
		memcpy(text + 2 * i, driver_memory(&fixture.driver, RECEIVED), 2);
	}
	CHECK_STRING(text, "abcdefghij");
	give_receive_buffer(&fixture, 2);
	CHECK(hears(&fixture, VIRTIO_CONSOLE_PORT_OPEN, 0));
	driver_end(&fixture.driver);
}

TEST(virtio_console, waits_for_control_buffers)
{
	static struct fixture fixture;
	int pair[2];

	REQUIRE_EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	REQUIRE(setup(&fixture, NULL, pair[0]));
	close(pair[0]);
	REQUIRE(driver_start(&fixture.driver, QUEUES));
	REQUIRE(tell(&fixture, 0, VIRTIO_CONSOLE_DEVICE_READY, 1));
	REQUIRE(tell(&fixture, 1, VIRTIO_CONSOLE_PORT_READY, 1));
	driver_settle(&fixture.driver);
	give_control_buffer(&fixture);
	CHECK(hears(&fixture, VIRTIO_CONSOLE_PORT_ADD, 1));
	CHECK(hears(&fixture, VIRTIO_CONSOLE_PORT_NAME, 1));
	CHECK(hears(&fixture, VIRTIO_CONSOLE_PORT_OPEN, 1));
	close(pair[1]);
	driver_end(&fixture.driver);
}

TEST(virtio_console, starts_over_after_a_reset)
{
	static struct fixture fixture;
	char text[16] = "";
	int peer;

	socket_path(&fixture, "reset");
	REQUIRE(setup(&fixture, fixture.path, -1));
	peer = connect_to(fixture.path); /* before the guest starts */
	REQUIRE(peer >= 0);
	for (int round = 0; round < 3; round++) {
		REQUIRE(start_guest(&fixture));
		REQUIRE(hears(&fixture, VIRTIO_CONSOLE_PORT_OPEN, 1));
		REQUIRE(open_in_guest(&fixture));
		CHECK(guest_sends(&fixture, "again", 5));
		CHECK_EQUAL(read(peer, text, sizeof(text)), 5);
		CHECK_EQUAL(write(peer, "x", 1), 1);
		driver_settle(&fixture.driver);
	}
	close(peer);
	driver_end(&fixture.driver);
}

TEST(virtio_console, survives_a_hostile_driver)
{
	static struct fixture fixture;
	struct driver *driver = &fixture.driver;
	int pair[2];

	REQUIRE_EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	REQUIRE(setup(&fixture, NULL, pair[0]));
	close(pair[0]);
	REQUIRE(start_guest(&fixture));
	CHECK(tell(&fixture, 0, VIRTIO_CONSOLE_PORT_READY, 1));
	CHECK(tell(&fixture, 2, VIRTIO_CONSOLE_PORT_OPEN, 1));
	CHECK(tell(&fixture, UINT32_MAX, VIRTIO_CONSOLE_PORT_OPEN, 1));
	CHECK(tell(&fixture, 1, 0xffff, 0xffff));
	CHECK(!driver_needs_reset(driver));

	REQUIRE(open_in_guest(&fixture)); /* a receive buffer that is not writable */
	driver_describe(driver, PORT_RX, 0, RECEIVED, 16, 0, 0);
	driver_submit(driver, PORT_RX, 0);
	CHECK(driver_wait_needs_reset(driver));

	REQUIRE(driver_start(driver, QUEUES)); /* a control buffer without room for a message */
	driver_describe(driver, CONTROL_RX, 0, CONTROL_BUFFERS, 7, VRING_DESC_F_WRITE, 0);
	driver_submit(driver, CONTROL_RX, 0);
	tell(&fixture, 0, VIRTIO_CONSOLE_DEVICE_READY, 1);
	CHECK(driver_wait_needs_reset(driver));

	REQUIRE(start_guest(&fixture)); /* the queue is disabled while its chain is held */
	driver_describe(driver, PORT_TX, 0, 0, DRIVER_MEMORY_SIZE, 0, 0);
	driver_submit(driver, PORT_TX, 0);
	driver_settle(driver);
	driver_write(driver, VIRTIO_MMIO_QUEUE_SEL, PORT_TX);
	driver_write(driver, VIRTIO_MMIO_QUEUE_READY, 0);
	driver_write(driver, VIRTIO_MMIO_QUEUE_NUM, 0);
	close(pair[1]); /* returns the chain to the disabled queue */
	driver_settle(driver);
	CHECK_EQUAL(virtio_device_faults(driver->device), 2);
	driver_end(driver);
}

struct caller {
	const char *path;
	atomic_bool stop;
	atomic_uint calls;
};

/* Peers that connect, write and leave as fast as they can. */
static void *call_without_end(void *context)
{
	struct caller *caller = context;

	while (!atomic_load(&caller->stop)) {
		int fd = connect_to(caller->path);

		if (fd < 0)
			continue;
		if (send(fd, "hello", 5, MSG_NOSIGNAL) == 5)
			atomic_fetch_add(&caller->calls, 1);
		close(fd);
	}
	return NULL;
}

TEST(virtio_console, resets_while_peers_come_and_go)
{
	static struct fixture fixture;
	struct caller caller = { .path = fixture.path };
	pthread_t thread;

	socket_path(&fixture, "hammer");
	REQUIRE(setup(&fixture, fixture.path, -1));
	REQUIRE_EQUAL(pthread_create(&thread, NULL, call_without_end, &caller), 0);
	/* Independent of how late the machine starts the callers. */
	for (int round = 0; round < 50 || (round < 10000 && !atomic_load(&caller.calls)); round++) {
		CHECK(start_guest(&fixture));
		CHECK(open_in_guest(&fixture));
		give_receive_buffer(&fixture, 16);
		CHECK(guest_sends(&fixture, "hello", 5));
		driver_write(&fixture.driver, VIRTIO_MMIO_STATUS, 0);
	}
	atomic_store(&caller.stop, true);
	pthread_join(thread, NULL);
	CHECK(atomic_load(&caller.calls) > 0);
	CHECK_EQUAL(virtio_device_faults(fixture.driver.device), 0);
	driver_end(&fixture.driver);
}

TEST(virtio_console, listens_where_it_may)
{
	static struct fixture fixture;
	struct virtio_device *first, *second;
	char long_path[200];
	int file;

	socket_path(&fixture, "where");
	REQUIRE(driver_init(&fixture.driver));
	file = open(fixture.path, O_CREAT | O_WRONLY, 0600);
	CHECK_EQUAL(create(&fixture, fixture.path, -1, &first),
		    -EADDRINUSE); /* not a socket, so not replaced */
	CHECK_EQUAL(access(fixture.path, F_OK), 0);
	close(file);
	unlink(fixture.path);

	REQUIRE_EQUAL(create(&fixture, fixture.path, -1, &first), 0);
	CHECK_EQUAL(create(&fixture, fixture.path, -1, &second), -EADDRINUSE);
	CHECK_EQUAL(access(fixture.path, F_OK), 0); /* still the first one's */
	virtio_device_destroy(first);

	memset(long_path, 'x', sizeof(long_path) - 1);
	long_path[sizeof(long_path) - 1] = '\0';
	CHECK_EQUAL(create(&fixture, long_path, -1, &first), -ENAMETOOLONG);
	CHECK_EQUAL(create(&fixture, "/nonexistent/socket", -1, &first), -ENOENT);
	CHECK_EQUAL(create(&fixture, NULL, -1, &first), -EINVAL);
	driver_end(&fixture.driver);
}

/* As left by a process that was killed. */
TEST(virtio_console, replaces_an_old_socket)
{
	static struct fixture fixture;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct virtio_device *device;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	socket_path(&fixture, "stale");
	strcpy(address.sun_path, fixture.path);
	REQUIRE_EQUAL(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	close(fd);
	REQUIRE(driver_init(&fixture.driver));
	CHECK_EQUAL(create(&fixture, fixture.path, -1, &device), 0);
	virtio_device_destroy(device);
	driver_end(&fixture.driver);
}
