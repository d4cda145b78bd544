/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/sample/vcpu_load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"

/* KVM counts an exit before it counts the interrupt that caused it: that shows as a change
 * between two readings. */
#define READINGS_MAX 4

/* Upper limit in ns for an undisturbed reading of the scheduler's statistics. */
#define READING_TIME_MAX NS_PER_MS

static int check_scheduler(void)
{
	if (!access("/proc/self/schedstat", R_OK))
		return 0;
	return error_set(
		-ENOTSUP,
		"the host has no run and wait times of vCPUs: /proc/self/schedstat is missing "
		"(CONFIG_SCHED_INFO)");
}

static int open_counters(struct vcpu_load *load)
{
	if (!vcpu_statistic_open(&load->exits, load->vcpu, "exits") &&
	    !vcpu_statistic_open(&load->interrupts, load->vcpu, "irq_exits"))
		return 0;
	return error_set(-ENOTSUP,
			 "this host's KVM does not count the exits of a vCPU (needs Linux 5.14)");
}

int vcpu_load_open(struct vcpu_load *load, const struct vcpu *vcpu, bool count_exits)
{
	int error = check_scheduler();

	*load = (struct vcpu_load){
		.vcpu = vcpu, .exits.fd = -1, .interrupts.fd = -1, .scheduler = -1
	};
	if (!error && count_exits)
		error = open_counters(load);
	if (error)
		vcpu_load_close(load);
	return error;
}

static bool open_scheduler(struct vcpu_load *load)
{
	pid_t thread = atomic_load(&load->vcpu->thread_id);
	char path[64];

	if (load->scheduler >= 0)
		return true;
	if (!thread)
		return false;
	snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", thread);
	load->scheduler = open(path, O_RDONLY | O_CLOEXEC);
	return load->scheduler >= 0;
}

static bool read_scheduler(struct vcpu_load *load, struct vcpu_reading *reading)
{
	unsigned long long ran, waited;
	char text[96];
	ssize_t size;

	if (!open_scheduler(load))
		return false;
	size = pread(load->scheduler, text, sizeof(text) - 1, 0);
	if (size <= 0)
		return false; /* -ESRCH: the thread has ended */
	text[size] = '\0';
	if (sscanf(text, "%llu %llu", &ran, &waited) != 2)
		return false;
	reading->ran = ran;
	reading->waited = waited;
	return true;
}

static uint64_t count_exits(const struct vcpu_load *load)
{
	uint64_t exits = vcpu_statistic_read(&load->exits);
	uint64_t interrupts = vcpu_statistic_read(&load->interrupts);

	for (int i = 0; i < READINGS_MAX; i++) {
		uint64_t exits_before = exits, interrupts_before = interrupts;

		exits = vcpu_statistic_read(&load->exits);
		interrupts = vcpu_statistic_read(&load->interrupts);
		if (exits == exits_before && interrupts == interrupts_before)
			break;
	}
	return exits - interrupts;
}

/* Reads again if this thread lost the CPU in between: the time would not match the values. */
bool vcpu_load_read(struct vcpu_load *load, struct vcpu_reading *reading)
{
	bool read = true;

	*reading = (struct vcpu_reading){ .exits = count_exits(load) };
	for (int i = 0; i < READINGS_MAX && read; i++) {
		reading->time = clock_ns(CLOCK_MONOTONIC);
		read = read_scheduler(load, reading);
		if (clock_ns(CLOCK_MONOTONIC) - reading->time < READING_TIME_MAX)
			break;
	}
	return read;
}

void vcpu_load_close(struct vcpu_load *load)
{
	vcpu_statistic_close(&load->exits);
	vcpu_statistic_close(&load->interrupts);
	if (load->scheduler >= 0)
		close(load->scheduler);
	load->scheduler = -1;
}
