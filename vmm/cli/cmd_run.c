/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope run: joins the machine, the user's console and signals, and the profile. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/command.h"
#include "vmm/cli/recording_disks.h"
#include "vmm/cli/run_console.h"
#include "vmm/cli/run_control.h"
#include "vmm/cli/run_options.h"
#include "vmm/cli/run_pmu.h"
#include "vmm/cli/run_profile.h"
#include "vmm/cli/run_triggers.h"
#include "vmm/kvm/statistics.h"
#include "vmm/machine/machine.h"
#include "vmm/perf_data/perf_data_output.h"

/*
 * Instructions per second of our CPU time that KVM itself executed for the
 * guest, from which on it is one that interprets guest kernel code: device
 * accesses alone, the other reason for it to do so, stay well below.
 */
#define INTERPRETED_PER_SECOND 300000

struct run {
	struct run_options options;
	struct console console;
	struct run_profile *profile; /* NULL with --no-profile */
	struct run_triggers *triggers;
	struct run_pmu_traps *pmu_traps;   /* or NULL */
	struct run_control *control;       /* NULL without a control socket */
	_Atomic(struct machine *) machine; /* NULL until it is made: the console may ask earlier */
	int signal_fd;
	uint64_t started, ended;   /* ms of CLOCK_MONOTONIC */
	bool power_button_pressed; /* by a first SIGINT */
	bool timed_out;
	bool in_a_hurry; /* whoever ended it does not wait: SIGTERM, SIGHUP, --timeout */
	struct vcpu_statistic interpreted;   /* of the first vCPU, closed once it was too high */
	uint64_t interpreted_before, looked; /* its value then, and then: ms of CPU time */
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

/* Signals of the process come by descriptor; no thread made from here on takes them otherwise. */
static int take_signals(struct run *run)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGHUP);
	sigaddset(&mask, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &mask, NULL);
	signal(SIGPIPE,
	       SIG_IGN); /* a console or a file that nobody reads is an error of writing, no end */
	run->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return run->signal_fd < 0
		       ? error_set(-errno, "can not make a signalfd: %s", strerror(errno))
		       : 0;
}

static struct flight_requests *flight_of(const struct run *run)
{
	return run->profile ? run_profile_flight(run->profile) : NULL;
}

static struct trigger *trigger_of(const struct run *run)
{
	return flight_of(run) ? flight_requests_trigger(flight_of(run)) : NULL;
}

static int make_machine(struct run *run)
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
		error = console_open(&run->console, &run->options, on_quit, run, &options);
	if (!error && run->options.profile) {
		error = run_profile_create(&run->profile, &run->options);
		if (!error)
			run_profile_join(run->profile, &options);
	}
	if (!error)
		error = run_triggers_create(&run->triggers, &run->options);
	if (error)
		return error;
	run_triggers_join(run->triggers, &options);
	error = machine_create(&machine, &options);
	if (error)
		return error;
	atomic_store(&run->machine, machine);
	console_tell(&run->console);
	error = run_pmu_start(run->pmu_traps, machine);
	if (!error && run->profile)
		error = run_profile_start(run->profile, machine);
	if (!error)
		error = run_triggers_start(run->triggers, machine, trigger_of(run));
	return error ? error : run_control_open(&run->control, &run->options, run->profile);
}

static void take_dump_signal(const struct run *run)
{
	if (flight_of(run))
		trigger_fire(trigger_of(run), TRIGGER_SIGNAL, "");
	else
		log_warning(
			"SIGUSR2 writes what a flight recorder holds, and this run has none: see --flight");
}

/* First SIGINT: the guest is asked to power off, if it listens. Second, SIGTERM, SIGHUP: it is
 * stopped. */
static void take_signal(struct run *run)
{
	struct signalfd_siginfo signal;

	if (read(run->signal_fd, &signal, sizeof(signal)) != sizeof(signal))
		return;
	if (signal.ssi_signo == SIGUSR2) {
		take_dump_signal(run);
		return;
	}
	atomic_store(&ended_by_user, true);
	run->in_a_hurry |= signal.ssi_signo != SIGINT;
	if (signal.ssi_signo != SIGINT || run->power_button_pressed ||
	    !machine_power_button(run->machine)) {
		machine_stop(run->machine);
		return;
	}
	run->power_button_pressed = true;
	log_info("power button pressed; the guest may shut down, a second SIGINT stops it");
}

/* ms until SECONDS have passed since the start; at most a second, so that progress is shown. */
static int time_left(const struct run *run, unsigned int seconds)
{
	uint64_t passed = clock_ms(CLOCK_MONOTONIC) - run->started, limit = seconds * 1000ull;

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
		run->in_a_hurry = true;
		machine_stop(run->machine);
	}
}

/* Not where the guest's console has the terminal: the two would write over each other. */
static bool shows_progress(const struct run *run)
{
	return run->profile &&
	       !(run->options.console == RUN_CONSOLE_STDIO && isatty(STDOUT_FILENO));
}

static void show_progress(struct run *run)
{
	uint64_t seconds = (clock_ms(CLOCK_MONOTONIC) - run->started) / 1000;
	struct collector_statistics statistics;

	run_profile_statistics(run->profile, &statistics);
	if (statistics.ended)
		return;
	log_progress("%llu:%02llu: %llu samples, %llu/s, %llu lost%s%s",
		     (unsigned long long)seconds / 60, (unsigned long long)seconds % 60,
		     (unsigned long long)statistics.samples,
		     (unsigned long long)(statistics.samples / (seconds ? seconds : 1)),
		     (unsigned long long)statistics.lost, *statistics.release ? ", Linux " : "",
		     statistics.release);
}

/*
 * Looks at the counter after each second of CPU time, until it has warned: on
 * such a KVM a Linux guest shows no sign of life for minutes, and then fails.
 */
static void check_interpretation(struct run *run)
{
	uint64_t now = clock_ms(CLOCK_PROCESS_CPUTIME_ID), passed = now - run->looked, count;

	if (run->interpreted.fd < 0 || passed < 1000)
		return;
	count = vcpu_statistic_read(&run->interpreted);
	if ((count - run->interpreted_before) * 1000 / passed > INTERPRETED_PER_SECOND) {
		log_warning(
			"this KVM interprets the guest's kernel code, a thousand times slower than the processor; "
			"Linux does not boot on such a KVM: see kvmscope doctor");
		vcpu_statistic_close(&run->interpreted);
	}
	log_debug("KVM executed %llu instructions for vCPU 0 in %llu ms",
		  (unsigned long long)(count - run->interpreted_before),
		  (unsigned long long)passed);
	run->interpreted_before = count;
	run->looked = now;
}

static void supervise(struct run *run)
{
	struct pollfd events[] = {
		{ .fd = machine_end_fd(run->machine), .events = POLLIN },
		{ .fd = run->signal_fd, .events = POLLIN },
	};

	while (!(events[0].revents & POLLIN)) {
		int duration = time_left(run, run->options.duration);
		int timeout = time_left(run, run->options.timeout);

		if (poll(events, 2, duration < timeout ? duration : timeout) < 0)
			continue;
		if (events[1].revents & POLLIN)
			take_signal(run);
		check_time(run);
		check_interpretation(run);
		if (shows_progress(run))
			show_progress(run);
	}
	run->ended = clock_ms(CLOCK_MONOTONIC);
	log_progress("%s", "");
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
		log_error("the guest did not end within the --timeout of %u s and was stopped",
			  run->options.timeout);
		return EXIT_TIMEOUT;
	case VCPU_END_POWER_OFF:
	case VCPU_END_RESET:
		break;
	}
	return EXIT_OK;
}

/* Writes out what the guest has printed and gives the terminal back: our own messages come behind.
 */
static void destroy_machine(struct run *run)
{
	run_pmu_destroy(run->pmu_traps);
	run->pmu_traps = NULL;
	machine_destroy(atomic_exchange(&run->machine, NULL));
	console_close(&run->console);
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
			 perf_data_output_name(run->options.output), more);
	else if (flight_requests_files(flight))
		log_info("%u flight recording%s in %.1f s; %.1f MiB", flight_requests_files(flight),
			 flight_requests_files(flight) == 1 ? "" : "s", seconds,
			 (double)statistics->bytes / 1048576);
	else
		log_info("no flight recording in %.1f s: nothing triggered one", seconds);
}

/* What was recorded, and what recording it cost. */
static void summarize(const struct run *run, const struct collector_statistics *statistics)
{
	double samples = (double)statistics->samples;

	summarize_output(run, statistics);
	if (statistics->samples && statistics->weight)
		log_info(
			"taking one cost %.1f us on average, %.2f %% of the sampled time, besides %s",
			(double)statistics->cost / samples / 1e3,
			100.0 * (double)statistics->cost / (double)statistics->weight,
			run_profile_by_bpf(run->profile) ? "the interrupt"
							 : "leaving and entering the guest");
	if (!statistics->samples && run->options.from_line)
		log_info(
			"there are no samples: --from-line '%s' was not printed on the console before the end",
			run->options.from_line);
	else if (!statistics->samples)
		log_info("there are no samples: the guest used no CPU time while it was sampled");
	else if (statistics->kernel && !statistics->kernel_found)
		log_info(
			"the guest's kernel was not found in its memory: its functions have no names; "
			"give --kallsyms or --vmlinux");
}

static int finish_profile(struct run *run, struct collector_statistics *statistics)
{
	*statistics = (struct collector_statistics){ 0 };
	if (!run->profile)
		return EXIT_OK;
	if (run_profile_stop(run->profile, statistics))
		return command_failed();
	run_profile_summarize_watches(run->profile);
	return EXIT_OK;
}

/* Before what its commands work on is gone. */
static void close_control(struct run *run)
{
	run_control_close(run->control);
	run->control = NULL;
}

/* What the guest had in memory is recorded while it is still there. */
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

/* Until the guest has ended, over resets where they are wanted. */
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
		run_triggers_stop(run->triggers);
		error = reset_guest(run, result);
		if (!error)
			error = run_triggers_start(run->triggers, run->machine, trigger_of(run));
	} while (!error);
	return error;
}

/* Nothing of processes is in the host's perspective. */
static void search_disks(const struct run *run, unsigned int files)
{
	const struct run_options *options = &run->options;
	const char *disks[RUN_DISKS_MAX];
	const struct recording_disks recording = { .output = options->output,
						   .files = files,
						   .disks = disks,
						   .count = options->disk_count,
						   .signal_fd = run->signal_fd };

	for (size_t i = 0; i < options->disk_count; i++)
		disks[i] = options->disks[i].path;
	if (options->disk_symbols && options->buildid_cache && !options->flight &&
	    !run->in_a_hurry && options->perspective == PERSPECTIVE_GUEST)
		recording_disks_search(&recording);
}

static int run_machine(struct run *run)
{
	struct collector_statistics statistics;
	struct machine_result result;
	int status, profile_status;

	vcpu_statistic_open(&run->interpreted, machine_vm(run->machine)->vcpus[0],
			    "insn_emulation");
	run->started = clock_ms(CLOCK_MONOTONIC);
	run->looked = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
	if (run_guest(run, &result))
		return command_failed();
	run_pmu_summarize(run->pmu_traps, run->machine);
	run_triggers_stop(run->triggers);
	if (flight_of(run))
		run_flight_guest_ended(flight_of(run), &result, run->timed_out);
	/* The profile reads guest memory to its end, so the machine goes after it. */
	profile_status = finish_profile(run, &statistics);
	if (run->control && flight_of(run))
		flight_requests_wait_for_users(flight_of(run));
	close_control(run);
	destroy_machine(run);
	if (run->profile && !profile_status)
		summarize(run, &statistics);
	status = report_end(run, &result);
	if (!profile_status && statistics.files)
		search_disks(run, statistics.files);
	return profile_status ? profile_status : status;
}

static void clean_up(struct run *run)
{
	close_control(run);
	run_triggers_destroy(run->triggers);
	run_profile_destroy(run->profile);
	destroy_machine(run);
	vcpu_statistic_close(&run->interpreted);
	if (run->signal_fd >= 0)
		close(run->signal_fd);
	run_options_free(&run->options);
}

int command_run(int argc, char **argv)
{
	struct run run = { .signal_fd = -1, .console.file = -1, .interpreted.fd = -1 };
	int status, error;

	atomic_store(&ended_by_user, false);
	if (run_options_parse(&run.options, argc, argv))
		return command_failed();
	log_quiet(run.options.quiet);
	log_verbose(run.options.verbose);
	error = take_signals(&run);
	if (!error)
		error = make_machine(&run);
	if (error) {
		status = command_failed();
		status = error == -ENOTSUP ? EXIT_UNSUPPORTED : status;
	} else {
		status = run_machine(&run);
	}
	clean_up(&run);
	return status;
}
