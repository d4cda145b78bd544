/* SPDX-License-Identifier: Apache-2.0 */
/* Samples by stops: their periods, and threads and reads that take too long. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/remote_victim.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/stop_sampling.h"

static void write_of_thread(const struct vmm_process *process, pid_t tid, const char *name,
			    const char *text)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "task/%d/%s", tid, name);
	fd = openat(process->directory, path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	CHECK_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* Fakes /proc files of a thread that always runs. */
static void add_running(const struct vmm_process *process, pid_t tid)
{
	char path[64];

	snprintf(path, sizeof(path), "task/%d", tid);
	mkdirat(process->directory, path, 0700);
	write_of_thread(process, tid, "status",
			"Name:\tx\nState:\tR (running)\nSeccomp:\t0\nSeccomp_filters:\t0\n"
			"nonvoluntary_ctxt_switches:\t0\n");
}

static void open_running(struct vmm_process *process, pid_t tid, char *directory)
{
	REQUIRE(mkdtemp(directory));
	process->pid = tid;
	process->directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	mkdirat(process->directory, "task", 0700);
	add_running(process, tid);
}

static void remove_running(const struct vmm_process *process, const char *directory)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): a test's own words */
	close(process->directory);
}

static void lost_some(void *context, unsigned int id, uint64_t count)
{
	*(uint64_t *)context += count;
}

/* With more reads than there is time for, the consumer can still read statistics, remove vCPUs
 * and end the sampler, and the other process makes progress. */
TEST(stop_sampler, overdue_reads_do_not_block_others)
{
	char directory[] = "/tmp/kvmscope-test-XXXXXX";
	struct vmm_process process = { 0 };
	struct stop_sampler *sampler;
	struct attach_stops stops = { 0 };
	struct remote_code code;
	uint64_t lost = 0;

	remote_victim_start(&code);
	open_running(&process, victim->pid, directory);
	{
		const struct vcpu_stop_target target = { .process = &process,
							 .code = code,
							 .limit = 200000 };

		REQUIRE_EQUAL(stop_sampler_start(&sampler, &target, 1000000), 0);
	}
	for (unsigned int id = 0; id < 32; id++) {
		const struct vmm_vcpu vcpu = { .id = id, .tid = victim->pid };

		CHECK_EQUAL(stop_sampler_add(sampler, &vcpu), 0);
	}
	while (stops.count < 1000) {
		stop_sampler_statistics(sampler, &stops);
		stop_sampler_report_lost(sampler, lost_some, &lost);
		while (stop_sampler_next(sampler))
			stop_sampler_release(sampler);
	}
	CHECK(remote_victim_continues());
	for (unsigned int id = 0; id < 32; id++)
		stop_sampler_remove(sampler, id);
	stop_sampler_statistics(sampler, &stops);
	CHECK(stops.total >= stops.longest);
	CHECK(stop_sampler_end(sampler));
	CHECK_EQUAL(victim->bad, 0);
	remove_running(&process, directory);
	remote_victim_end();
}

/* Statistics of stops are plausible: each takes some time, and less than a minute. */
TEST(stop_sampler, stops_that_are_longer_than_the_limit_are_counted)
{
	static const uint64_t limits[] = { 1, 60000000000 };
	char directory[] = "/tmp/kvmscope-test-XXXXXX";
	struct vmm_process process = { 0 };
	struct remote_code code;

	remote_victim_start(&code);
	open_running(&process, victim->pid, directory);
	for (size_t i = 0; i < 2; i++) {
		const struct vcpu_stop_target target = { .process = &process,
							 .code = code,
							 .limit = limits[i] };
		const struct vmm_vcpu vcpu = { .id = 1, .tid = victim->pid };
		struct attach_stops stops = { 0 };
		struct stop_sampler *sampler;

		REQUIRE_EQUAL(stop_sampler_start(&sampler, &target, 1000), 0);
		CHECK_EQUAL(stop_sampler_add(sampler, &vcpu), 0);
		while (stops.count < 20)
			stop_sampler_statistics(sampler, &stops);
		CHECK_EQUAL(stops.over, limits[i] == 1 ? stops.count : 0);
		CHECK_EQUAL(stops.limit, limits[i]);
		CHECK(stop_sampler_end(sampler));
	}
	remove_running(&process, directory);
	remote_victim_end();
}

/* Its parent is stuck in vfork(2), where it cannot be stopped, until the other end of the pipe
 * is closed. */
static pid_t start_stuck(int *end)
{
	int ends[2];
	pid_t child;
	char byte;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	fflush(NULL);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
		close(ends[1]);
		for (;;)
			if (!vfork())
				_exit(read(ends[0], &byte, 1) != 0);
			else
				pause();
	}
	close(ends[0]);
	*end = ends[1];
	return child;
}

static void wait_until_stuck(pid_t pid)
{
	struct thread_status status = { 0 };
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (thread_status_read(fd, &status) && status.state != 'D')
		usleep(1000);
	close(fd);
	REQUIRE_EQUAL(status.state, 'D');
}

static int tracer_of(pid_t pid)
{
	char path[32], line[128];
	int tracer = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "TracerPid: %d", &tracer);
	if (file)
		fclose(file);
	return tracer;
}

/* Until a stop has begun. */
static void wait_until_it_is_being_stopped(pid_t pid)
{
	while (!tracer_of(pid))
		usleep(1000);
}

/* A thread that is stuck in the kernel blocks neither the others nor the end. */
TEST(stop_sampler, a_stuck_thread_does_not_block_the_end)
{
	static struct vmm_process process; /* as long as the stuck thread */
	static struct stop_sampler *sampler;
	const struct vcpu_stop_target target = { .process = &process, .limit = 200000 };
	char directory[] = "/tmp/kvmscope-test-XXXXXX";
	struct attach_stops stops;
	struct vmm_vcpu vcpu = { .id = 0 };
	uint64_t lost = 0;
	int end;

	vcpu.tid = start_stuck(&end);
	REQUIRE(vcpu.tid > 0);
	wait_until_stuck(vcpu.tid);
	open_running(&process, vcpu.tid, directory);
	REQUIRE_EQUAL(stop_sampler_start(&sampler, &target, 1000000), 0);
	CHECK_EQUAL(stop_sampler_add(sampler, &vcpu), 0);
	wait_until_it_is_being_stopped(vcpu.tid);
	stop_sampler_statistics(sampler, &stops);
	CHECK_EQUAL(stops.count, 0);
	stop_sampler_report_lost(sampler, lost_some, &lost);
	stop_sampler_remove(sampler, vcpu.id);
	CHECK(!stop_sampler_end(sampler));
	close(end);
	kill(vcpu.tid, SIGKILL);
	waitpid(vcpu.tid, NULL, 0);
	remove_running(&process, directory);
}

static uint64_t consume_all(struct stop_sampler *sampler, unsigned int id, uint64_t *periods)
{
	struct stop_sample *sample;
	uint64_t count = 0;

	while ((sample = stop_sampler_next(sampler))) {
		if (sample->id == id) {
			*periods += sample->period;
			count++;
		}
		stop_sampler_release(sampler);
	}
	return count;
}

/* A thread that waits for a CPU, without counted CPU time, yields no samples. */
TEST(stop_sampler, samples_stand_for_the_time_that_the_thread_ran)
{
	char directory[] = "/tmp/kvmscope-test-XXXXXX";
	const struct vmm_vcpu vcpu = { .id = 7, .tid = 0 };
	struct vmm_process process = { 0 };
	struct attach_stops stops = { 0 };
	struct stop_sampler *sampler;
	uint64_t samples = 0, periods = 0, rounds;
	struct remote_code code;

	remote_victim_start(&code);
	open_running(&process, victim->pid, directory);
	write_of_thread(&process, victim->pid, "schedstat", "5000000000 70 1\n");
	{
		const struct vcpu_stop_target target = { .process = &process,
							 .code = code,
							 .limit = 200000 };
		struct vmm_vcpu added = vcpu;

		added.tid = victim->pid;
		REQUIRE_EQUAL(stop_sampler_start(&sampler, &target, 10000), 0);
		CHECK_EQUAL(stop_sampler_add(sampler, &added), 0);
	}
	while (stops.count < 50)
		stop_sampler_statistics(sampler, &stops);
	CHECK_EQUAL(consume_all(sampler, vcpu.id, &periods), 0);
	write_of_thread(&process, victim->pid, "schedstat", "5005000000 90 2\n");
	while (!samples)
		samples = consume_all(sampler, vcpu.id, &periods);
	for (rounds = stops.count + 50; stops.count < rounds;)
		stop_sampler_statistics(sampler, &stops);
	CHECK_EQUAL(samples + consume_all(sampler, vcpu.id, &periods), 1);
	CHECK_EQUAL(periods, 5000000);
	CHECK(stop_sampler_end(sampler));
	remove_running(&process, directory);
	remote_victim_end();
}

/* While one thread is stuck in the kernel, the other one is sampled; the first one, too,
 * afterwards. */
TEST(stop_sampler, a_stuck_thread_does_not_block_others)
{
	char directory[] = "/tmp/kvmscope-test-XXXXXX";
	struct vmm_vcpu stuck = { .id = 0 }, other = { .id = 1 };
	struct vmm_process process = { 0 };
	struct stop_sampler *sampler;
	uint64_t periods = 0, samples = 0;
	struct remote_code code;
	int end;

	remote_victim_start(&code);
	stuck.tid = start_stuck(&end); /* last, so that only it has both ends of its pipe */
	REQUIRE(stuck.tid > 0);
	wait_until_stuck(stuck.tid);
	other.tid = victim->pid;
	open_running(&process, stuck.tid, directory);
	add_running(&process, other.tid);
	{
		const struct vcpu_stop_target target = { .process = &process,
							 .code = code,
							 .limit = 200000 };

		REQUIRE_EQUAL(stop_sampler_start(&sampler, &target, 1000), 0);
	}
	CHECK_EQUAL(stop_sampler_add(sampler, &stuck), 0);
	wait_until_it_is_being_stopped(stuck.tid);
	CHECK_EQUAL(stop_sampler_add(sampler, &other), 0);
	alarm(250); /* ends a test that waits forever */
	while (samples < 100)
		samples += consume_all(sampler, other.id, &periods);
	CHECK_EQUAL(consume_all(sampler, stuck.id, &periods), 0);
	close(end);
	while (!consume_all(sampler, stuck.id, &periods))
		usleep(1000);
	alarm(0);
	CHECK(stop_sampler_end(sampler));
	CHECK(remote_victim_continues());
	kill(stuck.tid, SIGKILL);
	waitpid(stuck.tid, NULL, 0);
	remove_running(&process, directory);
	remote_victim_end();
}
