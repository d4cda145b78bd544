/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU time of kvmscope top while it shows busy VMs at 99 Hz, compared with perf kvm top on the
 * same VMs at the same time. Each draws a terminal every two seconds. The guests are CPL3 loops on
 * the local KVM, which run when no other process needs the CPU (nice 19).
 *
 * A perf event, which all processes and threads of a tool inherit, counts its CPU time, so that
 * processes which end meanwhile are included. The time of the sampling interrupts is the guests'
 * and is not included: see bench_attach.
 */
#include <linux/perf_event.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/unconst.h"
#include "tests/bench/bench.h"
#include "tests/bench/gap_guest.h"
#include "vmm/attach/process.h"

#define VMS_MAX   8
#define RUNS_MAX  4
#define RUNS      bench_size(RUNS_MAX, 1)
#define TRIES     bench_size(5, 2)
#define START_S   30 /* until both tools have drawn samples, at most */
#define SETTLE_S  bench_size(1, 0)
#define MEASURE_S bench_size(6, 2) /* three drawings */
#define END_S     20
/* ns of CPU time: KVM has recorded the vCPU's thread */
#define READY_TIME 10000000ull

#define OTHERS "other VMs run on this machine"

static pid_t vms[VMS_MAX];

static _Noreturn void run_vm(int ready)
{
	const struct sampled_guest_options options = {
		.code = gap_guest_code, .size = sizeof(gap_guest_code), .cpl = 3, .cpus = 1
	};
	struct sampled_guest guest;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpriority(PRIO_PROCESS, 0, 19);
	if (sampled_guest_start(&guest, &options)) {
		fprintf(stderr, "%s\n", error_message());
		_exit(1);
	}
	sampled_guest_use(&guest, READY_TIME);
	if (write(ready, "", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

/* kvmscope top shows all VMs of the machine. */
static bool are_alone(int count)
{
	pid_t pids[VMS_MAX + 1];

	return vmm_process_list(pids, VMS_MAX + 1) == (size_t)count || !bench_size(1, 0);
}

static void start_vm(int number)
{
	char ready = 0;
	int pipes[2];

	if (pipe(pipes))
		exit(1);
	vms[number] = fork();
	if (!vms[number])
		run_vm(pipes[1]);
	close(pipes[1]);
	if (read(pipes[0], &ready, 1) != 1)
		exit(1);
	close(pipes[0]);
}

static void end_vms(void)
{
	for (int i = 0; i < VMS_MAX && vms[i]; i++) {
		kill(vms[i], SIGKILL);
		waitpid(vms[i], NULL, 0);
	}
}

/* A tool on a terminal. */
struct tool {
	const char *samples; /* text that it draws with samples */
	pid_t pid;
	int terminal, counter;
	bool drawn;    /* SAMPLES */
	char tail[64]; /* of what was drawn */
};

/* ns of CPU time */
static uint64_t cpu_time(const struct tool *tool)
{
	uint64_t ns = 0;

	return read(tool->counter, &ns, sizeof(ns)) == sizeof(ns) ? ns : 0;
}

static int open_counter(pid_t pid)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE,
					.size = sizeof(attr),
					.config = PERF_COUNT_SW_TASK_CLOCK,
					.disabled = 1,
					.enable_on_exec = 1,
					.inherit = 1 };

	return (int)syscall(SYS_perf_event_open, &attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* The tool waits until its counter is open. */
static void start(struct tool *tool, const char *const *arguments)
{
	const struct winsize size = { .ws_row = 50, .ws_col = 120 };
	int go[2];

	tool->drawn = false;
	if (pipe(go))
		exit(1);
	tool->pid = forkpty(&tool->terminal, NULL, NULL, &size);
	if (!tool->pid) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		setenv("TERM", "xterm", 1);
		close(go[1]);
		if (!read(go[0], &(char){ 0 }, 1))
			execvp(arguments[0], unconst(arguments));
		_exit(127);
	}
	tool->counter = open_counter(tool->pid);
	close(go[0]);
	close(go[1]);
}

/* Keeps the end of what was drawn, because a text may come in two parts. */
static void drain(struct tool *tool)
{
	char text[sizeof(tool->tail) + 4096];
	size_t size = strlen(strcpy(text, tool->tail));
	ssize_t got = read(tool->terminal, text + size, sizeof(text) - size - 1);

	if (got <= 0)
		return;
	size += (size_t)got;
	text[size] = '\0';
	tool->drawn |= strstr(text, tool->samples) != NULL;
	if (size >= sizeof(tool->tail))
		memmove(text, text + size + 1 - sizeof(tool->tail), sizeof(tool->tail));
	strcpy(tool->tail, text);
}

/* Reads what the tools draw for SECONDS. */
static void watch(struct tool tools[2], int seconds)
{
	uint64_t until = bench_time(CLOCK_MONOTONIC) + (uint64_t)seconds * 1000000000, now;

	while ((now = bench_time(CLOCK_MONOTONIC)) < until) {
		struct pollfd events[] = { { tools[0].terminal, POLLIN, 0 },
					   { tools[1].terminal, POLLIN, 0 } };

		if (poll(events, 2, (int)((until - now) / 1000000) + 1) <= 0)
			continue;
		for (int i = 0; i < 2; i++)
			if (events[i].revents & POLLIN)
				drain(&tools[i]);
			else if (events[i].revents)
				usleep(10000); /* it has ended */
	}
}

/* Returns whether it still ran and had drawn samples. */
static bool end(struct tool *tool)
{
	bool works = !kill(tool->pid, SIGINT) && tool->drawn;
	pid_t ended = 0;

	for (int i = 0; i < END_S * 100 && !ended; i++) {
		struct pollfd event = { tool->terminal, POLLIN, 0 };

		if (poll(&event, 1, 10) > 0 && event.revents & POLLIN)
			drain(tool);
		else if (event.revents)
			usleep(10000);
		ended = waitpid(tool->pid, NULL, WNOHANG);
	}
	if (!ended) {
		kill(tool->pid, SIGKILL);
		waitpid(tool->pid, NULL, 0);
	}
	close(tool->terminal);
	close(tool->counter);
	return works && ended;
}

/* Returns NULL, or why there are no figures. PERCENT is of a core, ours first. */
static const char *measure(int count, double percent[2])
{
	struct tool tools[2] = { { .samples = " [.] " }, { .samples = "irqs/sec" } };
	char pids[VMS_MAX * 12] = "";
	const char *const ours[] = { "build/kvmscope", "top", NULL };
	const char *const perfs[] = { "perf", "kvm", "--guest", "top", "--stdio", "-e", "cpu-clock",
				      "-F",   "99",  "-d",      "2",   "-p",      pids, NULL };
	uint64_t begun, used[2];
	bool works, alone = are_alone(count);

	for (int i = 0; i < count; i++)
		sprintf(pids + strlen(pids), "%s%d", i ? "," : "", vms[i]);
	start(&tools[0], ours);
	start(&tools[1], perfs);
	for (int i = 0; i < START_S && !(tools[0].drawn && tools[1].drawn); i++)
		watch(tools, 1);
	watch(tools, SETTLE_S);
	begun = bench_time(CLOCK_MONOTONIC);
	for (int i = 0; i < 2; i++)
		used[i] = cpu_time(&tools[i]);
	watch(tools, MEASURE_S);
	for (int i = 0; i < 2; i++)
		percent[i] = 100.0 * (double)(cpu_time(&tools[i]) - used[i]) /
			     (double)(bench_time(CLOCK_MONOTONIC) - begun);
	alone &= are_alone(count);
	works = end(&tools[0]);
	works &= end(&tools[1]) && percent[0] > 0 && percent[1] > 0;
	if (!alone)
		return OTHERS;
	return works ? NULL : "kvmscope top or perf kvm top shows no samples";
}

static void measure_vms(int count)
{
	double ours[RUNS_MAX], perfs[RUNS_MAX], ratios[RUNS_MAX], percent[2];
	const char *reason = NULL;
	size_t runs = 0;
	char what[64];

	snprintf(what, sizeof(what), "top, %d busy VM%s at 99 Hz: CPU time", count,
		 count > 1 ? "s" : "");
	for (int i = 0; i < count; i++)
		if (!vms[i])
			start_vm(i);
	for (int i = 0; i < TRIES && runs < (size_t)RUNS; i++) {
		reason = measure(count, percent);
		if (reason)
			continue;
		ours[runs] = percent[0];
		perfs[runs] = percent[1];
		ratios[runs] = percent[0] / percent[1];
		runs++;
	}
	if (!runs && !strcmp(reason, OTHERS))
		bench_skip(what, reason);
	else if (!runs)
		bench_fail(what, reason);
	else
		bench_print_ratio(what, bench_median(ours, runs), "% of a core", "perf kvm top",
				  bench_median(perfs, runs), ratios, runs);
}

int main(void)
{
	if (!bare_guest_possible()) {
		bench_skip("top, busy VMs at 99 Hz: CPU time", "no /dev/kvm");
		return 0;
	}
	measure_vms(1);
	if (bench_size(1, 0))
		measure_vms(VMS_MAX);
	end_vms();
	return bench_status();
}
