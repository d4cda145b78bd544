/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_triggers.h"

#include "shared/log.h"
#include "vmm/sample/watchdog.h"

static void on_panic(void *context, bool crash_kernel)
{
	struct run_triggers *triggers = context;
	const char *detail = crash_kernel ? "it continues with its crash kernel" : "";

	trigger_fire(triggers->trigger, TRIGGER_PANIC, detail);
	if (!atomic_flag_test_and_set(&triggers->panic_logged))
		log_warning("the guest's kernel panicked%s%s", crash_kernel ? "; " : "", detail);
}

/* Fires once per line, however many expressions it matches. */
static void on_console_line(void *context, const char *line)
{
	const struct run_triggers *triggers = context;
	const struct trigger_options *options = triggers->options;

	if (triggers->next_line)
		triggers->next_line(triggers->next_line_context, line);
	for (size_t i = 0; i < options->line_count; i++) {
		if (regexec(&options->lines[i], line, 0, NULL, 0))
			continue;
		trigger_fire(triggers->trigger, TRIGGER_CONSOLE_LINE, line);
		return;
	}
}

void run_triggers_join(struct run_triggers *triggers, const struct trigger_options *options,
		       struct machine_options *machine)
{
	*triggers = (struct run_triggers){ .options = options };
	if (options->line_count) {
		triggers->next_line = machine->console_line;
		triggers->next_line_context = machine->console_line_context;
		machine->console_line = on_console_line;
		machine->console_line_context = triggers;
	}
	machine->panic = on_panic;
	machine->panic_context = triggers;
}

int run_triggers_start(struct run_triggers *triggers, struct machine *machine,
		       struct trigger *trigger)
{
	const struct trigger_options *options = triggers->options;

	triggers->trigger = trigger;
	if (!trigger_options_have_limits(options))
		return 0;
	return watchdog_create(&triggers->watchdog, machine_vm(machine), &options->limits, trigger);
}

void run_triggers_stop(struct run_triggers *triggers)
{
	watchdog_destroy(triggers->watchdog);
	triggers->watchdog = NULL;
}
