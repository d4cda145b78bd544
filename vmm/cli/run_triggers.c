/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_triggers.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "shared/error.h"
#include "shared/log.h"

struct run_triggers {
	const struct run_options *options;
	struct trigger *trigger; /* NULL: nobody records */
	atomic_flag panic_told;  /* a guest can panic as often as it likes */
};

int run_triggers_create(struct run_triggers **triggers, const struct run_options *options)
{
	*triggers = calloc(1, sizeof(**triggers));
	if (!*triggers)
		return error_set(-ENOMEM, "no memory for triggers");
	(*triggers)->options = options;
	return 0;
}

static void on_panic(void *context, bool crash_kernel)
{
	struct run_triggers *triggers = context;
	const char *detail = crash_kernel ? "it goes on with its crash kernel" : "";

	trigger_fire(triggers->trigger, TRIGGER_PANIC, detail);
	if (!atomic_flag_test_and_set(&triggers->panic_told))
		log_warning("the guest's kernel panicked%s%s", crash_kernel ? "; " : "", detail);
}

void run_triggers_join(struct run_triggers *triggers, struct machine_options *machine)
{
	machine->panic = on_panic;
	machine->panic_context = triggers;
}

int run_triggers_start(struct run_triggers *triggers, struct machine *machine, struct trigger *trigger)
{
	triggers->trigger = trigger;
	return 0;
}

void run_triggers_destroy(struct run_triggers *triggers)
{
	free(triggers);
}
