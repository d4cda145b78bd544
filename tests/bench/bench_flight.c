/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder compared with a recording into a file: the cost of a sample for the vCPU
 * thread and the guest's slow-down (iterations of a CPL3 loop on the local KVM per ms of its
 * thread's CPU time), without a trigger and while files are written continuously. Also the time to
 * write a file of a full ring.
 */
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "tests/bench/bench.h"
#include "tests/kvm/sampled_guest.h"
#include "vmm/record/collector.h"

#define COUNTER   0x80000ull
#define FREQUENCY 4000
#define RUNS_MAX  7
#define RUNS      bench_size(RUNS_MAX, 1)
#define CPU_TIME  300000000ull
#define OUTPUT    "build/bench/flight.data"

/* mov edi, COUNTER; 1: mov ecx, 100; 2: dec ecx; jnz 2b; inc qword [rdi]; jmp 1b */
static const uint8_t code[] = { 0xbf, 0,    0,    8,    0,    0xb9, 100,  0,    0,   0,
				0xff, 0xc9, 0x75, 0xfc, 0x48, 0xff, 0x07, 0xeb, 0xf2 };

enum mode { MODE_PLAIN, MODE_FILE, MODE_FLIGHT, MODE_DUMPING, MODES };

struct flight_source {
	atomic_bool dumping; /* the next trigger is always pending */
	atomic_uint to_take; /* triggers */
	atomic_uint written; /* files */
};

static bool no_registers(void *context, struct guest_registers *registers)
{
	(void)context;
	(void)registers;
	return false;
}

static bool record_sample(void *context, struct flight_trigger *trigger)
{
	struct flight_source *source = context;

	if (!source->dumping) {
		if (!atomic_load(&source->to_take))
			return false;
		atomic_fetch_sub(&source->to_take, 1);
	}
	*trigger =
		(struct flight_trigger){ .listed = { bench_time(CLOCK_MONOTONIC_RAW), "bench", "" },
					 .path = source->dumping ? OUTPUT : NULL };
	return true;
}

static uint64_t missed(void *context)
{
	(void)context;
	return 0;
}

static void done(void *context, const struct flight_result *result)
{
	struct flight_source *source = context;

	if (result->error)
		fprintf(stderr, "%s\n", error_message());
	atomic_fetch_add(&source->written, 1);
}

static struct flight_options flight_options(struct flight_source *source)
{
	return (struct flight_options){
		.wake_fd = eventfd(0, EFD_NONBLOCK),
		.next_trigger = record_sample,
		.missed = missed,
		.done = done,
		.context = source,
	};
}

static struct collector_options collector_options(struct ring *const *rings,
						  const struct guest_view *view,
						  const struct flight_options *flight)
{
	return (struct collector_options){
		.rings = rings,
		.ring_count = 1,
		.view = view,
		.registers = no_registers,
		.output = { .path = OUTPUT,
			    .frequency = FREQUENCY,
			    .callchains = true,
			    .vcpus = 1,
			    .vmm_pid = getpid(),
			    .command_line = "bench" },
		.flight = flight,
	};
}

struct outcome {
	double turns; /* iterations per ms of CPU time */
	double cost;  /* ns per sample */
};

/* The guest has started; the collector runs until the guest has used its time. */
static int collect(struct sampled_guest *guest, enum mode mode)
{
	struct flight_source source = { .dumping = mode == MODE_DUMPING };
	struct flight_options flight = flight_options(&source);
	struct collector_options options = collector_options(guest->rings, &guest->view.view,
							     mode == MODE_FILE ? NULL : &flight);
	struct collector *collector;
	int error = collector_start(&collector, &options);

	if (error)
		return error;
	sampled_guest_use(guest, CPU_TIME);
	sampled_guest_stop(guest);
	source.dumping = false;
	error = collector_stop(collector, NULL);
	close(flight.wake_fd);
	return error;
}

static int run_guest(enum mode mode, struct outcome *outcome)
{
	struct sampled_guest_options options = {
		.code = code,
		.size = sizeof(code),
		.cpl = 3,
		.cpus = 1,
		.clock = SAMPLING_CLOCK_CPU,
		.frequency = mode == MODE_PLAIN ? 0 : FREQUENCY,
		.mode = mode == MODE_FILE ? RING_MODE_CONSUMER : RING_MODE_OVERWRITE,
	};
	struct sampler_statistics statistics = { .samples = 1 };
	struct sampled_guest guest;
	uint64_t turns = 0;
	int error = sampled_guest_start(&guest, &options);

	if (error)
		return error;
	if (mode == MODE_PLAIN)
		sampled_guest_use(&guest, CPU_TIME);
	else
		error = collect(&guest, mode);
	sampled_guest_stop(&guest);
	if (guest.sampler)
		sampler_statistics(guest.sampler, &statistics);
	memory_read(&guest.vm.memory, COUNTER, &turns, sizeof(turns));
	outcome->turns = 1e6 * (double)turns / (double)guest.cpus[0].cpu_time;
	outcome->cost = (double)statistics.cost / (double)statistics.samples;
	sampled_guest_free(&guest);
	return error;
}

static int measure_guests(void)
{
	double slowdowns[MODES][RUNS_MAX], costs[MODES][RUNS_MAX];

	for (int run = 0; run < RUNS; run++) {
		struct outcome outcomes[MODES];

		for (int mode = 0; mode < MODES; mode++) {
			if (run_guest(mode, &outcomes[mode])) {
				fprintf(stderr, "%s\n", error_message());
				return 1;
			}
			slowdowns[mode][run] = (outcomes[0].turns / outcomes[mode].turns - 1) * 100;
			costs[mode][run] = outcomes[mode].cost;
		}
	}
	bench_print_relative("flight: recording one sample, without the exit",
			     bench_median(costs[MODE_FLIGHT], RUNS), "ns", "recording into a file",
			     bench_median(costs[MODE_FILE], RUNS));
	bench_print_relative("flight: guest slow-down at 4000 Hz, CPL3 loop, local KVM",
			     bench_median(slowdowns[MODE_FLIGHT], RUNS), "%",
			     "recording into a file", bench_median(slowdowns[MODE_FILE], RUNS));
	bench_print_relative("flight: guest slow-down while files are written continuously",
			     bench_median(slowdowns[MODE_DUMPING], RUNS), "%",
			     "recording into a file", bench_median(slowdowns[MODE_FILE], RUNS));
	return 0;
}

#define DEPTH     16
#define RING_SIZE (16ul << 20)

static void fill(struct ring *ring)
{
	for (size_t i = 0; i < 2 * RING_SIZE / sample_size(DEPTH); i++) {
		struct sample *sample = ring_reserve(ring, RECORD_SAMPLE, sample_size(DEPTH));

		*sample = (struct sample){ .time = bench_time(CLOCK_MONOTONIC_RAW),
					   .period = 1000000,
					   .host_tid = 1,
					   .pid = SAMPLE_TASK_UNKNOWN,
					   .tid = SAMPLE_TASK_UNKNOWN,
					   .kernel_depth = DEPTH };
		for (int frame = 0; frame < DEPTH; frame++)
			sample->callchain[frame] = 0xffffffff81000000 + (uint64_t)frame * 977;
		ring_commit(ring, sample);
	}
}

/* The time from the trigger to the complete file. */
static int measure_file(void)
{
	const struct ring_options ring_options = { .size = RING_SIZE, .mode = RING_MODE_OVERWRITE };
	struct flight_source source = { 0 };
	struct flight_options flight = flight_options(&source);
	struct guest_view view = { 0 };
	struct ring *ring;
	struct collector_options options = collector_options(&ring, &view, &flight);
	struct collector *collector;
	double times[RUNS_MAX];

	if (ring_create_with(&ring, &ring_options) || collector_start(&collector, &options))
		return 1;
	fill(ring);
	for (unsigned int run = 0; run < RUNS; run++) {
		uint64_t begin = bench_time(CLOCK_MONOTONIC);

		atomic_store(&source.to_take, 1);
		eventfd_write(flight.wake_fd, 1);
		while (atomic_load(&source.written) <= run)
			usleep(100);
		times[run] = (double)(bench_time(CLOCK_MONOTONIC) - begin) / 1e6;
	}
	collector_stop(collector, NULL);
	ring_destroy(ring);
	bench_print("flight: trigger to complete file, full ring of 16 MiB",
		    bench_median(times, RUNS), "ms");
	return 0;
}

int main(void)
{
	log_quiet(true);
	if (!bare_guest_possible())
		bench_skip("flight: guest slow-down, local KVM", "no /dev/kvm");
	else if (measure_guests())
		return 1;
	return measure_file();
}
