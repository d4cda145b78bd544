/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/serial.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "shared/error.h"
#include "vmm/devices/console_input.h"
#include "vmm/devices/console_output.h"

enum serial_register {
	REGISTER_DATA = 0,               /* DLL with DLAB */
	REGISTER_INTERRUPT_ENABLE = 1,   /* DLM with DLAB */
	REGISTER_INTERRUPT_IDENTITY = 2, /* written: FIFO control */
	REGISTER_LINE_CONTROL = 3,
	REGISTER_MODEM_CONTROL = 4,
	REGISTER_LINE_STATUS = 5,
	REGISTER_MODEM_STATUS = 6,
	REGISTER_SCRATCH = 7,
	REGISTER_COUNT = 8,
};

#define IER_RECEIVED  0x01
#define IER_THR_EMPTY 0x02
#define IER_ALL       0x0f

#define IIR_NONE             0x01
#define IIR_THR_EMPTY        0x02
#define IIR_RECEIVED         0x04
#define IIR_RECEIVED_TIMEOUT 0x0c
#define IIR_FIFO_ENABLED     0xc0

#define FCR_ENABLE        0x01
#define FCR_CLEAR_RECEIVE 0x02
#define FCR_TRIGGER_SHIFT 6

#define LCR_DLAB 0x80

#define MCR_DTR  0x01
#define MCR_RTS  0x02
#define MCR_OUT1 0x04
#define MCR_OUT2 0x08
#define MCR_LOOP 0x10
#define MCR_ALL  0x1f

#define LSR_DATA_READY 0x01
#define LSR_THR_EMPTY  0x20
#define LSR_EMPTY      0x40

#define MSR_CTS 0x10
#define MSR_DSR 0x20
#define MSR_RI  0x40
#define MSR_DCD 0x80

/* Input waiting for the guest: larger than the FIFO, so that pasted text does not overrun it. */
#define RECEIVE_SIZE 4096
#define FIFO_SIZE    16

/*
 * lock protects the registers and the received bytes, and keeps the line consistent with them. It
 * is not held while waiting for output room, nor when input is resumed, whose lock comes first.
 */
struct serial {
	pthread_mutex_t lock;
	struct irq_line line;
	struct console_output *output;
	struct console_input *input;
	struct console_lines lines;
	uint8_t interrupt_enable, fifo_control, line_control, modem_control, scratch;
	uint8_t divisor[2];
	bool thr_empty_pending; /* THR became empty, and the guest has not read that in IIR yet */
	bool line_high;
	uint8_t received[RECEIVE_SIZE];
	uint32_t head, tail; /* number of received bytes; wrap */
};

static uint32_t buffered_count(const struct serial *serial)
{
	return serial->head - serial->tail;
}

/* The host's end has hardware flow control: without RTS it does not send. So bytes piped in
 * before the guest's driver runs are kept, although drivers clear the FIFO when they start. */
static uint32_t received_count(const struct serial *serial)
{
	return serial->modem_control & (MCR_RTS | MCR_LOOP) ? buffered_count(serial) : 0;
}

static uint8_t received_identity(const struct serial *serial)
{
	static const uint8_t trigger[] = { 1, 4, 8, 14 };
	bool fifo = serial->fifo_control & FCR_ENABLE;

	if (fifo && received_count(serial) < trigger[serial->fifo_control >> FCR_TRIGGER_SHIFT])
		return IIR_RECEIVED_TIMEOUT;
	return IIR_RECEIVED;
}

/* The enabled cause with the highest priority. */
static uint8_t interrupt_identity(const struct serial *serial)
{
	if ((serial->interrupt_enable & IER_RECEIVED) && received_count(serial))
		return received_identity(serial);
	if ((serial->interrupt_enable & IER_THR_EMPTY) && serial->thr_empty_pending)
		return IIR_THR_EMPTY;
	return IIR_NONE;
}

/* Only on change: it is a system call. */
static void update_line(struct serial *serial)
{
	bool high = interrupt_identity(serial) != IIR_NONE;

	if (high != serial->line_high)
		irq_line_set(&serial->line, high);
	serial->line_high = high;
}

static size_t receive_room(void *context)
{
	struct serial *serial = context;
	size_t room;

	pthread_mutex_lock(&serial->lock);
	room = RECEIVE_SIZE - buffered_count(serial);
	pthread_mutex_unlock(&serial->lock);
	return room;
}

static void put_received(struct serial *serial, uint8_t byte)
{
	if (buffered_count(serial) < RECEIVE_SIZE)
		serial->received[serial->head++ % RECEIVE_SIZE] = byte;
}

static void on_received(void *context, const uint8_t *bytes, size_t size)
{
	struct serial *serial = context;

	pthread_mutex_lock(&serial->lock);
	for (size_t i = 0; i < size; i++)
		put_received(serial, bytes[i]);
	update_line(serial);
	pthread_mutex_unlock(&serial->lock);
}

static void on_output_room(void *context)
{
	struct serial *serial = context;

	pthread_mutex_lock(&serial->lock);
	serial->thr_empty_pending = true;
	update_line(serial);
	pthread_mutex_unlock(&serial->lock);
}

/* Releases the lock while it waits for room. */
static void transmit(struct serial *serial, uint8_t byte)
{
	bool wait = true;

	while (wait && !console_output_put(serial->output, byte)) {
		pthread_mutex_unlock(&serial->lock);
		wait = console_output_wait(serial->output);
		pthread_mutex_lock(&serial->lock);
	}
}

static void write_data(struct serial *serial, uint8_t byte)
{
	if (serial->modem_control & MCR_LOOP) {
		put_received(serial, byte);
		serial->thr_empty_pending = true;
		return;
	}
	console_lines_put(&serial->lines, byte);
	transmit(serial, byte);
	serial->thr_empty_pending = console_output_ready(serial->output);
}

static uint8_t read_data(struct serial *serial)
{
	if (!received_count(serial))
		return 0;
	return serial->received[serial->tail++ % RECEIVE_SIZE];
}

static void write_interrupt_enable(struct serial *serial, uint8_t value)
{
	bool enabled = value & ~serial->interrupt_enable & IER_THR_EMPTY;

	serial->interrupt_enable = value & IER_ALL;
	if (enabled)
		serial->thr_empty_pending = console_output_ready(serial->output);
}

/* Reading the identity acknowledges the THR-empty interrupt. */
static uint8_t read_identity(struct serial *serial)
{
	uint8_t identity = interrupt_identity(serial);

	if (identity == IIR_THR_EMPTY)
		serial->thr_empty_pending = false;
	return identity | (serial->fifo_control & FCR_ENABLE ? IIR_FIFO_ENABLED : 0);
}

static void write_fifo_control(struct serial *serial, uint8_t value)
{
	bool toggled = (value ^ serial->fifo_control) & FCR_ENABLE;

	if (toggled || (value & FCR_CLEAR_RECEIVE))
		serial->tail +=
			received_count(serial) < FIFO_SIZE ? received_count(serial) : FIFO_SIZE;
	serial->fifo_control = value;
}

static uint8_t read_line_status(struct serial *serial)
{
	uint8_t status = received_count(serial) ? LSR_DATA_READY : 0;

	if (console_output_ready(serial->output))
		status |= LSR_THR_EMPTY | LSR_EMPTY;
	return status;
}

static uint8_t read_modem_status(const struct serial *serial)
{
	uint8_t control = serial->modem_control;

	if (!(control & MCR_LOOP))
		return MSR_CTS | MSR_DSR | MSR_DCD;
	return (control & MCR_RTS ? MSR_CTS : 0) | (control & MCR_DTR ? MSR_DSR : 0) |
	       (control & MCR_OUT1 ? MSR_RI : 0) | (control & MCR_OUT2 ? MSR_DCD : 0);
}

static void write_register(struct serial *serial, uint64_t number, uint8_t value)
{
	if ((serial->line_control & LCR_DLAB) && number <= REGISTER_INTERRUPT_ENABLE) {
		serial->divisor[number] = value;
		return;
	}
	switch (number) {
	case REGISTER_DATA:
		write_data(serial, value);
		break;
	case REGISTER_INTERRUPT_ENABLE:
		write_interrupt_enable(serial, value);
		break;
	case REGISTER_INTERRUPT_IDENTITY:
		write_fifo_control(serial, value);
		break;
	case REGISTER_LINE_CONTROL:
		serial->line_control = value;
		break;
	case REGISTER_MODEM_CONTROL:
		serial->modem_control = value & MCR_ALL;
		break;
	case REGISTER_SCRATCH:
		serial->scratch = value;
		break;
	}
}

static uint8_t read_register(struct serial *serial, uint64_t number)
{
	if ((serial->line_control & LCR_DLAB) && number <= REGISTER_INTERRUPT_ENABLE)
		return serial->divisor[number];
	switch (number) {
	case REGISTER_DATA:
		return read_data(serial);
	case REGISTER_INTERRUPT_ENABLE:
		return serial->interrupt_enable;
	case REGISTER_INTERRUPT_IDENTITY:
		return read_identity(serial);
	case REGISTER_LINE_CONTROL:
		return serial->line_control;
	case REGISTER_MODEM_CONTROL:
		return serial->modem_control;
	case REGISTER_LINE_STATUS:
		return read_line_status(serial);
	case REGISTER_MODEM_STATUS:
		return read_modem_status(serial);
	default:
		return serial->scratch;
	}
}

/* Registers are bytes: only the first byte of a wider access is used. */
static void serial_access(void *context, uint64_t offset, bool write, void *data, unsigned int size)
{
	struct serial *serial = context;
	uint8_t *byte = data;
	bool was_full, full;

	pthread_mutex_lock(&serial->lock);
	was_full = buffered_count(serial) == RECEIVE_SIZE;
	if (write)
		write_register(serial, offset, *byte);
	else
		*byte = read_register(serial, offset);
	full = buffered_count(serial) == RECEIVE_SIZE;
	update_line(serial);
	pthread_mutex_unlock(&serial->lock);
	if (was_full && !full)
		console_input_resume(serial->input);
}

static int open_input(struct serial *serial, const struct serial_options *options,
		      struct event_loop *loop)
{
	struct console_input_options input = {
		.fd = options->input_fd,
		.filter = options->filter,
		.filter_context = options->filter_context,
		.room = receive_room,
		.receive = on_received,
		.context = serial,
	};

	return console_input_create(&serial->input, &input, loop);
}

int serial_create(struct serial **result, const struct serial_options *options,
		  struct event_loop *loop, struct irq_line line)
{
	struct serial *serial = calloc(1, sizeof(*serial));
	int error;

	*result = NULL;
	if (!serial)
		return error_set(-ENOMEM, "no memory for the serial port");
	serial->line = line;
	serial->lines = (struct console_lines){ .handler = options->line,
						.context = options->line_context };
	pthread_mutex_init(&serial->lock, NULL);
	error = console_output_create(&serial->output, options->output_fd, loop, on_output_room,
				      serial);
	if (!error)
		error = open_input(serial, options, loop);
	if (error)
		serial_destroy(serial);
	else
		*result = serial;
	return error;
}

void serial_destroy(struct serial *serial)
{
	if (!serial)
		return;
	console_input_destroy(serial->input);
	console_output_destroy(serial->output);
	pthread_mutex_destroy(&serial->lock);
	free(serial);
}

void serial_reset(struct serial *serial)
{
	pthread_mutex_lock(&serial->lock);
	serial->interrupt_enable = serial->fifo_control = serial->line_control = 0;
	serial->modem_control = serial->scratch = serial->divisor[0] = serial->divisor[1] = 0;
	serial->thr_empty_pending = false;
	serial->tail = serial->head;
	update_line(serial);
	pthread_mutex_unlock(&serial->lock);
	console_input_resume(serial->input);
}

int serial_add(struct serial *serial, struct bus *bus, uint16_t port)
{
	return bus_add(bus, BUS_PORT, port, REGISTER_COUNT, serial_access, serial);
}
