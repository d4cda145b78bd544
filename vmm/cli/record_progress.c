/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/record_progress.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/wall_times.h"
#include "vmm/perf_data/output_path.h"
#include "vmm/session/profile_session.h"

int record_signals(const int *signals)
{
	sigset_t mask;
	int fd;

	sigemptyset(&mask);
	for (; *signals; signals++)
		sigaddset(&mask, *signals);
	pthread_sigmask(SIG_BLOCK, &mask, NULL);
	signal(SIGPIPE, SIG_IGN);
	fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? error_set(-errno, "cannot create a signalfd: %s", strerror(errno)) : fd;
}

int record_next_signal(int fd)
{
	struct signalfd_siginfo signal;

	return read(fd, &signal, sizeof(signal)) == sizeof(signal) ? (int)signal.ssi_signo : 0;
}

int record_time_left(uint64_t started, unsigned int seconds)
{
	uint64_t passed = clock_ms(CLOCK_MONOTONIC) - started, limit = seconds * 1000ull;

	if (!seconds || limit > passed + 1000)
		return 1000;
	return limit > passed ? (int)(limit - passed) : 0;
}

void record_progress(uint64_t started, const struct collector_statistics *statistics)
{
	unsigned long long seconds = (clock_ms(CLOCK_MONOTONIC) - started) / 1000;
	char outside[64] = "";

	if (statistics->host)
		snprintf(outside, sizeof(outside), ", %llu of them outside of the guest",
			 (unsigned long long)statistics->host);
	log_progress("%llu:%02llu: %llu samples%s, %llu/s, %llu lost%s%s", seconds / 60,
		     seconds % 60, (unsigned long long)statistics->samples, outside,
		     statistics->samples / (seconds ? seconds : 1),
		     (unsigned long long)statistics->lost, *statistics->release ? ", Linux " : "",
		     statistics->release);
}

void record_summarize_cost(const struct collector_statistics *statistics, const char *besides)
{
	if (!statistics->samples || !statistics->weight)
		return;
	if (statistics->cost)
		log_info(
			"profiling overhead: %.2f %% of the guest's time, %.1f us per sample, besides %s",
			100.0 * (double)statistics->cost / (double)statistics->weight,
			(double)statistics->cost / (double)statistics->samples / 1e3, besides);
	else
		log_info("profiling overhead: not measured by this backend");
}

static double wall_time(const struct vcpu_times *times)
{
	return (double)(times->ns[VCPU_RUNNING] + times->ns[VCPU_WAITING] + times->ns[VCPU_ASLEEP]);
}

void record_summarize_times(const struct vcpu_times *times)
{
	double wall = wall_time(times);

	if (wall > 0)
		log_info(
			"the vCPUs were %.1f %% of the wall time on a CPU, waited %.1f %% for one, and "
			"slept %.1f %%",
			(double)times->ns[VCPU_RUNNING] / wall * 100,
			(double)times->ns[VCPU_WAITING] / wall * 100,
			(double)times->ns[VCPU_ASLEEP] / wall * 100);
}

void record_summarize_kernel(const struct collector_statistics *statistics)
{
	if (statistics->kernel && !statistics->kernel_found)
		log_info(
			"the guest's kernel was not found in its memory: its functions have no symbols; "
			"give --kallsyms or --vmlinux");
}

void record_suggest_report(const struct collector_statistics *statistics, const char *output)
{
	bool is_default = !strcmp(output, "perf.data"), is_plain = !output[strcspn(output, " '\"")];
	char file[PATH_MAX];

	if (!statistics->samples || !output_path_is_file(output, file))
		return;
	snprintf(file, sizeof(file), is_plain ? " %s" : " \"%s\"", output);
	log_info("next: kvmscope report%s, or kvmscope export%s for a flame graph",
		 is_default ? "" : file, is_default ? "" : file);
}

/* kvmscope attach. */

/* us */
static double mean_stop(const struct attach_stops *stops)
{
	return stops->count ? (double)stops->total / (double)stops->count / 1e3 : 0;
}

static void log_stops(const struct attach_stops *stops)
{
	log_info(
		"vCPUs were stopped %llu times, for %.1f us on average and %.1f us at most; %llu stops exceeded the "
		"%llu us of --stop-limit, and %llu of those were abandoned without a sample; %llu times a vCPU slept "
		"and was not stopped",
		(unsigned long long)stops->count, mean_stop(stops), (double)stops->longest / 1e3,
		(unsigned long long)stops->over, (unsigned long long)stops->limit / 1000,
		(unsigned long long)stops->abandoned, (unsigned long long)stops->asleep);
}

void attach_summary_log(const struct collector_statistics *statistics,
			const struct attach_statistics *counts, double seconds, const char *output)
{
	if (counts->ended)
		log_info("the VM has ended");
	log_info(
		"%llu samples of the guest and %llu outside of it in %.1f s, %llu lost; %.1f MiB in %s",
		(unsigned long long)(statistics->samples - statistics->host),
		(unsigned long long)statistics->host, seconds, (unsigned long long)statistics->lost,
		(double)statistics->bytes / 1048576, output);
	if (counts->outside)
		log_info("%llu samples of the time outside of the guest, by its events",
			 (unsigned long long)counts->outside);
	record_summarize_times(&counts->times);
	if (counts->stops.limit)
		log_stops(&counts->stops);
	record_summarize_cost(statistics, counts->stops.limit ? "leaving and entering the guest"
							      : "the interrupt");
	if (!statistics->samples && !statistics->lost)
		log_info("there are no samples: %s",
			 seconds > 0 ? "the VM used no CPU time"
				     : "it was ended while the guest's kernel was searched");
	else
		record_summarize_kernel(statistics);
}

void attach_summary_log_agent(const struct agent_statistics *agent)
{
	if (agent->sessions)
		agent_report(agent);
	else if (agent->unconnected == -EBUSY)
		log_warning(
			"another program is connected to the channel of the guest agent: user-space images have "
			"no symbols");
	else if (agent->unconnected)
		log_warning("the channel of the guest agent cannot be connected to: %s",
			    strerror(-agent->unconnected));
	else
		log_info(
			"no guest agent answered: is kvmscope-agent installed in the guest, and running?");
}

static json_t *stops_of(const struct attach_stops *stops)
{
	return json_pack("{s:I,s:f,s:f,s:f,s:I,s:I,s:I}", "count", (json_int_t)stops->count,
			 "mean_us", mean_stop(stops), "max_us", (double)stops->longest / 1e3,
			 "limit_us", (double)stops->limit / 1e3, "over_limit",
			 (json_int_t)stops->over, "abandoned", (json_int_t)stops->abandoned,
			 "asleep", (json_int_t)stops->asleep);
}

static json_t *agent_of(const struct agent_statistics *agent)
{
	return json_pack("{s:s,s:I,s:I,s:I,s:f}", "state", session_agent_word(agent), "sessions",
			 (json_int_t)agent->sessions, "records", (json_int_t)agent->records, "lost",
			 (json_int_t)agent->lost, "clock_error_us",
			 (double)agent->clock_error / 1e3);
}

/* What a sample cost the guest, or the host, besides the interrupt. */
static json_t *cost_of(const struct collector_statistics *statistics)
{
	return json_pack("{s:f,s:f}", "mean_us",
			 (double)statistics->cost / (double)statistics->samples / 1e3, "percent",
			 100.0 * (double)statistics->cost / (double)statistics->weight);
}

void attach_summary_print(const struct collector_statistics *statistics,
			  const struct attach_statistics *counts,
			  const struct agent_statistics *agent, const char *backend, double seconds)
{
	uint64_t guest = statistics->samples - statistics->host;
	json_t *summary =
		json_pack("{s:s,s:f,s:I,s:I,s:I,s:I,s:I,s:b}", "backend", backend, "seconds",
			  seconds, "guest_samples", (json_int_t)guest, "outside_samples",
			  (json_int_t)counts->outside, "host_samples", (json_int_t)statistics->host,
			  "written", (json_int_t)statistics->readable, "lost",
			  (json_int_t)statistics->lost, "vm_ended", counts->ended);

	/* The guest chose these bytes: left out if they are not UTF-8. */
	json_object_set_new(summary, "kernel", json_string(statistics->release));
	if (agent)
		json_object_set_new(summary, "agent", agent_of(agent));
	if (statistics->samples && statistics->weight)
		json_object_set_new(summary, "cost", cost_of(statistics));
	if (wall_time(&counts->times) > 0)
		json_object_set_new(summary, "times",
				    wall_times_json(&counts->times, VCPU_TIMES_OF_PROC));
	if (counts->stops.limit)
		json_object_set_new(summary, "stops", stops_of(&counts->stops));
	json_dumpf(summary, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(summary);
}
