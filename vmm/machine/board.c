/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/machine/board.h"

#include <errno.h>
#include <stdio.h>

#include "shared/error.h"
#include "vmm/devices/virtio_blk.h"
#include "vmm/devices/virtio_console.h"
#include "vmm/devices/virtio_mmio.h"
#include "vmm/devices/virtio_rng.h"

/* The name of the agent's port in a guest: /dev/virtio-ports/org.kvmscope.agent.0 */
#define AGENT_PORT "org.kvmscope.agent.0"

/* The in-kernel irqchip never refuses one of its lines. */
static void set_irq(void *context, unsigned int gsi, bool high)
{
	vm_set_irq(context, gsi, high);
}

static struct irq_line line_of(struct vm *vm, unsigned int gsi)
{
	return (struct irq_line){ .set = set_irq, .context = vm, .gsi = gsi };
}

static void init_registers(struct board *board, struct vm *vm, const struct board_events *events)
{
	struct acpi_pm_handlers pm = { .power_off = events->power_off,
				       .reset = events->reset,
				       .context = events->context };

	rtc_init(&board->rtc, NULL);
	acpi_pm_init(&board->acpi_pm, &pm, line_of(vm, ACPI_SCI_GSI));
	board->i8042 = (struct i8042){ .reset = events->reset, .context = events->context };
	board->debug_exit =
		(struct debug_exit){ .exit = events->debug_exit, .context = events->context };
	board->pvpanic =
		(struct pvpanic){ .panic = events->panic, .context = events->panic_context };
	board->has_registers = true;
}

static int add_registers(struct board *board)
{
	int error = rtc_add(&board->rtc, &board->bus);

	if (!error)
		error = i8042_add(&board->i8042, &board->bus);
	if (!error)
		error = acpi_pm_add(&board->acpi_pm, &board->bus);
	if (!error)
		error = pvpanic_add(&board->pvpanic, &board->bus);
	return error ? error : debug_exit_add(&board->debug_exit, &board->bus);
}

static int add_serial(struct board *board, struct vm *vm, const struct machine_options *options)
{
	struct serial_options serial = {
		.output_fd = options->console_output,
		.input_fd = options->console_input,
		.filter = options->console_filter,
		.filter_context = options->console_filter_context,
		.line = options->console_line,
		.line_context = options->console_line_context,
	};
	int error = serial_create(&board->serial, &serial, board->loop, line_of(vm, SERIAL_GSI));

	return error ? error : serial_add(board->serial, &board->bus, SERIAL_PORT);
}

/* The interrupt line of the next free slot, for a device that is about to be created. */
static struct irq_line next_virtio_line(const struct board *board, struct vm *vm)
{
	return line_of(vm, BOARD_VIRTIO_GSI + (unsigned int)board->virtio_count);
}

/* Puts DEVICE, which the board owns from now on, into the next free slot. */
static int add_virtio(struct board *board, struct virtio_device *device)
{
	size_t index = board->virtio_count++;
	uint64_t gpa = BOARD_VIRTIO_START + index * BOARD_VIRTIO_STRIDE;

	board->virtio[index] = device;
	board->virtio_slots[index] = (struct acpi_virtio_device){ .gpa = gpa,
								  .size = VIRTIO_MMIO_SIZE,
								  .gsi = device->line.gsi };
	return virtio_mmio_add(device, &board->bus, gpa);
}

static int add_disk(struct board *board, struct vm *vm, const struct machine_disk *disk)
{
	char id[21]; /* the device copies it */
	struct virtio_blk_options options = { .path = disk->path,
					      .read_only = disk->read_only,
					      .id = id };
	struct virtio_device *device;
	int error;

	if (board->virtio_count == BOARD_VIRTIO_MAX)
		return error_set(-ENOSPC, "no slot for the disk %s: at most %d virtio devices fit",
				 disk->path, BOARD_VIRTIO_MAX);
	snprintf(id, sizeof(id), "kvmscope-%zu", board->virtio_count);
	error = virtio_blk_create(&device, &options, &vm->memory, board->loop,
				  next_virtio_line(board, vm));
	return error ? error : add_virtio(board, device);
}

static int add_agent_port(struct board *board, struct vm *vm, const struct machine_options *options)
{
	struct virtio_console_port port = {
		.name = AGENT_PORT,
		.socket_path = options->agent_socket,
		.fd = options->agent_fd > 0 ? options->agent_fd : -1,
	};
	struct virtio_console_options console = { .ports = &port, .port_count = 1 };
	struct virtio_device *device;
	int error;

	if (!port.socket_path && port.fd < 0)
		return 0;
	error = virtio_console_create(&device, &console, &vm->memory, board->loop,
				      next_virtio_line(board, vm));
	return error ? error : add_virtio(board, device);
}

static int add_entropy(struct board *board, struct vm *vm)
{
	struct virtio_device *device;
	int error = virtio_rng_create(&device, 0, &vm->memory, board->loop,
				      next_virtio_line(board, vm));

	return error ? error : add_virtio(board, device);
}

static int add_virtio_devices(struct board *board, struct vm *vm,
			      const struct machine_options *options)
{
	int error = add_agent_port(board, vm, options);

	if (!error)
		error = add_entropy(board, vm);
	for (size_t i = 0; i < options->disk_count && !error; i++)
		error = add_disk(board, vm, &options->disks[i]);
	return error;
}

int board_create(struct board *board, struct vm *vm, const struct machine_options *options,
		 const struct board_events *events)
{
	int error;

	*board = (struct board){ 0 };
	error = event_loop_create(&board->loop);
	if (!error) {
		init_registers(board, vm, events);
		error = add_registers(board);
	}
	if (!error)
		error = add_serial(board, vm, options);
	if (!error)
		error = add_virtio_devices(board, vm, options);
	if (error)
		board_destroy(board);
	return error;
}

void board_reset(struct board *board)
{
	for (size_t i = 0; i < board->virtio_count; i++)
		virtio_device_reset(board->virtio[i]);
	serial_reset(board->serial);
	acpi_pm_reset(&board->acpi_pm);
}

void board_destroy(struct board *board)
{
	while (board->virtio_count)
		virtio_device_destroy(board->virtio[--board->virtio_count]);
	serial_destroy(board->serial);
	if (board->has_registers) {
		acpi_pm_destroy(&board->acpi_pm);
		rtc_destroy(&board->rtc);
	}
	event_loop_destroy(board->loop);
	*board = (struct board){ 0 };
}
