/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU time and memory of the guest agent: kvmscope-agent on this machine's kernel, connected by a
 * socketpair to a host that records, on an otherwise normal system and while 100 processes per
 * second are forked and execute a program. Measured with perf events, and with the process
 * connector and /proc, which the agent uses if the guest's kernel does not allow perf events. There
 * is no guest, so the exits for writes to the port are not included.
 */
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/unit/agent_process.h"
#include "vmm/agent/agent_client.h"

#define SECONDS bench_size(10, 2)
#define FORKS   100 /* per second */
/* The limits that the documentation claims. */
static const struct bench_bound share_bound = { BENCH_MOST, 0.5 };     /* % of a CPU */
static const struct bench_bound resident_bound = { BENCH_MOST, 2048 }; /* KiB */

/* CPU time of the process, ns (proc(5), schedstat: the first number). */
static double cpu_time(pid_t process)
{
	char path[64];
	double time = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", process);
	file = fopen(path, "re");
	if (!file || fscanf(file, "%lf", &time) != 1)
		exit(1);
	fclose(file);
	return time;
}

static double resident_kib(pid_t process)
{
	char path[64], line[256];
	double kib = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", process);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "VmHWM: %lf", &kib);
	if (file)
		fclose(file);
	return kib;
}

static void run_program(void)
{
	pid_t child = fork();

	if (!child) {
		execl("/bin/true", "true", NULL);
		_exit(127);
	}
	waitpid(child, NULL, 0);
}

/* The number of processes that this machine has forked since boot. */
static double fork_count(void)
{
	FILE *file = fopen("/proc/stat", "re");
	char line[256];
	double count = 0;

	while (file && !count && fgets(line, sizeof(line), file))
		sscanf(line, "processes %lf", &count);
	if (file)
		fclose(file);
	return count;
}

/* Percent of a CPU over SECONDS, while FORKS_A_SECOND processes execute a program. */
static double cpu_share(pid_t process, unsigned int forks_a_second, struct ring *ring)
{
	uint64_t begin = bench_time(CLOCK_MONOTONIC), passed;
	double before = cpu_time(process);
	unsigned long forked = 0;

	while ((passed = bench_time(CLOCK_MONOTONIC) - begin) < SECONDS * 1000000000ull) {
		if (forked < passed * forks_a_second / 1000000000) {
			run_program();
			forked++;
		} else {
			usleep(1000);
		}
		while (ring_read(ring))
			;
		ring_read_done(ring);
	}
	return 100 * (cpu_time(process) - before) / (double)passed;
}

static bool wait_for_snapshot(struct agent *agent)
{
	struct agent_statistics statistics;

	for (int i = 0; i < 1000; i++) {
		agent_statistics(agent, &statistics);
		if (statistics.snapshot_done || (statistics.error && !statistics.features))
			return statistics.snapshot_done;
		usleep(10000);
	}
	return false;
}

static void measure(pid_t process, struct ring *ring, const char *source)
{
	char what[128];
	double before_forks;

	snprintf(what, sizeof(what),
		 "agent outside a guest, %s: CPU time on an otherwise normal system", source);
	bench_print(what, cpu_share(process, 0, ring), "%");
	before_forks = fork_count();
	snprintf(what, sizeof(what),
		 "agent outside a guest, %s: CPU time with 100 additional forks and execs/s",
		 source);
	bench_print_bound(what, cpu_share(process, FORKS, ring), "%", share_bound);
	snprintf(what, sizeof(what), "agent, %s: forks on this machine during the measurement",
		 source);
	bench_print(what, (fork_count() - before_forks) / SECONDS, "/s");
	snprintf(what, sizeof(what), "agent, %s: peak resident memory", source);
	bench_print_bound(what, resident_kib(process), "KiB", resident_bound);
}

static void measure_source(bool events, const char *source)
{
	struct agent_options options = { 0 };
	struct agent *agent;
	struct ring *ring;
	pid_t process;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) ||
	    ring_create(&ring, 16 << 20))
		exit(1);
	process = agent_process_run(fds[1], events);
	close(fds[1]);
	options.fd = fds[0];
	options.ring = ring;
	if (agent_start(&agent, &options))
		exit(1);
	if (wait_for_snapshot(agent))
		measure(process, ring, source);
	else
		bench_skip("agent", "this event source is not allowed here");
	agent_stop(agent, NULL);
	kill(process, SIGTERM);
	waitpid(process, NULL, 0);
	ring_destroy(ring);
}

int main(void)
{
	measure_source(true, "perf events");
	measure_source(false, "process connector");
	return bench_status();
}
