/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an exit costs its vCPU while kvmscope stat or perf kvm stat counts exits, beside an exit
 * that is not counted: CPU time of a vCPU thread per CPUID, which KVM completes in the kernel. In
 * the rig, because not every KVM reports exits; an emulator makes all of it slow: compare ratios.
 */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/bench/bench.h"
#include "tests/kvm/sampled_guest.h"
#include "vmm/attach/exit_counter.h"
#include "vmm/kvm/guest_ram.h"

#define COUNT_PLACE 0x20000ull
#define RUNS        5
#define SETTLE      2 /* s until perf has started */

/* xor eax, eax; xor ecx, ecx; cpuid; inc qword [COUNT_PLACE]; jmp to the beginning */
static const uint8_t code[] = { 0x31, 0xc0, 0x31, 0xc9, 0x0f, 0xa2, 0x48, 0xff,
				0x04, 0x25, 0x00, 0x00, 0x02, 0x00, 0xeb, 0xf0 };

struct counting {
	struct sampled_guest guest;
	clockid_t clock; /* of the vCPU thread */
	uint64_t time;   /* ns of it that a figure takes */
};

static uint64_t loops(const struct counting *self)
{
	uint64_t count = 0;

	memory_read(&self->guest.vm.memory, COUNT_PLACE, &count, sizeof(count));
	return count;
}

/* ns of CPU time per exit */
static double cost(const struct counting *self)
{
	uint64_t begin = bench_time(self->clock), first = loops(self), now;

	do {
		usleep(20000);
		now = bench_time(self->clock);
	} while (now - begin < self->time);
	return (double)(now - begin) / (double)(loops(self) - first);
}

static double cost_with_stat(const struct counting *self)
{
	struct exit_counter *counter;
	double ns = 0;

	if (exit_counter_open(&counter, getpid(), false)) {
		fprintf(stderr, "%s\n", error_message());
		return 0;
	}
	if (!exit_counter_missing(counter))
		ns = cost(self);
	exit_counter_close(counter);
	return ns;
}

static double cost_with_perf(const struct counting *self)
{
	char vm[16];
	pid_t perf;
	double ns;

	snprintf(vm, sizeof(vm), "%d", getpid());
	perf = fork();
	if (!perf) {
		execlp("perf", "perf", "kvm", "stat", "record", "-p", vm, "-o", "/tmp/bench.data",
		       NULL);
		_exit(127);
	}
	sleep(SETTLE);
	ns = waitpid(perf, NULL, WNOHANG) ? 0 : cost(self);
	kill(perf, SIGINT);
	waitpid(perf, NULL, 0);
	return ns;
}

static int measure(struct counting *self)
{
	double alone[RUNS], stat[RUNS], perf[RUNS];
	int runs = bench_size(RUNS, 1);

	for (int i = 0; i < runs; i++) {
		alone[i] = cost(self);
		stat[i] = cost_with_stat(self) - alone[i];
		perf[i] = cost_with_perf(self) - alone[i];
	}
	if (stat[0] == -alone[0] || perf[0] == -alone[0]) {
		bench_fail("kvmscope stat: cost of an exit", "it or perf kvm stat does not work");
		return bench_status();
	}
	bench_print("an exit (CPUID) that is not counted, rig", bench_median(alone, (size_t)runs),
		    "ns");
	bench_print_relative("kvmscope stat: added to an exit, rig",
			     bench_median(stat, (size_t)runs), "ns", "perf kvm stat record",
			     bench_median(perf, (size_t)runs));
	return bench_status();
}

static int run_here(void)
{
	const struct sampled_guest_options options = {
		.code = code, .size = sizeof(code), .cpl = 0, .cpus = 1
	};
	struct counting self = { .time = (uint64_t)bench_size(2000, 200) * 1000000 };
	int status;

	if (sampled_guest_start(&self.guest, &options)) {
		bench_fail("kvmscope stat: cost of an exit", "no guest can be started");
		return bench_status();
	}
	pthread_getcpuclockid(self.guest.cpus[0].thread, &self.clock);
	status = measure(&self);
	sampled_guest_stop(&self.guest);
	sampled_guest_free(&self.guest);
	return status;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return run_here();
	if (system("tests/rig/rig --check > /dev/null 2>&1")) {
		bench_skip("kvmscope stat: cost of an exit, rig", "no rig here");
		return 0;
	}
	return bench_in_rig("bench_exits rig", "exits");
}
