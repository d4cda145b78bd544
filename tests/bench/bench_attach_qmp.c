// SPDX-License-Identifier: Apache-2.0
/*
 * What a look by QEMU's monitor costs its guest (kvmscope attach --backend qmp), beside a sample of
 * perf kvm
 * --guest record -e cpu-clock on the same VM in the same run: a CPL3 loop in a QEMU with the local
 * KVM.
 *
 * The guest adds up in turns of its TSC for how long it did not run, where the bench reads it. A
 * look takes as long as that sum grew while the monitor was asked what kvmscope attach asks it: of
 * some hundred looks at random moments the median counts. A sample of perf takes what the guest
 * lost in a window with perf, at 4000 Hz, more than in one without, and so many times less. What
 * takes the processor from it for longer than LOST_MAX is another process and does not count.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/attach_tools.h"
#include "tests/bench/bench.h"
#include "vmm/attach/monitor.h"
#include "vmm/attach/process.h"
#include "vmm/perf_data/perf_data_reader.h"

#define RUNS_MAX  6
#define RUNS      bench_size(RUNS_MAX, 1)
#define LOOKS_MAX 50 /* of a run */
#define LOOKS     bench_size(LOOKS_MAX, 10)
#define INTERVAL  10000     /* us between them, at most */
#define WINDOW    2000000   /* us */
#define FREQUENCY 3999      /* Hz, of perf */
#define LOST_MAX  "5000000" /* turns of the TSC: some 2 ms */
#define SERIAL    "build/bench/attach.qemu"
#define MONITOR   "build/bench/attach.qmp"
#define MEMORY    (64ull << 20) /* bytes */
#define WAIT_S    20

static struct {
	pid_t pid;
	int memory_fd;   /* /proc/PID/mem */
	uint64_t record; /* where the guest's record lies in that process */
} vm;

/* As the guest has it: tests/guests/program_user.c. In turns of its TSC. */
struct record {
	uint64_t lost, now;
};

/* QEMU. */

static _Noreturn void be_qemu(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(open("/dev/null", O_RDWR | O_CLOEXEC), STDERR_FILENO);
	execlp("qemu-system-x86_64", "qemu-system-x86_64", "-accel", "kvm", "-cpu",
	       "host,arch-capabilities=off", "-machine",
	       "microvm,pit=on,pic=on,rtc=on,isa-serial=on,memory-backend=memory", "-object",
	       "memory-backend-memfd,id=memory,size=64M", "-name", "guest,debug-threads=on", "-m",
	       "64", "-nodefaults", "-no-user-config", "-display", "none", "-serial",
	       "file:" SERIAL, "-qmp", "unix:" MONITOR ",server=on,wait=off", "-no-reboot",
	       "-kernel", "build/guests/guest-multiboot.elf", "-append",
	       "program=gaps longest=" LOST_MAX, NULL);
	_exit(127);
}

/* Where it says that its record is; 0: not yet. */
static uint64_t read_place(void)
{
	unsigned long long place = 0;
	FILE *file = fopen(SERIAL, "re");

	if (file && fscanf(file, "gaps at %llx", &place) != 1)
		place = 0;
	if (file)
		fclose(file);
	return place;
}

/* The guest's memory in the process; 0: it is not found. */
static uint64_t find_memory(void)
{
	unsigned long long start, end;
	uint64_t found = 0;
	char path[32], line[512];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/maps", vm.pid);
	file = fopen(path, "re");
	while (file && !found && fgets(line, sizeof(line), file))
		if (sscanf(line, "%llx-%llx", &start, &end) == 2 && end - start == MEMORY)
			found = start;
	if (file)
		fclose(file);
	return found;
}

static bool start_vm(void)
{
	uint64_t place = 0;
	char path[32];

	unlink(SERIAL);
	unlink(MONITOR);
	vm.pid = fork();
	if (!vm.pid)
		be_qemu();
	for (int i = 0; i < WAIT_S * 100 && !place; i++) {
		if (waitpid(vm.pid, NULL, WNOHANG))
			return false;
		usleep(10000);
		place = read_place();
	}
	snprintf(path, sizeof(path), "/proc/%d/mem", vm.pid);
	vm.memory_fd = open(path, O_RDONLY | O_CLOEXEC);
	vm.record = find_memory() + place;
	return place && vm.memory_fd >= 0 && vm.record > place;
}

/* The thread of its vCPU, and that of its monitor: before other work of the machine. */
static void prefer(const struct vmm_process *process)
{
	setpriority(PRIO_PROCESS, (id_t)vm.pid, -20);
	for (size_t i = 0; i < process->vcpu_count; i++)
		if (process->vcpus[i].tid)
			setpriority(PRIO_PROCESS, (id_t)process->vcpus[i].tid, -20);
}

static void end_vm(void)
{
	kill(vm.pid, SIGKILL);
	waitpid(vm.pid, NULL, 0);
	unlink(SERIAL);
	unlink(MONITOR);
}

/* Windows. */

static struct record read_record(void)
{
	struct record record = { 0 };

	if (pread(vm.memory_fd, &record, sizeof(record), (off_t)vm.record) != sizeof(record))
		exit(1);
	return record;
}

/* Which part of its time the guest lost in a window. */
static double lost_share(void)
{
	struct record first = read_record(), last;

	usleep(WINDOW);
	last = read_record();
	return (double)(last.lost - first.lost) / (double)(last.now - first.now);
}

static int count_sample(void *context, const struct perf_data_sample *sample)
{
	++*(uint64_t *)context;
	return 0;
}

static uint64_t count_samples(const char *path)
{
	uint64_t count = 0;
	const struct perf_data_events events = { .sample = count_sample, .context = &count };
	struct perf_data_reader *reader;

	if (perf_data_reader_open(&reader, path))
		return 0;
	if (perf_data_reader_run(reader, &events))
		count = 0;
	perf_data_reader_close(reader);
	return count;
}

/* us that the guest loses by a sample of perf, where it loses WITHOUT of its time anyway; 0: perf
 * does not work. */
static double cost_of_perf(double without)
{
	pid_t tool = tools_start_perf(vm.pid, FREQUENCY);
	uint64_t begun, samples;
	double share, elapsed;

	if (!tool || !tools_enable_perf()) {
		tools_end(tool);
		return 0;
	}
	begun = bench_time(CLOCK_MONOTONIC);
	share = lost_share() - without;
	elapsed = (double)(bench_time(CLOCK_MONOTONIC) - begun) / 1e3;
	tools_end(tool);
	samples = count_samples(PERFS);
	return samples ? share * elapsed / (double)samples : 0;
}

/* Looks. */

/* Turns of the TSC in a us. */
static double turns_per_us(void)
{
	struct record first = read_record(), last;
	uint64_t begun = bench_time(CLOCK_MONOTONIC_RAW);

	usleep(200000);
	last = read_record();
	return (double)(last.now - first.now) * 1e3 /
	       (double)(bench_time(CLOCK_MONOTONIC_RAW) - begun);
}

/* us that the guest lost, and that QEMU took to answer. */
static bool look(struct monitor *monitor, double turns, double *lost, double *took)
{
	struct record before = read_record();
	uint64_t begun = bench_time(CLOCK_MONOTONIC);
	json_t *text = NULL;

	if (monitor_execute_hmp(monitor, "info registers -a", &text))
		return false;
	*took = (double)(bench_time(CLOCK_MONOTONIC) - begun) / 1e3;
	usleep(100); /* until it runs again, and has written it down */
	*lost = (double)(read_record().lost - before.lost) / turns;
	json_decref(text);
	return true;
}

/* The medians of a run. */
static bool measure_looks(struct monitor *monitor, double *cost, double *answer)
{
	double lost[LOOKS_MAX], took[LOOKS_MAX], turns = turns_per_us();

	for (int i = 0; i < LOOKS; i++) {
		usleep((useconds_t)(random() % INTERVAL));
		if (!look(monitor, turns, &lost[i], &took[i]))
			return false;
	}
	*cost = bench_median(lost, LOOKS);
	*answer = bench_median(took, LOOKS);
	return true;
}

/* What comes out. */

#define WHAT "attach by qmp: guest's time for a look"

static void print(const double looks[RUNS_MAX], const double answers[RUNS_MAX],
		  const double perfs[RUNS_MAX])
{
	double cost[RUNS_MAX], took[RUNS_MAX], samples[RUNS_MAX], ratios[RUNS_MAX], median;

	for (int i = 0; i < RUNS; i++) {
		cost[i] = looks[i];
		took[i] = answers[i];
		samples[i] = perfs[i];
		ratios[i] = looks[i] / perfs[i];
	}
	median = bench_median(cost, RUNS);
	bench_print_ratio(WHAT, median, "us", "perf kvm record", bench_median(samples, RUNS),
			  ratios, RUNS);
	bench_print("attach by qmp at 99 Hz: of the guest's time", median * 99 / 1e4, "%");
	bench_print("attach by qmp at 200 Hz: of the guest's time", median * 200 / 1e4, "%");
	bench_print("attach by qmp: until a look is answered", bench_median(took, RUNS), "us");
}

static void measure(struct monitor *monitor)
{
	double looks[RUNS_MAX], answers[RUNS_MAX], perfs[RUNS_MAX];

	for (int run = 0; run < RUNS; run++) {
		perfs[run] = cost_of_perf(lost_share());
		if (!perfs[run] || !measure_looks(monitor, &looks[run], &answers[run])) {
			bench_fail(WHAT, perfs[run] ? "the monitor does not answer"
						    : "perf does not sample");
			return;
		}
	}
	print(looks, answers, perfs);
}

static void measure_vm(void)
{
	const struct monitor_address address = { .socket = MONITOR };
	struct monitor *monitor = NULL;
	struct vmm_process *process;

	if (vmm_process_open(&process, vm.pid, 0) ||
	    monitor_open(&monitor, &address, process, -1)) {
		bench_fail(WHAT, "the monitor can not be opened");
		return;
	}
	prefer(process);
	measure(monitor);
	monitor_close(monitor);
	vmm_process_close(process);
}

int main(void)
{
	if (!tools_open()) {
		fprintf(stderr, "no FIFOs: %s\n", strerror(errno));
		return 1;
	}
	if (start_vm())
		measure_vm();
	else
		bench_skip(WHAT, "qemu-system-x86_64 does not run this guest with KVM here");
	end_vm();
	tools_close();
	return bench_status();
}
