/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VMM (this process) that runs its vCPU on a new thread five times a second: each thread is
 * sampled soon after it has begun, and what it ran before that is counted as lost. Of threads that
 * end after 3 ms most time is lost, and counted.
 */
#include <linux/kvm.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/kvm/bare_guest.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"

#define SECONDS   4
#define FREQUENCY 1000
#define RECORDING "build/attach-threads.data"

static const uint8_t loop[] = { 0xeb, 0xfe }; /* jmp . */

struct life {
	struct vcpu *vcpu;
	atomic_bool over;
	double seconds; /* of CPU time */
};

static void on_kick(int signal)
{
	(void)signal;
}

static double cpu_seconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void *live(void *argument)
{
	struct life *life = argument;

	while (!atomic_load(&life->over))
		ioctl(life->vcpu->fd, KVM_RUN, 0);
	life->seconds = cpu_seconds();
	return NULL;
}

/* One thread after the other until the program ends. Returns their CPU time in seconds. */
static double run_lives(struct vm *vm, const struct program *attach, unsigned int life_ms)
{
	double seconds = 0;

	while (!kill(attach->pid, 0)) {
		struct life life = { .vcpu = vm->vcpus[0] };
		siginfo_t ended = { 0 };
		pthread_t thread;

		pthread_create(&thread, NULL, live, &life);
		pthread_setname_np(thread, "CPU 0/KVM");
		usleep(life_ms * 1000);
		atomic_store(&life.over, true);
		vm->vcpus[0]->run->immediate_exit = 1;
		pthread_kill(thread, SIGUSR1);
		pthread_join(thread, NULL);
		vm->vcpus[0]->run->immediate_exit = 0;
		seconds += life.seconds;
		if (!waitid(P_PID, (id_t)attach->pid, &ended, WEXITED | WNOHANG | WNOWAIT) &&
		    ended.si_pid)
			break;
	}
	return seconds;
}

struct counts {
	double samples, lost;
};

static int count_sample(void *context, const struct perf_data_sample *sample)
{
	(void)sample;
	((struct counts *)context)->samples++;
	return 0;
}

static int count_lost(void *context, uint64_t count)
{
	((struct counts *)context)->lost += (double)count;
	return 0;
}

/* At least the share SAMPLED of the time has samples, COUNTED has samples or is lost. */
static void check_way(struct vm *vm, const char *way, unsigned int life_ms, double sampled,
		      double counted)
{
	struct counts counts = { 0 };
	const struct perf_data_events events = { .sample = count_sample,
						 .lost = count_lost,
						 .context = &counts };
	struct perf_data_reader *reader;
	struct program attach;
	char arguments[256];
	double seconds, expected;

	snprintf(arguments, sizeof(arguments),
		 "attach --pid %d --backend %s --time %d -F %d --no-buildid-cache -o " RECORDING,
		 getpid(), way, SECONDS, FREQUENCY);
	program_start(&attach, arguments);
	seconds = run_lives(vm, &attach, life_ms);
	program_wait(&attach);
	if (strstr(attach.text, "does not work here") || attach.status == 4)
		SKIP("this machine has no backend %s", way);
	if (attach.status)
		FAIL_TEST("by %s, status %d: %s", way, attach.status, attach.text);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, RECORDING), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
	unlink(RECORDING);
	/* The program needs some time to start and to end. */
	expected = FREQUENCY * (seconds < SECONDS ? seconds : SECONDS);
	printf("%s: %.0f samples, %.0f lost, of %.0f\n", way, counts.samples, counts.lost,
	       expected);
	CHECK(counts.samples >= sampled * expected);
	CHECK(counts.samples + counts.lost > counted * expected);
	CHECK(counts.samples + counts.lost < 1.15 * expected);
	CHECK(sampled == 0 || !strstr(attach.text, "was removed"));
}

static void check_lives(unsigned int life_ms, double sampled, double counted)
{
	static const struct vcpu_handlers handlers;
	struct vm vm;

	BARE_GUEST_REQUIRED();
	signal(SIGUSR1, on_kick);
	REQUIRE_EQUAL(bare_guest_create(&vm, &handlers, loop, sizeof(loop), 3), 0);
	check_way(&vm, "perf", life_ms, sampled, counted);
	check_way(&vm, "bpf", life_ms, sampled, counted);
	vm_destroy(&vm);
}

/* Beside other load the tool itself has to wait; an idle machine has 96 %. */
TEST(attach_threads, vcpus_on_new_threads_are_sampled_within_ms)
{
	check_lives(200, 0.5, 0.75);
}

/* Without any count, bpf has 1 %. An idle machine has 90 %. */
TEST(attach_threads, threads_that_end_before_they_are_found_are_lost)
{
	check_lives(3, 0, 0.3);
}
