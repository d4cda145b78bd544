/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/machine/host_probe.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/machine/probe_list.h"

/* A probe takes milliseconds, or some tenths of a second where guest code is interpreted. */
#define PROBE_TIMEOUT_MS 5000

enum environment { ON_HOST, IN_VM };

static const struct {
	const char *id;
	const char *name;
	probe *run;
	bool for_linux;
	enum environment environment;
	const char *lost;
} probes[] = {
	{ "kvm.device", "KVM device", probe_kvm_device, true, ON_HOST,
	  "No guest can run here; kvmscope run needs /dev/kvm." },
	{ "kvm.flavour", "KVM flavour", probe_kvm_flavour, false, ON_HOST,
	  "The kind of KVM is unknown; nothing else is lost." },
	{ "kvm.kernel_speed", "guest kernel code runs natively", probe_kernel_speed, true, IN_VM,
	  "Guest kernels are interpreted, one instruction at a time: Linux does not boot; only guest code at CPL3 "
	  "runs at full speed." },
	{ "kvm.instructions", "instructions of guest kernels", probe_kernel_instructions, true,
	  IN_VM,
	  "Linux stops with KVM_EXIT_INTERNAL_ERROR at the first instruction that this KVM does not support." },
	{ "kvm.system_call", "system calls of guest programs", probe_system_call, true, IN_VM,
	  "Guest programs cannot call their kernel: Linux gets to its first process at most." },
	{ "kvm.irqchip", "interrupt controllers and timer", probe_kvm_irqchip, true, IN_VM,
	  "Guests get no interrupts: no timer, no devices, no second CPU." },
	{ "kvm.sync_regs", "registers shared with KVM", probe_kvm_sync_regs, false, IN_VM,
	  "Each sample needs system calls to read the registers: some microseconds more." },
	{ "kvm.kick", "stopping a running vCPU", probe_kvm_kick, true, IN_VM,
	  "Running vCPUs can be neither sampled nor stopped." },
	{ "debug.breakpoint", "guest debug: execution breakpoint", probe_breakpoint, false, IN_VM,
	  "Breakpoints do not fire in that guest code." },
	{ "debug.watchpoint", "guest debug: data watchpoint", probe_watchpoint, false, IN_VM,
	  "Accesses to a variable cannot be profiled." },
	{ "debug.single_step", "guest debug: single-step", probe_single_step, false, IN_VM,
	  "No stepping over breakpoints: each fires once and is removed." },
	{ "debug.int3", "guest debug: int3", probe_int3, false, IN_VM,
	  "No software breakpoints; only the four debug registers, if they work." },
	{ "kvm.msr_filter", "MSR accesses to user space", probe_msr_filter, false, IN_VM,
	  "No emulated performance counters for guests." },
	{ "pmu.host", "hardware counters on the host", probe_host_pmu, false, ON_HOST,
	  "No sampling by cycles, instructions or cache misses; the clock remains." },
	{ "pmu.shared", "counters for host and guests", probe_shared_pmu, false, ON_HOST,
	  "attach cannot sample by cycles; the clock remains." },
	{ "pmu.guest", "hardware counters in guests", probe_guest_pmu, false, IN_VM,
	  "perf inside a guest has no hardware events." },
	{ "pmu.emulated", "emulated counters in guests", probe_emulated_pmu, false, IN_VM,
	  "kvmscope run offers no counters; --pmu emulated none, or none that Linux can read." },
	{ "perf.cpu_clock", "perf's cpu-clock with signals", probe_cpu_clock, false, ON_HOST,
	  "No sampling by perf's clock; VMs of other programs must be stopped for each sample." },
	{ "perf.system_wide", "perf for all processes", probe_perf_permission, false, ON_HOST,
	  "Only your own processes can be profiled; root, or CAP_PERFMON, can profile all." },
	{ "attach.bpf", "BPF programs", probe_bpf, false, ON_HOST,
	  "VMs of other programs cannot be sampled in the kernel; each sample stops the vCPU." },
	{ "attach.btf", "types of the running kernel (BTF)", probe_btf, false, ON_HOST,
	  "BPF programs cannot find the vCPU's registers in this kernel." },
	{ "attach.process_memory", "memory of other processes", probe_process_memory, false,
	  ON_HOST, "Guests of other VMMs cannot be symbolized: their memory cannot be read." },
	{ "libvirt.daemon", "libvirt daemon", probe_libvirt, false, ON_HOST,
	  "VMs of libvirt cannot be found by name." },
	{ "libvirt.hooks", "libvirt hooks", probe_libvirt_hooks, false, ON_HOST,
	  "VMs of libvirt are not profiled from their start." },
};

#define PROBES (sizeof(probes) / sizeof(probes[0]))

void probe_report(struct probe_row *row, enum probe_state state, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(row->detail, sizeof(row->detail), format, arguments);
	va_end(arguments);
	row->state = state;
}

void probe_report_error(struct probe_row *row)
{
	probe_report(row, PROBE_NO, "%s", error_message());
}

/* The child dies with its parent and leaves no core file. */
static _Noreturn void run_child(probe *run, struct probe_row *row)
{
	const struct rlimit none = { 0, 0 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setrlimit(RLIMIT_CORE, &none);
	run(row);
	_exit(0);
}

static bool wait_for_end(pid_t child, int timeout_ms)
{
	struct pollfd end = { .fd = (int)syscall(SYS_pidfd_open, child, 0), .events = POLLIN };
	int ready;

	if (end.fd < 0)
		return true; /* waitpid() works without it, but without a time limit */
	do
		ready = poll(&end, 1, timeout_ms);
	while (ready < 0 && errno == EINTR);
	close(end.fd);
	return ready > 0;
}

void probe_run(probe *run, struct probe_row *row, int timeout_ms)
{
	pid_t child = fork();
	bool ended;
	int status;

	if (child < 0) {
		probe_report(row, PROBE_NO, "not tried: fork: %m");
		return;
	}
	if (child == 0)
		run_child(run, row);
	ended = wait_for_end(child, timeout_ms);
	if (!ended)
		kill(child, SIGKILL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (!ended)
		probe_report(row, PROBE_NO, "no answer within %d ms", timeout_ms);
	else if (WIFSIGNALED(status))
		probe_report(row, PROBE_NO, "the attempt was killed: %s",
			     strsignal(WTERMSIG(status)));
}

/* Shared memory: children fill the rows. */
static struct probe_row *shared_rows(size_t count)
{
	struct probe_row *rows = mmap(NULL, count * sizeof(*rows), PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (rows != MAP_FAILED)
		return rows;
	error_set(-errno, "no memory for the probes: %m");
	return NULL;
}

static void describe(size_t number, struct probe_row *row)
{
	*row = (struct probe_row){ .id = probes[number].id,
				   .name = probes[number].name,
				   .lost = probes[number].lost,
				   .for_linux = probes[number].for_linux };
}

/* Without a VM, this row's own `lost` would be misleading. */
static void skip(struct probe_row *row)
{
	row->untried = true;
	row->lost = probes[0].lost;
	probe_report(row, PROBE_NO, "not tried: no VM can be created");
}

int probe_all(struct probe_row **rows, size_t *count)
{
	struct probe_row *made = shared_rows(PROBES);

	if (!made)
		return -ENOMEM;
	for (size_t i = 0; i < PROBES; i++) {
		describe(i, &made[i]);
		if (probes[i].environment == IN_VM && made[0].state == PROBE_NO)
			skip(&made[i]);
		else
			probe_run(probes[i].run, &made[i], PROBE_TIMEOUT_MS);
	}
	*rows = made;
	*count = PROBES;
	return 0;
}

int probe_one(const char *id, struct probe_row *row)
{
	struct probe_row *shared = shared_rows(1);
	size_t number = 0;

	if (!shared)
		return -ENOMEM;
	while (number < PROBES && strcmp(probes[number].id, id) != 0)
		number++;
	assert(number < PROBES);
	describe(number, shared);
	probe_run(probes[number].run, shared, PROBE_TIMEOUT_MS);
	*row = *shared;
	probe_free(shared, 1);
	return 0;
}

void probe_free(struct probe_row *rows, size_t count)
{
	if (rows)
		munmap(rows, count * sizeof(*rows));
}

bool probe_can_boot_linux(const struct probe_row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (rows[i].for_linux && rows[i].state == PROBE_NO)
			return false;
	return true;
}
