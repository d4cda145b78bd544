// SPDX-License-Identifier: Apache-2.0
/*
 * What it costs a guest of others that it is sampled, by each way of kvmscope attach at 99 and 1000 Hz: turns
 * of a CPL3 loop on the local KVM for each ms of its thread's CPU time, beside perf kvm --guest record -e
 * cpu-clock on the same VM; and the CPU time of the tools themselves.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/bench/bench.h"
#include "tests/kvm/sampled_guest.h"

#define COUNTER  0x80000ull
#define RUNS     5
#define CPU_TIME 40000000ull /* of a part, with some samples in it at any frequency */
#define PARTS    12
#define OUTPUT   "build/bench/attach.data"
#define MESSAGES "build/bench/attach.log"
#define WAIT_S   20

extern char **environ;

/* mov edi, COUNTER; 1: mov ecx, 100; 2: dec ecx; jnz 2b; inc qword [rdi]; jmp 1b */
static const uint8_t code[] = { 0xbf, 0,    0,    8,    0,    0xb9, 100,  0,    0,   0,
				0xff, 0xc9, 0x75, 0xfc, 0x48, 0xff, 0x07, 0xeb, 0xf2 };

/* A process with a VM, which measures itself when it is asked. */
static struct {
	pid_t pid;
	int ask, answer;
} vm;

static const char *const ways[] = { "perf", "bpf", "ptrace" };
#define WAYS (sizeof(ways) / sizeof(*ways))

static double turns_in_part(struct sampled_guest *guest, clockid_t clock)
{
	uint64_t from, to, begun, ended;

	memory_read(&guest->vm.memory, COUNTER, &from, sizeof(from));
	begun = bench_time(clock);
	while ((ended = bench_time(clock)) < begun + CPU_TIME)
		usleep(1000);
	memory_read(&guest->vm.memory, COUNTER, &to, sizeof(to));
	return 1e6 * (double)(to - from) / (double)(ended - begun);
}

/* The best of some: what else runs on the machine only slows it down. */
static double turns_in_window(struct sampled_guest *guest, clockid_t clock)
{
	double best = 0;

	for (int i = 0; i < PARTS; i++) {
		double turns = turns_in_part(guest, clock);

		best = turns > best ? turns : best;
	}
	return best;
}

/* As other VMMs do: so that its vCPU can be told from its other threads. */
static void name_thread(const struct sampled_guest *guest)
{
	while (!atomic_load(&guest->vm.vcpus[0]->thread_id))
		usleep(100);
	pthread_setname_np(guest->cpus[0].thread, "vCPU 0");
}

static _Noreturn void run_vm(int asked, int answer)
{
	const struct sampled_guest_options options = {
		.code = code, .size = sizeof(code), .cpl = 3, .cpus = 1, .clock = SAMPLING_CLOCK_CPU
	};
	struct sampled_guest guest;
	clockid_t clock;
	double turns;
	char what;

	if (sampled_guest_start(&guest, &options)) {
		fprintf(stderr, "%s\n", error_message());
		_exit(1);
	}
	name_thread(&guest);
	pthread_getcpuclockid(guest.cpus[0].thread, &clock);
	while (read(asked, &what, 1) == 1) {
		turns = turns_in_window(&guest, clock);
		if (write(answer, &turns, sizeof(turns)) != sizeof(turns))
			break;
	}
	_exit(0);
}

static void start_vm(void)
{
	int ask[2], answer[2];

	if (pipe2(ask, O_CLOEXEC) || pipe2(answer, O_CLOEXEC))
		exit(1);
	vm.pid = fork();
	if (!vm.pid) {
		close(ask[1]);
		run_vm(ask[0], answer[1]);
	}
	close(ask[0]);
	close(answer[1]);
	vm.ask = ask[1];
	vm.answer = answer[0];
}

static double measure_window(void)
{
	double turns;

	if (write(vm.ask, "", 1) != 1 || read(vm.answer, &turns, sizeof(turns)) != sizeof(turns))
		exit(1);
	return turns;
}

static bool has_said(const char *text)
{
	char messages[16384] = "";
	FILE *file = fopen(MESSAGES, "r");

	if (file) {
		messages[fread(messages, 1, sizeof(messages) - 1, file)] = '\0';
		fclose(file);
	}
	return strstr(messages, text);
}

static bool is_written(void)
{
	struct stat status;

	return !stat(OUTPUT, &status) && status.st_size;
}

/* WAY NULL: perf. */
static pid_t spawn_tool(const char *way, unsigned int frequency)
{
	char pid[16], hz[16];
	const char *const ours[] = {
		"build/kvmscope",     "attach", "--pid", pid, "--backend", way, "-F", hz, "-o", OUTPUT,
		"--no-buildid-cache", "-v",     NULL
	};
	const char *const perfs[] = { "perf", "kvm", "--guest", "record", "-e",   "cpu-clock", "-F",
				      hz,     "-p",  pid,       "-o",     OUTPUT, NULL };
	posix_spawn_file_actions_t actions;
	pid_t tool = 0;

	snprintf(pid, sizeof(pid), "%d", vm.pid);
	snprintf(hz, sizeof(hz), "%u", frequency);
	unlink(OUTPUT);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, MESSAGES, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	posix_spawn_file_actions_adddup2(&actions, 1, 2);
	if (posix_spawnp(&tool, way ? ours[0] : perfs[0], &actions, NULL, (char **)(way ? ours : perfs),
			 environ))
		tool = 0;
	posix_spawn_file_actions_destroy(&actions);
	return tool;
}

/* Samples are taken from here on; false: it has ended instead. */
static bool wait_for_tool(pid_t tool, const char *way)
{
	for (unsigned int i = 0; i < WAIT_S * 100; i++) {
		if (way ? has_said("ms for the guest's kernel") : is_written()) {
			usleep(200000);
			return waitpid(tool, NULL, WNOHANG) == 0;
		}
		if (waitpid(tool, NULL, WNOHANG))
			return false;
		usleep(10000);
	}
	return false;
}

/* In percent: what the guest needs more for its work, and what of a core the tool takes. False: it does not
 * work here. */
static bool measure_once(const char *way, unsigned int frequency, double *slowdown, double *cpu)
{
	double plain = measure_window(), sampled;
	pid_t tool = spawn_tool(way, frequency);
	uint64_t begun, used;
	clockid_t clock;
	bool works = tool && wait_for_tool(tool, way);

	if (works && !clock_getcpuclockid(tool, &clock)) {
		begun = bench_time(CLOCK_MONOTONIC);
		used = bench_time(clock);
		sampled = measure_window();
		*cpu = 100.0 * (double)(bench_time(clock) - used) /
		       (double)(bench_time(CLOCK_MONOTONIC) - begun);
		*slowdown = (plain / sampled - 1) * 100;
	}
	if (works) {
		kill(tool, SIGINT);
		waitpid(tool, NULL, 0);
	}
	return works;
}

/* The last of what it said, without what JSON would need escapes for. */
static void note_reason(char line[200])
{
	FILE *file = fopen(MESSAGES, "r");

	strcpy(line, "it has ended");
	while (file && fgets(line, 200, file))
		line[strcspn(line, "\n")] = '\0';
	if (file)
		fclose(file);
	for (char *byte = line; *byte; byte++)
		if (*byte == '"' || *byte == '\\')
			*byte = '\'';
}

struct figures {
	double slowdown[RUNS], cpu[RUNS];
	bool works;
	char reason[200]; /* why it does not */
};

static void measure_way(struct figures *figures, int run, const char *way, unsigned int frequency)
{
	if (!figures->works)
		return;
	figures->works = measure_once(way, frequency, &figures->slowdown[run], &figures->cpu[run]);
	if (!figures->works)
		note_reason(figures->reason);
}

static void print(const char *way, unsigned int frequency, struct figures *ours, struct figures *perfs)
{
	char what[96];

	snprintf(what, sizeof(what), "attach by %s at %u Hz: guest slow-down, CPL3 loop, local KVM", way,
		 frequency);
	if (!ours->works) {
		bench_skip(what, ours->reason);
		return;
	}
	bench_print_beside(what, bench_median(ours->slowdown, RUNS), "%", "perf kvm record",
			   bench_median(perfs->slowdown, RUNS));
	snprintf(what, sizeof(what), "attach by %s at %u Hz: CPU time of the tool", way, frequency);
	bench_print_beside(what, bench_median(ours->cpu, RUNS), "% of a core", "perf kvm record",
			   bench_median(perfs->cpu, RUNS));
}

static void measure(unsigned int frequency)
{
	struct figures perfs = { .works = true }, ours[WAYS];

	for (size_t way = 0; way < WAYS; way++)
		ours[way].works = true;
	for (int run = 0; run < RUNS; run++) {
		perfs.works =
			perfs.works && measure_once(NULL, frequency, &perfs.slowdown[run], &perfs.cpu[run]);
		for (size_t way = 0; way < WAYS; way++)
			measure_way(&ours[way], run, ways[way], frequency);
	}
	if (!perfs.works) {
		bench_skip("attach: guest slow-down, local KVM", "perf kvm record does not work here");
		return;
	}
	for (size_t way = 0; way < WAYS; way++)
		print(ways[way], frequency, &ours[way], &perfs);
}

int main(void)
{
	if (!bare_guest_possible()) {
		bench_skip("attach: guest slow-down, local KVM", "no /dev/kvm");
		return 0;
	}
	start_vm();
	measure(99);
	measure(1000);
	close(vm.ask);
	waitpid(vm.pid, NULL, 0);
	unlink(OUTPUT);
	unlink(MESSAGES);
	return 0;
}
