/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "vmm/devices/console_output.h"
#include "vmm/devices/serial.h"

#define DATA       0
#define ENABLE     1
#define IDENTITY   2
#define LINE_CTRL  3
#define MODEM_CTRL 4
#define LINE_STAT  5
#define MODEM_STAT 6
#define SCRATCH    7

#define RTS 0x02

#define THR_EMPTY 0x60
#define READY     0x01

struct fixture {
	struct event_loop *loop;
	struct serial *serial;
	struct bus bus;
	atomic_bool line;
	atomic_int edges;
};

static void set_line(void *context, unsigned int gsi, bool high)
{
	struct fixture *fixture = context;

	if (high && !atomic_exchange(&fixture->line, high))
		atomic_fetch_add(&fixture->edges, 1);
	atomic_store(&fixture->line, high);
}

static bool setup_filtered(struct fixture *fixture, int output, int input,
			   size_t (*filter)(void *, uint8_t *, size_t))
{
	struct serial_options options = { .output_fd = output,
					  .input_fd = input,
					  .filter = filter };

	*fixture = (struct fixture){ 0 };
	return !event_loop_create(&fixture->loop) &&
	       !serial_create(&fixture->serial, &options, fixture->loop,
			      (struct irq_line){ set_line, fixture, SERIAL_GSI }) &&
	       !serial_add(fixture->serial, &fixture->bus, SERIAL_PORT);
}

static bool setup(struct fixture *fixture, int output, int input)
{
	return setup_filtered(fixture, output, input, NULL);
}

static void teardown(struct fixture *fixture)
{
	serial_destroy(fixture->serial);
	event_loop_destroy(fixture->loop);
}

static uint8_t in(struct fixture *fixture, uint16_t port)
{
	uint8_t value;

	bus_dispatch(&fixture->bus, BUS_PORT, SERIAL_PORT + port, false, &value, 1);
	return value;
}

static void out(struct fixture *fixture, uint16_t port, uint8_t value)
{
	bus_dispatch(&fixture->bus, BUS_PORT, SERIAL_PORT + port, true, &value, 1);
}

static void print(struct fixture *fixture, const char *text)
{
	for (; *text; text++)
		out(fixture, DATA, (uint8_t)*text);
}

static void wait_for_byte(struct fixture *fixture)
{
	for (int i = 0; i < 10000 && !(in(fixture, LINE_STAT) & READY); i++)
		usleep(1000);
}

/* Reads the output until the writer closes. */
static size_t read_all(int fd, char *to, size_t size)
{
	size_t done = 0;
	ssize_t count;

	while (done < size && (count = read(fd, to + done, size - done)) > 0)
		done += (size_t)count;
	return done;
}

TEST(serial, prints_to_a_pipe)
{
	struct fixture fixture;
	char text[32] = "";
	int pipes[2];

	REQUIRE_EQUAL(pipe(pipes), 0);
	REQUIRE(setup(&fixture, pipes[1], -1));
	CHECK_EQUAL(fcntl(pipes[1], F_GETFL) & O_NONBLOCK, 0);
	print(&fixture, "Linux version 6.1\r\n");
	CHECK_EQUAL(read(pipes[0], text, sizeof(text)), 19);
	CHECK_STRING(text, "Linux version 6.1\r\n");
	CHECK_EQUAL(fcntl(pipes[1], F_GETFL) & O_NONBLOCK, 0); /* the shell uses it too */
	teardown(&fixture);
	close(pipes[0]);
	close(pipes[1]);
}

TEST(serial, prints_to_a_file_and_a_socket)
{
	struct fixture fixture;
	char path[] = "/tmp/kvmscope-serial-XXXXXX", text[8] = "";
	int file = mkstemp(path), sockets[2];

	REQUIRE_EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	REQUIRE(setup(&fixture, file, -1));
	print(&fixture, "file");
	teardown(&fixture);
	CHECK_EQUAL(pread(file, text, sizeof(text), 0), 4);
	CHECK_STRING(text, "file");
	REQUIRE(setup(&fixture, sockets[0], -1));
	print(&fixture, "sock");
	teardown(&fixture);
	CHECK_EQUAL(read(sockets[1], text, sizeof(text)), 4);
	CHECK_STRING(text, "sock");
	close(sockets[0]);
	close(sockets[1]);
	close(file);
	unlink(path);
}

/* drivers/tty/serial/8250/8250_port.c, autoconfig() and serial8250_do_startup(). */
TEST(serial, is_detected_as_16550a)
{
	struct fixture fixture;

	REQUIRE(setup(&fixture, -1, -1));
	out(&fixture, ENABLE, 0);
	CHECK_EQUAL(in(&fixture, ENABLE), 0);
	out(&fixture, ENABLE, 0xff);
	CHECK_EQUAL(in(&fixture, ENABLE), 0x0f);
	out(&fixture, ENABLE, 0);
	out(&fixture, MODEM_CTRL, 0x1a); /* loopback: OUT2 and RTS show as DCD and CTS */
	CHECK_EQUAL(in(&fixture, MODEM_STAT) & 0xf0, 0x90);
	out(&fixture, MODEM_CTRL, 0);
	CHECK_EQUAL(in(&fixture, MODEM_STAT), 0xb0);
	CHECK_EQUAL(in(&fixture, IDENTITY), 0x01);
	out(&fixture, IDENTITY, 0x01);
	CHECK_EQUAL(in(&fixture, IDENTITY) >> 6, 3);
	out(&fixture, SCRATCH, 0x5a);
	CHECK_EQUAL(in(&fixture, SCRATCH), 0x5a);
	out(&fixture, LINE_CTRL, 0x83);
	out(&fixture, DATA, 1);
	out(&fixture, ENABLE, 2);
	CHECK_EQUAL(in(&fixture, DATA), 1);
	CHECK_EQUAL(in(&fixture, ENABLE), 2);
	out(&fixture, LINE_CTRL, 0x03);
	CHECK_EQUAL(in(&fixture, ENABLE), 0);
	CHECK_EQUAL(in(&fixture, LINE_STAT), THR_EMPTY);
	teardown(&fixture);
}

TEST(serial, loops_back)
{
	struct fixture fixture;

	REQUIRE(setup(&fixture, -1, -1));
	out(&fixture, MODEM_CTRL, 0x10);
	print(&fixture, "ab");
	CHECK_EQUAL(in(&fixture, LINE_STAT) & READY, READY);
	CHECK_EQUAL(in(&fixture, DATA), 'a');
	out(&fixture, IDENTITY, 0x03); /* clears received bytes */
	CHECK_EQUAL(in(&fixture, LINE_STAT) & READY, 0);
	CHECK_EQUAL(in(&fixture, DATA), 0);
	teardown(&fixture);
}

/* Enabling the interrupt while THR is empty raises it each time, which Linux tests. */
TEST(serial, interrupts_when_thr_is_empty)
{
	struct fixture fixture;

	REQUIRE(setup(&fixture, -1, -1));
	for (int i = 1; i <= 2; i++) {
		out(&fixture, ENABLE, 2);
		CHECK(atomic_load(&fixture.line));
		CHECK_EQUAL(in(&fixture, IDENTITY) & 0x0f, 2);
		CHECK(!atomic_load(&fixture.line));
		CHECK_EQUAL(in(&fixture, IDENTITY) & 0x0f, 1);
		out(&fixture, DATA, 'x');
		CHECK(atomic_load(&fixture.line));
		out(&fixture, ENABLE, 0);
		CHECK(!atomic_load(&fixture.line));
		CHECK_EQUAL(atomic_load(&fixture.edges), 2 * i);
	}
	teardown(&fixture);
}

TEST(serial, receives_with_interrupts)
{
	struct fixture fixture;
	int pipes[2];

	REQUIRE_EQUAL(pipe(pipes), 0);
	REQUIRE(setup(&fixture, -1, pipes[0]));
	out(&fixture, MODEM_CTRL, RTS);
	out(&fixture, IDENTITY, 0xc1); /* FIFO, trigger at 14 */
	out(&fixture, ENABLE, 1);
	REQUIRE_EQUAL(write(pipes[1], "hi", 2), 2);
	wait_for_byte(&fixture);
	CHECK(atomic_load(&fixture.line));
	CHECK_EQUAL(in(&fixture, IDENTITY), 0xcc); /* below the trigger level: time-out */
	CHECK_EQUAL(in(&fixture, DATA), 'h');
	CHECK(atomic_load(&fixture.line));
	CHECK_EQUAL(in(&fixture, DATA), 'i');
	CHECK(!atomic_load(&fixture.line));
	teardown(&fixture);
	close(pipes[0]);
	close(pipes[1]);
}

/* Typed before the driver starts, which clears the FIFO. */
TEST(serial, keeps_what_came_before_the_driver)
{
	struct fixture fixture;
	int pipes[2];

	REQUIRE_EQUAL(pipe(pipes), 0);
	REQUIRE_EQUAL(write(pipes[1], "early", 5), 5);
	REQUIRE(setup(&fixture, -1, pipes[0]));
	out(&fixture, ENABLE, 1);
	usleep(10000); /* it may have been read already; the result must be the same */
	out(&fixture, IDENTITY, 0x07);
	CHECK_EQUAL(in(&fixture, DATA), 0);
	CHECK(!atomic_load(&fixture.line));
	out(&fixture, MODEM_CTRL, RTS);
	wait_for_byte(&fixture);
	CHECK(atomic_load(&fixture.line));
	CHECK_EQUAL(in(&fixture, DATA), 'e');
	teardown(&fixture);
	close(pipes[0]);
	close(pipes[1]);
}

/* Far more than the buffers hold, in both directions, without loss. */
TEST(serial, loses_no_input)
{
	static uint8_t bytes[100000];
	struct fixture fixture;
	char path[] = "/tmp/kvmscope-serial-XXXXXX";
	int file = mkstemp(path);
	size_t wrong = 0;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 + i / 256);
	REQUIRE_EQUAL(write(file, bytes, sizeof(bytes)), sizeof(bytes));
	REQUIRE_EQUAL(lseek(file, 0, SEEK_SET), 0);
	REQUIRE(setup(&fixture, -1, file));
	out(&fixture, MODEM_CTRL, RTS);
	for (size_t i = 0; i < sizeof(bytes); i++) {
		if (!(in(&fixture, LINE_STAT) & READY))
			wait_for_byte(&fixture);
		wrong += in(&fixture, DATA) != bytes[i];
	}
	CHECK_EQUAL(wrong, 0);
	teardown(&fixture);
	close(file);
	unlink(path);
}

static size_t take_escape(void *context, uint8_t *bytes, size_t size)
{
	size_t kept = 0;

	for (size_t i = 0; i < size; i++) {
		if (bytes[i] != 1)
			bytes[kept++] = bytes[i];
	}
	return kept;
}

TEST(serial, filters_a_terminal)
{
	struct fixture fixture;
	int pipes[2];

	REQUIRE_EQUAL(pipe(pipes), 0);
	REQUIRE(setup_filtered(&fixture, -1, pipes[0], take_escape));
	out(&fixture, MODEM_CTRL, RTS);
	REQUIRE_EQUAL(write(pipes[1], "\001a\001", 3), 3);
	wait_for_byte(&fixture);
	CHECK_EQUAL(in(&fixture, DATA), 'a');
	CHECK_EQUAL(in(&fixture, LINE_STAT) & READY, 0);
	teardown(&fixture);
	close(pipes[0]);
	close(pipes[1]);
}

/* An interrupt-driven driver that checks THRE: blocked by a full buffer, resumed by the reader. */
TEST(serial, throttles_a_driver_that_checks)
{
	struct fixture fixture;
	static char text[2 * CONSOLE_OUTPUT_SIZE + (1 << 20)];
	size_t sent = 0, received;
	int pipes[2];

	REQUIRE_EQUAL(pipe(pipes), 0);
	REQUIRE(setup(&fixture, pipes[1], -1));
	while (sent < sizeof(text) && (in(&fixture, LINE_STAT) & THR_EMPTY)) {
		out(&fixture, DATA, (uint8_t)('a' + sent % 26));
		sent++;
	}
	REQUIRE(sent < sizeof(text)); /* it has stopped */
	CHECK(sent >= CONSOLE_OUTPUT_SIZE - CONSOLE_OUTPUT_BURST);
	out(&fixture, ENABLE, 2);
	CHECK(!atomic_load(&fixture.line));
	received = (size_t)read(pipes[0], text, CONSOLE_OUTPUT_SIZE);
	while (!atomic_load(&fixture.line)) {
		struct pollfd readable = { .fd = pipes[0], .events = POLLIN };

		if (poll(&readable, 1, 1) == 1)
			received += (size_t)read(pipes[0], text + received, 4096);
	}
	CHECK_EQUAL(in(&fixture, LINE_STAT) & THR_EMPTY, THR_EMPTY);
	CHECK_EQUAL(in(&fixture, IDENTITY) & 0x0f, 2);
	close(pipes[1]);
	teardown(&fixture);
	received += read_all(pipes[0], text + received, sizeof(text) - received);
	CHECK_EQUAL(received, sent);
	for (size_t i = 0; i < received; i++)
		REQUIRE_EQUAL(text[i], 'a' + (char)(i % 26));
	close(pipes[0]);
}

#define SLOW_SIZE (3 * CONSOLE_OUTPUT_SIZE)

struct reader {
	int fd;
	size_t received, wrong;
};

/* Reads slowly, in small pieces. */
static void *read_slowly(void *context)
{
	struct reader *reader = context;
	uint8_t bytes[1000];
	ssize_t count;

	while ((count = read(reader->fd, bytes, sizeof(bytes))) > 0) {
		for (ssize_t i = 0; i < count; i++)
			reader->wrong += bytes[i] != (uint8_t)(reader->received + (size_t)i);
		reader->received += (size_t)count;
		usleep(500);
	}
	return NULL;
}

/* A driver that never checks, as Linux's console in the end: its vCPU waits, and no byte is
 * lost. */
TEST(serial, loses_nothing_to_a_slow_reader)
{
	struct fixture fixture;
	struct reader reader = { 0 };
	pthread_t thread;
	int pipes[2];

	REQUIRE_EQUAL(pipe(pipes), 0);
	reader.fd = pipes[0];
	REQUIRE(setup(&fixture, pipes[1], -1));
	REQUIRE_EQUAL(pthread_create(&thread, NULL, read_slowly, &reader), 0);
	for (size_t i = 0; i < SLOW_SIZE; i++)
		out(&fixture, DATA, (uint8_t)i);
	close(pipes[1]);
	teardown(&fixture);
	pthread_join(thread, NULL);
	CHECK_EQUAL(reader.received, SLOW_SIZE);
	CHECK_EQUAL(reader.wrong, 0);
	close(pipes[0]);
}

/* Without any reader the guest continues after waiting one second in total. */
TEST(serial, goes_on_without_a_reader)
{
	struct console_output *output;
	struct event_loop *loop;
	uint64_t put = 0;
	int pipes[2];

	REQUIRE_EQUAL(pipe(pipes), 0);
	REQUIRE_EQUAL(event_loop_create(&loop), 0);
	REQUIRE_EQUAL(console_output_create(&output, pipes[1], loop, NULL, NULL), 0);
	for (;;) {
		if (console_output_put(output, 'x'))
			put++;
		else if (!console_output_wait(output))
			break;
	}
	CHECK(put >= CONSOLE_OUTPUT_SIZE);
	for (int i = 0; i < 1000; i++)
		CHECK(!console_output_wait(output));
	CHECK_EQUAL(console_output_lost(output), 1001);
	close(pipes[0]); /* broken: accepts everything */
	close(pipes[1]);
	while (!console_output_put(output, 'x'))
		console_output_wait(output);
	console_output_destroy(output);
	event_loop_destroy(loop);
}
