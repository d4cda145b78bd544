/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope run: connects the machine, the user's console and signals, and the profile. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/command.h"
#include "vmm/cli/confine.h"
#include "vmm/cli/record_archive.h"
#include "vmm/cli/record_progress.h"
#include "vmm/cli/recording_disks.h"
#include "vmm/cli/run_control.h"
#include "vmm/cli/run_exits.h"
#include "vmm/cli/run_options.h"
#include "vmm/cli/run_pmu.h"
#include "vmm/cli/run_profile.h"
#include "vmm/cli/run_triggers.h"
#include "vmm/cli/run_watch.h"
#include "vmm/devices/terminal.h"
#include "vmm/disk/guest_disk.h"
#include "vmm/disk/sandbox_broker.h"
#include "vmm/kvm/statistics.h"
#include "vmm/machine/machine.h"
#include "vmm/perf_data/perf_data_output.h"

/*
 * A KVM that executes more instructions per second of our CPU time itself interprets guest kernel
 * code. Device accesses, the other reason for it to do so, stay well below.
 */
#define INTERPRETED_PER_SECOND 300000

struct run {
	struct run_options options;
	struct terminal *terminal;   /* NULL: standard input is not a terminal, or used by others */
	int console_file;            /* -1: none */
	struct run_profile *profile; /* NULL with --no-profile */
	struct run_triggers triggers;
	struct run_pmu_traps *pmu_traps;   /* or NULL */
	struct run_exits *exits;           /* NULL without --stat */
	struct run_control *control;       /* NULL without a control socket */
	_Atomic(struct machine *) machine; /* NULL until created: the console may use it earlier */
	int signal_fd;
	uint64_t started, ended;   /* ms of CLOCK_MONOTONIC */
	bool power_button_pressed; /* by a first SIGINT */
	bool timed_out;
	bool never_watched;                 /* the address of a watch was not found */
	struct sandbox_broker *disk_reader; /* NULL: the disks are not searched */
	char *disks[RUN_DISKS_MAX];         /* for it: owned, absolute paths */
	bool skips_disks; /* ended by SIGTERM, SIGHUP or --timeout: the disks are not searched */
	struct vcpu_statistic interpreted;   /* of the first vCPU, closed after the warning */
	uint64_t interpreted_before, polled; /* its value at the last poll, in ms of CPU time */
};

static atomic_bool ended_by_user;

bool command_run_was_ended(void)
{
	return atomic_load(&ended_by_user);
}

static void on_quit(void *context)
{
	struct run *run = context;
	struct machine *machine = atomic_load(&run->machine);

	atomic_store(&ended_by_user, true);
	if (machine)
		machine_stop(machine);
}

/* A process in the background is stopped if it touches the terminal (SIGTTOU). */
static bool terminal_is_ours(void)
{
	return isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

/* Ctrl-A x ends the guest on the devices' thread. */
static int open_stdio(struct run *run, struct machine_options *machine)
{
	bool data_on_stdout = run->options.profile && !strcmp(run->options.record.output, "-");
	int error;

	machine->console_output = data_on_stdout ? STDERR_FILENO : STDOUT_FILENO;
	if (!isatty(STDIN_FILENO)) {
		machine->console_input = STDIN_FILENO;
		return 0;
	}
	if (!terminal_is_ours())
		return 0;
	machine->console_input = STDIN_FILENO;
	machine->console_filter = terminal_filter;
	error = terminal_create(&run->terminal, STDIN_FILENO, on_quit, run);
	machine->console_filter_context = run->terminal;
	return error;
}

static int open_console(struct run *run, struct machine_options *machine)
{
	const char *path = run->options.console_path;

	machine->console_output = machine->console_input = -1;
	if (run->options.console == RUN_CONSOLE_STDIO)
		return open_stdio(run, machine);
	if (run->options.console == RUN_CONSOLE_NONE)
		return 0;
	run->console_file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	machine->console_output = run->console_file;
	return run->console_file < 0
		       ? error_set(-errno, "cannot open %s for the console's output: %s", path,
				   strerror(errno))
		       : 0;
}

/* Restores the terminal. */
static void close_console(struct run *run)
{
	terminal_destroy(run->terminal);
	run->terminal = NULL;
	if (run->console_file >= 0)
		close(run->console_file);
	run->console_file = -1;
}

static struct flight_requests *flight_of(const struct run *run)
{
	return run->profile ? run_profile_flight(run->profile) : NULL;
}

static struct trigger *trigger_of(const struct run *run)
{
	return flight_of(run) ? flight_requests_trigger(flight_of(run)) : NULL;
}

/* A process that may execute the program that reads disks; this one no longer may. */
static int start_disk_reader(struct run *run)
{
	const struct run_options *options = &run->options;
	struct disk_file files[RUN_DISKS_MAX] = { 0 };

	if (!options->profile || !record_options_search_disks(&options->record) ||
	    options->flight || !options->disk_count || !guest_disk_reader())
		return 0;
	for (size_t i = 0; i < options->disk_count; i++) {
		run->disks[i] = realpath(options->disks[i].path, NULL);
		if (!run->disks[i])
			return error_set(-errno, "--disk %s: %m", options->disks[i].path);
		files[i].path = run->disks[i];
	}
	return sandbox_broker_start(&run->disk_reader, guest_disk_reader(), files,
				    options->disk_count);
}

static int create_machine(struct run *run)
{
	struct machine_options options = {
		.boot = run->options.boot,
		.cpus = run->options.cpus,
		.memory_size = run->options.memory_size,
		.resets = run->options.reboot,
		.nested = run->options.nested,
		.disks = run->options.disks,
		.disk_count = run->options.disk_count,
		.agent_socket = run->options.agent_socket,
	};
	struct machine *machine;
	int error = run_pmu_join(&run->pmu_traps, run->options.pmu, &options);

	if (!error)
		error = open_console(run, &options);
	if (!error && run->options.profile) {
		error = run_profile_create(&run->profile, &run->options);
		if (!error)
			run_profile_attach(run->profile, &options);
	}
	if (error)
		return error;
	run_triggers_join(&run->triggers, &run->options.triggers, &options);
	error = machine_create(&machine, &options);
	if (error)
		return error;
	atomic_store(&run->machine, machine);
	if (run->terminal)
		log_info(
			"this terminal is the guest's: Ctrl-A x ends the guest, Ctrl-A h lists the keys");
	error = run->exits ? run_exits_join(run->exits, machine) : 0;
	if (!error)
		error = run_pmu_start(run->pmu_traps, machine);
	if (!error && run->profile)
		error = run_profile_start(run->profile, machine);
	if (!error)
		error = run_triggers_start(&run->triggers, machine, trigger_of(run));
	if (!error)
		error = run_control_open(&run->control, &run->options, run->profile);
	return error ? error : confine_main();
}

static void fire_dump(const struct run *run)
{
	if (flight_of(run))
		trigger_fire(trigger_of(run), TRIGGER_SIGNAL, "");
	else
		log_warning(
			"SIGUSR2 makes a flight recorder write its samples, but this run has none: see --flight");
}

/* The first SIGINT asks the guest to power off, if it supports that. A second one, SIGTERM and
 * SIGHUP stop it. */
static void handle_signal(struct run *run)
{
	int signal = record_next_signal(run->signal_fd);

	if (!signal)
		return;
	if (signal == SIGUSR2) {
		fire_dump(run);
		return;
	}
	atomic_store(&ended_by_user, true);
	run->skips_disks |= signal != SIGINT;
	if (signal != SIGINT || run->power_button_pressed || !machine_power_button(run->machine)) {
		machine_stop(run->machine);
		return;
	}
	run->power_button_pressed = true;
	log_info("power button pressed; the guest may shut down, a second SIGINT stops it");
}

static void check_time(struct run *run)
{
	if (!record_time_left(run->started, run->options.duration)) {
		machine_stop(run->machine);
	} else if (!record_time_left(run->started, run->options.timeout)) {
		run->timed_out = true;
		run->skips_disks = true;
		machine_stop(run->machine);
	}
}

/* Not on a terminal that the guest's console uses: they would overwrite each other. */
static void show_progress(const struct run *run)
{
	struct collector_statistics statistics;

	if (!run->profile || (run->options.console == RUN_CONSOLE_STDIO && isatty(STDOUT_FILENO)))
		return;
	run_profile_statistics(run->profile, &statistics);
	if (!statistics.ended)
		record_progress(run->started, &statistics);
}

/* Polls the counter after each second of CPU time and warns once: on such a KVM a Linux guest shows
 * no sign of life for minutes, and then fails. */
static void check_interpretation(struct run *run)
{
	uint64_t now = clock_ms(CLOCK_PROCESS_CPUTIME_ID), passed = now - run->polled, count;

	if (run->interpreted.fd < 0 || passed < 1000)
		return;
	count = vcpu_statistic_read(&run->interpreted);
	if ((count - run->interpreted_before) * 1000 / passed > INTERPRETED_PER_SECOND) {
		log_warning(
			"this KVM interprets the guest's kernel code, a thousand times slower than the processor; "
			"Linux does not boot on it: see kvmscope doctor");
		vcpu_statistic_close(&run->interpreted);
	}
	log_debug("KVM executed %llu instructions for vCPU 0 in %llu ms",
		  (unsigned long long)(count - run->interpreted_before),
		  (unsigned long long)passed);
	run->interpreted_before = count;
	run->polled = now;
}

static void supervise(struct run *run)
{
	struct pollfd events[] = {
		{ .fd = machine_end_fd(run->machine), .events = POLLIN },
		{ .fd = run->signal_fd, .events = POLLIN },
	};

	while (!(events[0].revents & POLLIN)) {
		int duration = record_time_left(run->started, run->options.duration);
		int timeout = record_time_left(run->started, run->options.timeout);

		if (poll(events, 2, duration < timeout ? duration : timeout) < 0)
			continue;
		if (events[1].revents & POLLIN)
			handle_signal(run);
		check_time(run);
		check_interpretation(run);
		show_progress(run);
	}
	run->ended = clock_ms(CLOCK_MONOTONIC);
	log_progress("%s", "");
}

/* Logs why the guest ended and returns the exit status. */
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
		log_error("the guest did not end within the --timeout of %u s and was stopped",
			  run->options.timeout);
		return EXIT_TIMEOUT;
	case VCPU_END_POWER_OFF:
	case VCPU_END_RESET:
		break;
	}
	return EXIT_OK;
}

/* Flushes the guest's output and restores the terminal, before our own messages. */
static void destroy_machine(struct run *run)
{
	run_pmu_destroy(run->pmu_traps);
	run->pmu_traps = NULL;
	machine_destroy(atomic_exchange(&run->machine, NULL));
	close_console(run);
}

static void summarize_output(const struct run *run, const struct collector_statistics *statistics)
{
	double seconds = (double)(run->ended - run->started) / 1e3;
	struct flight_requests *flight = flight_of(run);
	char more[64] = "", outside[64] = "";

	if (statistics->files > 1)
		snprintf(more, sizeof(more), " to .%u, one for each kernel", statistics->files - 1);
	if (statistics->host)
		snprintf(outside, sizeof(outside), ", %llu of them outside of the guest,",
			 (unsigned long long)statistics->host);
	if (!flight)
		log_info("%llu samples%s in %.1f s, %llu lost; %.1f MiB in %s%s",
			 (unsigned long long)statistics->samples, outside, seconds,
			 (unsigned long long)statistics->lost, (double)statistics->bytes / 1048576,
			 perf_data_output_name(run->options.record.output), more);
	else if (flight_requests_files(flight))
		log_info("%u flight recording%s in %.1f s; %.1f MiB", flight_requests_files(flight),
			 flight_requests_files(flight) == 1 ? "" : "s", seconds,
			 (double)statistics->bytes / 1048576);
	else
		log_info("no flight recording in %.1f s: nothing triggered one", seconds);
}

static void summarize(const struct run *run, const struct collector_statistics *statistics)
{
	struct vcpu_times times;

	summarize_output(run, statistics);
	run_profile_times(run->profile, &times);
	record_summarize_times(&times);
	record_summarize_cost(statistics, run_profile_by_bpf(run->profile)
						  ? "the interrupt"
						  : "leaving and entering the guest");
	if (!statistics->samples && run->options.from_line)
		log_info(
			"there are no samples: the console did not print --from-line '%s' before the end",
			run->options.from_line);
	else if (!statistics->samples)
		log_info("there are no samples: the guest used no CPU time while it was sampled");
	else
		record_summarize_kernel(statistics);
}

static int finish_profile(struct run *run, struct collector_statistics *statistics)
{
	struct vcpu_times_rows times;
	enum vcpu_times_detail detail;

	*statistics = (struct collector_statistics){ 0 };
	if (!run->profile)
		return EXIT_OK;
	if (run->exits && run_exits_times(run->exits, &times, &detail)) {
		run_profile_set_times(run->profile, &times, detail);
		vcpu_times_free(&times);
	}
	if (run_profile_stop(run->profile, statistics))
		return command_failed();
	run->never_watched = !run_watch_summarize(run_profile_watch(run->profile));
	return EXIT_OK;
}

/* Before its commands lose what they work on. */
static void close_control(struct run *run)
{
	run_control_close(run->control);
	run->control = NULL;
}

/* The profile reads guest memory before the reset clears it. */
static int reset_guest(struct run *run, const struct machine_result *result)
{
	log_info("the guest is reset");
	if (flight_of(run))
		run_flight_guest_ended(flight_of(run), result, false);
	if (run->profile)
		run_profile_reset(run->profile);
	run->power_button_pressed = false;
	return machine_reset(run->machine);
}

/* Runs until the guest has ended, with --reboot over resets. */
static int run_guest(struct run *run, struct machine_result *result)
{
	int error;

	do {
		error = machine_start(run->machine);
		if (error)
			return error;
		supervise(run);
		machine_wait(run->machine, result);
		if (result->end != VCPU_END_RESET || !run->options.reboot)
			return 0;
		run_triggers_stop(&run->triggers);
		error = reset_guest(run, result);
		if (!error)
			error = run_triggers_start(&run->triggers, run->machine, trigger_of(run));
	} while (!error);
	return error;
}

static void search_disks(const struct run *run, unsigned int files)
{
	const struct run_options *options = &run->options;
	const char *disks[RUN_DISKS_MAX];
	const struct recording_disks recording = { .output = options->record.output,
						   .files = files,
						   .disks = disks,
						   .count = options->disk_count,
						   .broker = run->disk_reader,
						   .signal_fd = run->signal_fd };

	for (size_t i = 0; i < options->disk_count; i++)
		disks[i] = run->disk_reader ? run->disks[i] : options->disks[i].path;
	if (record_options_search_disks(&options->record) && !options->flight && !run->skips_disks)
		recording_disks_search(&recording);
}

static int run_machine(struct run *run)
{
	struct collector_statistics statistics;
	struct machine_result result;
	int status, profile_status;
	unsigned int vcpus;

	vcpu_statistic_open(&run->interpreted, machine_vm(run->machine)->vcpus[0],
			    "insn_emulation");
	run->started = clock_ms(CLOCK_MONOTONIC);
	run->polled = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
	if (run_guest(run, &result))
		return command_failed();
	run_pmu_summarize(run->pmu_traps, run->machine);
	run_triggers_stop(&run->triggers);
	if (flight_of(run))
		run_flight_guest_ended(flight_of(run), &result, run->timed_out);
	/* The profile reads guest memory until its end. */
	profile_status = finish_profile(run, &statistics);
	if (run->control && flight_of(run))
		flight_requests_wait_for_users(flight_of(run));
	close_control(run);
	vcpus = machine_vm(run->machine)->vcpu_count;
	destroy_machine(run);
	if (run->profile && !profile_status)
		summarize(run, &statistics);
	if (run->exits)
		run_exits_print(run->exits, vcpus, (double)(run->ended - run->started) / 1e3);
	status = report_end(run, &result);
	if (!profile_status && statistics.files) {
		search_disks(run, statistics.files);
		if (record_archive(&run->options.record, statistics.files))
			profile_status = command_failed();
		else if (!flight_of(run))
			record_suggest_report(&statistics, run->options.record.output);
	}
	if (!status && run->never_watched)
		status = EXIT_FAILED;
	return profile_status ? profile_status : status;
}

static void clean_up(struct run *run)
{
	close_control(run);
	run_triggers_stop(&run->triggers);
	run_profile_destroy(run->profile);
	destroy_machine(run);
	run_exits_close(run->exits);
	vcpu_statistic_close(&run->interpreted);
	sandbox_broker_leave(run->disk_reader);
	for (size_t i = 0; i < RUN_DISKS_MAX; i++)
		free(run->disks[i]);
	if (run->signal_fd >= 0)
		close(run->signal_fd);
	run_options_free(&run->options);
}

int command_run(int argc, char **argv)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR2, 0 };
	struct run run = { .signal_fd = -1, .console_file = -1, .interpreted.fd = -1 };
	int status, error;

	atomic_store(&ended_by_user, false);
	if (run_options_parse(&run.options, argc, argv))
		return command_failed();
	log_quiet(run.options.record.quiet);
	log_verbose(run.options.record.verbose);
	run.signal_fd = record_signals(signals);
	error = run.signal_fd < 0 ? run.signal_fd : start_disk_reader(&run);
	if (!error && run.options.stat)
		error = run_exits_open(&run.exits);
	if (!error)
		error = confine_start(&run.options);
	if (!error)
		error = create_machine(&run);
	if (error) {
		status = command_failed();
		status = error == -ENOTSUP ? EXIT_UNSUPPORTED : status;
	} else {
		status = run_machine(&run);
	}
	clean_up(&run);
	return status;
}
