/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/machine/board.h"

/* The in-kernel irqchip never refuses a line of its own. */
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
	struct acpi_pm_handlers pm = { .power_off = events->power_off, .reset = events->reset,
				       .context = events->context };

	rtc_init(&board->rtc, NULL);
	acpi_pm_init(&board->acpi_pm, &pm, line_of(vm, ACPI_SCI_GSI));
	board->i8042 = (struct i8042){ .reset = events->reset, .context = events->context };
	board->debug_exit = (struct debug_exit){ .exit = events->debug_exit, .context = events->context };
	board->has_registers = true;
}

static int add_registers(struct board *board)
{
	int error = rtc_add(&board->rtc, &board->bus);

	if (!error)
		error = i8042_add(&board->i8042, &board->bus);
	if (!error)
		error = acpi_pm_add(&board->acpi_pm, &board->bus);
	return error ? error : debug_exit_add(&board->debug_exit, &board->bus);
}

static int add_serial(struct board *board, struct vm *vm, const struct machine_options *options)
{
	struct serial_options serial = {
		.output_fd = options->console_output,
		.input_fd = options->console_input,
		.filter = options->console_filter,
		.filter_context = options->console_filter_context,
	};
	int error = serial_create(&board->serial, &serial, board->loop, line_of(vm, SERIAL_GSI));

	return error ? error : serial_add(board->serial, &board->bus, SERIAL_PORT);
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
	if (error)
		board_destroy(board);
	return error;
}

void board_destroy(struct board *board)
{
	serial_destroy(board->serial);
	if (board->has_registers) {
		acpi_pm_destroy(&board->acpi_pm);
		rtc_destroy(&board->rtc);
	}
	event_loop_destroy(board->loop);
	*board = (struct board){ 0 };
}
