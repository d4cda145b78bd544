// SPDX-License-Identifier: Apache-2.0
/*
 * What the guest's agent takes of a CPU: kvmscope-agent on this machine's
 * kernel, over a socketpair, with a host that records, while nothing more than usual happens,
 * and while 100 processes a second are forked and run a program. By perf events, and by the process
 * connector and /proc, which take their place where the guest's kernel does not allow them. There
 * is no guest: exits for its writes to a port are not in it.
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
#define FORKS   100 /* a second */
/* What it is to take at most. */
static const struct bench_bound share_bound = { BENCH_MOST, 0.5 };     /* % of a CPU */
static const struct bench_bound resident_bound = { BENCH_MOST, 2048 }; /* KiB */

/* Of the process, in ns (proc(5), schedstat: the first number). */
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

/* Processes that this machine has forked since it runs. */
static double forks(void)
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

/* Percent of a CPU over SECONDS, in which FORKS_A_SECOND run a program. */
static double share(pid_t process, unsigned int forks_a_second, struct ring *ring)
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

static void measure(pid_t process, struct ring *ring, const char *way)
{
	char what[128];
	double begun;

	snprintf(what, sizeof(what),
		 "agent outside of a guest, %s: CPU while nothing more than usual happens", way);
	bench_print(what, share(process, 0, ring), "%");
	begun = forks();
	snprintf(what, sizeof(what),
		 "agent outside of a guest, %s: CPU with 100 forks and execs a second more", way);
	bench_print_bound(what, share(process, FORKS, ring), "%", share_bound);
	snprintf(what, sizeof(what), "agent, %s: forks on this machine meanwhile", way);
	bench_print(what, (forks() - begun) / SECONDS, "/s");
	snprintf(what, sizeof(what), "agent, %s: resident, at most", way);
	bench_print_bound(what, resident_kib(process), "KiB", resident_bound);
}

static void measure_way(bool events, const char *way)
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
		measure(process, ring, way);
	else
		bench_skip("agent", "this way is not allowed here");
	agent_stop(agent, NULL);
	kill(process, SIGTERM);
	waitpid(process, NULL, 0);
	ring_destroy(ring);
}

int main(void)
{
	measure_way(true, "perf events");
	measure_way(false, "process connector");
	return bench_status();
}
