/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of a query through QEMU's monitor for the guest (kvmscope attach --backend qmp),
 * compared with a sample of perf kvm --guest record -e cpu-clock on the same VM in the same run.
 * The guest is a CPL3 loop in a QEMU with the local KVM.
 *
 * The guest sums up, in TSC cycles, the time for which it did not run; the bench reads the sum from
 * guest memory. The cost of a query is the growth of the sum while the bench sends the same
 * commands as kvmscope attach; the median over some hundred queries at random moments is used. The
 * cost of a perf sample is the difference between the time lost in windows with perf, at 4000 Hz,
 * and without, divided by the number of samples. Gaps longer than LOST_MAX are caused by other
 * processes and do not count.
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

#define RUNS_MAX    6
#define RUNS        bench_size(RUNS_MAX, 1)
#define QUERIES_MAX 50 /* queries per run */
#define QUERIES     bench_size(QUERIES_MAX, 10)
#define INTERVAL    10000     /* us, longest pause between queries */
#define WINDOW      2000000   /* us */
#define FREQUENCY   3999      /* Hz, sampling frequency of perf */
#define LOST_MAX    "5000000" /* TSC cycles, some 2 ms */
#define SERIAL      "build/bench/attach.qemu"
#define MONITOR     "build/bench/attach.qmp"
#define MEMORY      (64ull << 20) /* bytes */
#define WAIT_S      20

static struct {
	pid_t pid;
	int memory_fd;   /* /proc/PID/mem */
	uint64_t record; /* address of the guest's record in that process */
} vm;

/* The guest's record, see tests/guests/program_user.c. In TSC cycles. */
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

/* The address of the record as the guest prints it; 0: not yet printed. */
static uint64_t read_record_address(void)
{
	unsigned long long place = 0;
	FILE *file = fopen(SERIAL, "re");

	if (file && fscanf(file, "gaps at %llx", &place) != 1)
		place = 0;
	if (file)
		fclose(file);
	return place;
}

/* The address of guest memory in the process; 0: not found. */
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
		place = read_record_address();
	}
	snprintf(path, sizeof(path), "/proc/%d/mem", vm.pid);
	vm.memory_fd = open(path, O_RDONLY | O_CLOEXEC);
	vm.record = find_memory() + place;
	return place && vm.memory_fd >= 0 && vm.record > place;
}

/* Gives the vCPU thread and the monitor thread priority over other work of the machine. */
static void raise_priority(const struct vmm_process *process)
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

/* The part of its time that the guest lost in a window. */
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

/*
 * us that the guest loses per sample of perf, if it loses WITHOUT of its time without perf; 0: perf
 * does not work.
 */
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
	samples = count_samples(tools_perf_data);
	return samples ? share * elapsed / (double)samples : 0;
}

/* Queries. */

/* TSC cycles per us. */
static double cycles_per_us(void)
{
	struct record first = read_record(), last;
	uint64_t begun = bench_time(CLOCK_MONOTONIC_RAW);

	usleep(200000);
	last = read_record();
	return (double)(last.now - first.now) * 1e3 /
	       (double)(bench_time(CLOCK_MONOTONIC_RAW) - begun);
}

/* Stores the time that the guest lost, and the time until QEMU replied, us. */
static bool query(struct monitor *monitor, double cycles, double *lost, double *reply_time)
{
	struct record before = read_record();
	uint64_t begun = bench_time(CLOCK_MONOTONIC);
	json_t *text = NULL;

	if (monitor_execute_hmp(monitor, "info registers -a", &text))
		return false;
	*reply_time = (double)(bench_time(CLOCK_MONOTONIC) - begun) / 1e3;
	usleep(100); /* until the guest runs again and has updated its record */
	*lost = (double)(read_record().lost - before.lost) / cycles;
	json_decref(text);
	return true;
}

/* The medians of a run. */
static bool measure_queries(struct monitor *monitor, double *cost, double *answer)
{
	double lost[QUERIES_MAX], reply_time[QUERIES_MAX], cycles = cycles_per_us();

	for (int i = 0; i < QUERIES; i++) {
		usleep((useconds_t)(random() % INTERVAL));
		if (!query(monitor, cycles, &lost[i], &reply_time[i]))
			return false;
	}
	*cost = bench_median(lost, QUERIES);
	*answer = bench_median(reply_time, QUERIES);
	return true;
}

/* The results. */

#define WHAT "attach, qmp: guest time per query"

static void print(const double queries[RUNS_MAX], const double answers[RUNS_MAX],
		  const double perfs[RUNS_MAX])
{
	double cost[RUNS_MAX], reply_time[RUNS_MAX], samples[RUNS_MAX], ratios[RUNS_MAX], median;

	for (int i = 0; i < RUNS; i++) {
		cost[i] = queries[i];
		reply_time[i] = answers[i];
		samples[i] = perfs[i];
		ratios[i] = queries[i] / perfs[i];
	}
	median = bench_median(cost, RUNS);
	bench_print_ratio(WHAT, median, "us", "perf kvm record", bench_median(samples, RUNS),
			  ratios, RUNS);
	bench_print("attach, qmp at 99 Hz: share of guest time", median * 99 / 1e4, "%");
	bench_print("attach, qmp at 200 Hz: share of guest time", median * 200 / 1e4, "%");
	bench_print("attach, qmp: time until the reply", bench_median(reply_time, RUNS), "us");
}

static void measure(struct monitor *monitor)
{
	double queries[RUNS_MAX], answers[RUNS_MAX], perfs[RUNS_MAX];

	for (int run = 0; run < RUNS; run++) {
		perfs[run] = cost_of_perf(lost_share());
		if (!perfs[run] || !measure_queries(monitor, &queries[run], &answers[run])) {
			bench_fail(WHAT, perfs[run] ? "the monitor does not answer"
						    : "perf does not sample");
			return;
		}
	}
	print(queries, answers, perfs);
}

static void measure_vm(void)
{
	const struct monitor_address address = { .socket = MONITOR };
	struct monitor *monitor = NULL;
	struct vmm_process *process;

	if (vmm_process_open(&process, vm.pid, 0) ||
	    monitor_open(&monitor, &address, process, -1)) {
		bench_fail(WHAT, "the monitor cannot be opened");
		return;
	}
	raise_priority(process);
	measure(monitor);
	monitor_close(monitor);
	vmm_process_close(process);
}

int main(void)
{
	if (!tools_open()) {
		fprintf(stderr, "bench_attach_qmp: cannot create perf's FIFOs: %s\n",
			strerror(errno));
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
