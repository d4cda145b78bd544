/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kvm/guest_run.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"

bool guest_run_possible(void)
{
	return access("/dev/kvm", R_OK | W_OK) == 0;
}

static void run_to_the_end(struct guest_run *run, struct machine *machine)
{
	struct pollfd end = { .fd = machine_end_fd(machine), .events = POLLIN };

	run->timed_out = poll(&end, 1, GUEST_SECONDS_MAX * 1000) == 0;
	if (run->timed_out)
		machine_stop(machine);
	machine_wait(machine, &run->result);
}

static bool continues(const struct guest_run *run, unsigned int boots)
{
	return !run->timed_out &&
	       (boots < run->boots || (run->resets && run->result.end == VCPU_END_RESET));
}

static int run_boots(struct guest_run *run, struct machine *machine)
{
	unsigned int boots = 0;
	int error = machine_start(machine);

	while (!error) {
		run_to_the_end(run, machine);
		if (!continues(run, ++boots))
			break;
		error = machine_reset(machine);
		if (!error)
			error = machine_start(machine);
	}
	return error;
}

void guest_run(struct guest_run *run)
{
	int console = memfd_create("console", MFD_CLOEXEC);
	struct machine_options options = {
		.boot = { .protocol = run->protocol,
			  .kernel = run->image ? run->image : GUEST_IMAGE,
			  .append = run->append,
			  .module_text = run->module_text },
		.cpus = run->cpus ? run->cpus : 1,
		.memory_size = run->memory_size ? run->memory_size : 64ull << 20,
		.console_output = console,
		.console_input = -1,
		.resets = run->resets || run->boots,
		.hooks = run->hooks,
		.pmu = run->pmu,
		.disks = &run->disk,
		.disk_count = run->disk.path ? 1 : 0,
		.agent_fd = run->agent_fd,
	};
	struct machine *machine;
	ssize_t printed;

	run->error = machine_create(&machine, &options);
	if (!run->error)
		run->error = run_boots(run, machine);
	if (run->error)
		FAIL_TEST("guest '%s': %s", run->append, error_message());
	machine_destroy(machine);
	printed = pread(console, run->console, sizeof(run->console) - 1, 0);
	run->console[printed < 0 ? 0 : printed] = '\0';
	close(console);
}

int guest_run_value(struct guest_run *run)
{
	if (run->error)
		return -1;
	if (run->timed_out || run->result.end != VCPU_END_DEBUG_EXIT) {
		FAIL_TEST("guest '%s' %s with end %d: %s; it printed: %s", run->append,
			  run->timed_out ? "did not end and was stopped" : "ended", run->result.end,
			  run->result.message, run->console);
		return -1;
	}
	return (int)run->result.debug_exit_value;
}
