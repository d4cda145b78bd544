/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope run: joins the machine, the user's console and signals, and the profile. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/command.h"
#include "vmm/cli/run_console.h"
#include "vmm/cli/run_options.h"
#include "vmm/machine/machine.h"

struct run {
	struct run_options options;
	struct console console;
	_Atomic(struct machine *) machine; /* NULL until it is made: the console may ask earlier */
	int signal_fd;
	uint64_t started;	  /* ms, see now_ms() */
	bool power_button_pressed; /* by a first SIGINT */
	bool timed_out;
};

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void on_quit(void *context)
{
	struct run *run = context;
	struct machine *machine = atomic_load(&run->machine);

	if (machine)
		machine_stop(machine);
}

/* Signals of the process come by descriptor; no thread made from here on takes them otherwise. */
static int take_signals(struct run *run)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &mask, NULL);
	signal(SIGPIPE, SIG_IGN); /* a console or a file that nobody reads is an error of writing, no end */
	run->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return run->signal_fd < 0 ? error_set(-errno, "can not make a signalfd: %s", strerror(errno)) : 0;
}

static int make_machine(struct run *run)
{
	struct machine_options options = {
		.boot = run->options.boot,
		.cpus = run->options.cpus,
		.memory_size = run->options.memory_size,
		.disks = run->options.disks,
		.disk_count = run->options.disk_count,
		.agent_socket = run->options.agent_socket,
	};
	struct machine *machine;
	int error = console_open(&run->console, &run->options, on_quit, run, &options);

	if (!error)
		error = machine_create(&machine, &options);
	if (!error)
		atomic_store(&run->machine, machine);
	return error;
}

/* First SIGINT: the guest is asked to power off, if it listens. Second, SIGTERM, SIGHUP: it is stopped. */
static void take_signal(struct run *run)
{
	struct signalfd_siginfo signal;

	if (read(run->signal_fd, &signal, sizeof(signal)) != sizeof(signal))
		return;
	if (signal.ssi_signo != SIGINT || run->power_button_pressed || !machine_power_button(run->machine)) {
		machine_stop(run->machine);
		return;
	}
	run->power_button_pressed = true;
	log_info("power button pressed; the guest may shut down, a second SIGINT stops it");
}

/* ms until SECONDS have passed since the start; at most a second, so that progress is shown. */
static int time_left(const struct run *run, unsigned int seconds)
{
	uint64_t passed = now_ms() - run->started, limit = seconds * 1000ull;

	if (!seconds || limit > passed + 1000)
		return 1000;
	return limit > passed ? (int)(limit - passed) : 0;
}

static void check_time(struct run *run)
{
	if (!time_left(run, run->options.duration)) {
		machine_stop(run->machine);
	} else if (!time_left(run, run->options.timeout)) {
		run->timed_out = true;
		machine_stop(run->machine);
	}
}

static void supervise(struct run *run)
{
	struct pollfd events[] = {
		{ .fd = machine_end_fd(run->machine), .events = POLLIN },
		{ .fd = run->signal_fd, .events = POLLIN },
	};

	run->started = now_ms();
	while (!(events[0].revents & POLLIN)) {
		int duration = time_left(run, run->options.duration);
		int timeout = time_left(run, run->options.timeout);

		if (poll(events, 2, duration < timeout ? duration : timeout) < 0)
			continue;
		if (events[1].revents & POLLIN)
			take_signal(run);
		check_time(run);
	}
}

/* What the guest's end means for the user: a message, and the exit status. */
static int report_end(const struct run *run, const struct machine_result *result)
{
	switch (result->end) {
	case VCPU_END_DEBUG_EXIT:
		return (int)(result->debug_exit_value & 0xff);
	case VCPU_END_SHUTDOWN:
	case VCPU_END_INTERNAL_ERROR:
		log_error("%s", result->message);
		return EXIT_GUEST_CRASH;
	case VCPU_END_HOST_ERROR:
		log_error("%s", result->message);
		return EXIT_FAILED;
	case VCPU_END_STOPPED:
		if (!run->timed_out)
			return EXIT_OK;
		log_error("the guest did not end within the --timeout of %u s and was stopped", run->options.timeout);
		return EXIT_TIMEOUT;
	case VCPU_END_POWER_OFF:
	case VCPU_END_RESET:
		break;
	}
	return EXIT_OK;
}

/* Writes out what the guest has printed and gives the terminal back: our own messages come behind. */
static void destroy_machine(struct run *run)
{
	machine_destroy(atomic_exchange(&run->machine, NULL));
	console_close(&run->console);
}

static int run_machine(struct run *run)
{
	struct machine_result result;

	if (machine_start(run->machine))
		return command_failed();
	supervise(run);
	machine_wait(run->machine, &result);
	destroy_machine(run);
	return report_end(run, &result);
}

static void clean_up(struct run *run)
{
	destroy_machine(run);
	if (run->signal_fd >= 0)
		close(run->signal_fd);
	run_options_free(&run->options);
}

int command_run(int argc, char **argv)
{
	struct run run = { .signal_fd = -1, .console.file = -1 };
	int status;

	if (run_options_parse(&run.options, argc, argv))
		return command_failed();
	log_quiet(run.options.quiet);
	log_verbose(run.options.verbose);
	if (take_signals(&run) || make_machine(&run))
		status = command_failed();
	else
		status = run_machine(&run);
	clean_up(&run);
	return status;
}
