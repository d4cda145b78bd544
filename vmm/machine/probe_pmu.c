/* SPDX-License-Identifier: Apache-2.0 */
/* Counters: the host's through perf, a guest's through its own MSRs; and perf's clock. */
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/mediated_pmu.h"
#include "vmm/machine/probe_guest.h"
#include "vmm/machine/probe_list.h"

static int perf_open(struct perf_event_attr *attr, pid_t pid, int cpu)
{
	attr->size = sizeof(*attr);
	return (int)syscall(SYS_perf_event_open, attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

/* Uses the CPU time of this process, nearly all of it in user mode. */
static void burn(uint64_t milliseconds)
{
	do {
		for (volatile unsigned int i = 0; i < 100000; i++)
			;
	} while (clock_ms(CLOCK_PROCESS_CPUTIME_ID) < milliseconds);
}

void probe_host_pmu(struct probe_row *row)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_HARDWARE,
					.config = PERF_COUNT_HW_CPU_CYCLES,
					.exclude_kernel = 1,
					.exclude_hv = 1,
					.exclude_guest = 1 }; /* see mediated_pmu.h */
	int fd = perf_open(&attr, 0, -1);
	uint64_t cycles = 0;

	if (fd < 0) {
		probe_report(row, PROBE_NO, "perf_event_open of cycles: %m");
		return;
	}
	burn(20);
	if (read(fd, &cycles, sizeof(cycles)) != sizeof(cycles) || cycles == 0)
		probe_report(row, PROBE_NO, "the cycle counter does not advance");
	else
		probe_report(row, PROBE_YES, "cycles are counted");
}

static volatile sig_atomic_t ticks;

static void count_tick(int signal)
{
	ticks++;
}

#define CLOCK_HZ 1000
#define CLOCK_MS 50

static int send_signals(int fd)
{
	const struct sigaction action = { .sa_handler = count_tick, .sa_flags = SA_RESTART };

	if (sigaction(SIGIO, &action, NULL) || fcntl(fd, F_SETOWN, getpid()) ||
	    fcntl(fd, F_SETFL, O_ASYNC) || ioctl(fd, PERF_EVENT_IOC_REFRESH, 1000))
		return -errno;
	return 0;
}

void probe_cpu_clock(struct probe_row *row)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = NS_PER_S / CLOCK_HZ,
		.sample_type = PERF_SAMPLE_IP,
		.wakeup_events = 1,
		.disabled = 1
	}; /* kernel mode too: guests are interrupted there */
	int fd = perf_open(&attr, 0, -1);

	if (fd < 0 || send_signals(fd)) {
		probe_report(row, PROBE_NO, "perf_event_open of cpu-clock: %m");
		return;
	}
	burn(CLOCK_MS);
	if (ticks == 0)
		probe_report(row, PROBE_NO, "no signal in %d ms of CPU time at %d Hz", CLOCK_MS,
			     CLOCK_HZ);
	else
		probe_report(row, PROBE_YES, "%d signals in %d ms of CPU time at %d Hz", (int)ticks,
			     CLOCK_MS, CLOCK_HZ);
}

static int paranoid_level(void)
{
	FILE *file = fopen("/proc/sys/kernel/perf_event_paranoid", "r");
	int level = 0;

	if (!file || fscanf(file, "%d", &level) != 1)
		level = -99;
	if (file)
		fclose(file);
	return level;
}

void probe_perf_permission(struct probe_row *row)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE,
					.config = PERF_COUNT_SW_CPU_CLOCK };
	int level = paranoid_level();

	if (perf_open(&attr, -1, 0) < 0)
		probe_report(row, PROBE_NO,
			     "perf_event_open of CPU 0: %m; perf_event_paranoid is %d", level);
	else
		probe_report(
			row, PROBE_YES,
			"CPU 0 can be sampled, including the kernel; perf_event_paranoid is %d",
			level);
}

/* MSRs and name of a vendor's first counter, for counting instructions. */
struct counter {
	const char *name;
	uint32_t select, count, global; /* MSRs; global 0: none */
};

static const struct counter intel_counter = { "Intel architectural", 0x186, 0xc1, 0x38f };
static const struct counter amd_counter = { "AMD", 0xc0010000, 0xc0010004, 0 };

/* event 0xc0, user and kernel, enabled: the same on both */
#define COUNT_INSTRUCTIONS 0x004300c0u

static size_t put(uint8_t *code, size_t at, const void *bytes, size_t size)
{
	memcpy(code + at, bytes, size);
	return at + size;
}

/* mov ecx, msr; mov eax, value; xor edx, edx; wrmsr */
static size_t put_wrmsr(uint8_t *code, size_t at, uint32_t msr, uint32_t value)
{
	at = put(code, at, "\xb9", 1);
	at = put(code, at, &msr, sizeof(msr));
	at = put(code, at, "\xb8", 1);
	at = put(code, at, &value, sizeof(value));
	return put(code, at, "\x31\xd2\x0f\x30", 4);
}

/* Counts at least ten instructions, and ends with the low byte of the count. */
static size_t write_code(uint8_t *code, const struct counter *counter)
{
	static const uint8_t end[] = { 0x0f, 0x32, PROBE_END }; /* rdmsr */
	size_t at = put_wrmsr(code, 0, counter->select, COUNT_INSTRUCTIONS);

	if (counter->global)
		at = put_wrmsr(code, at, counter->global, 1);
	at = put(code, at, "\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\xb9", 11);
	at = put(code, at, &counter->count, sizeof(counter->count));
	return put(code, at, end, sizeof(end));
}

void probe_guest_pmu(struct probe_row *row)
{
	const struct kvm_cpuid_entry2 *leaf;
	const struct counter *counter;
	struct probe_vm vm;
	uint8_t code[96] = { 0 };

	if (probe_vm_open(&vm, code, sizeof(code), 0)) {
		probe_report_error(row);
		return;
	}
	leaf = cpuid_find(&vm.cpuid, 0xa, 0);
	counter = cpuid_vendor_is(&vm.cpuid, "GenuineIntel") ? &intel_counter : &amd_counter;
	write_code(vm.memory + PROBE_CODE, counter);
	if (probe_vm_run(&vm) < 0)
		probe_report_error(row);
	else if (!probe_vm_ended(&vm) || probe_vm_value(&vm) == 0)
		probe_report(
			row, PROBE_NO,
			"the first %s counter %s; CPUID 0xA version %u, KVM_CAP_PMU_CAPABILITY %d",
			counter->name, probe_vm_ended(&vm) ? "does not advance" : "does not exist",
			leaf ? leaf->eax & 0xff : 0,
			probe_vm_capability(&vm, KVM_CAP_PMU_CAPABILITY));
	else
		probe_report(row, PROBE_YES, "the first %s counter counts instructions",
			     counter->name);
}

/* The vendors that vmm/pmu supports: SDM vol. 2A and APM vol. 3, CPUID function 0. */
static bool has_known_pmu(struct probe_vm *vm)
{
	return cpuid_vendor_is(&vm->cpuid, "GenuineIntel") ||
	       cpuid_vendor_is(&vm->cpuid, "AuthenticAMD") ||
	       cpuid_vendor_is(&vm->cpuid, "HygonGenuine");
}

/* The TSC frequency of a guest in kHz. If there can be no PMU: 0 or less, after reporting why. */
static int guest_tsc(struct probe_row *row)
{
	struct probe_vm vm;
	int khz;

	if (probe_vm_open(&vm, NULL, 0, 0)) {
		probe_report_error(row);
		return 0;
	}
	khz = ioctl(vm.vcpu_fd, KVM_GET_TSC_KHZ, 0);
	if (khz <= 0)
		probe_report(row, PROBE_NO, "KVM_GET_TSC_KHZ: %m");
	else if (!has_known_pmu(&vm)) {
		probe_report(row, PROBE_NO, "the processor is neither Intel nor AMD");
		khz = 0;
	}
	probe_vm_close(&vm);
	return khz;
}

void probe_shared_pmu(struct probe_row *row)
{
	if (mediated_pmu_is_enabled("/sys/module"))
		probe_report(row, PROBE_NO,
			     "enable_mediated_pmu: events of cycles and VMs exclude each other");
	else
		probe_report(row, PROBE_YES, "KVM does not use enable_mediated_pmu");
}

/* Opens an event as vmm/pmu/pmu_host.c does: for a guest, kernel mode included. With a mediated
 * PMU, neither opens one: starts of VMs would fail. */
static bool host_counts_for_guests(void)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_HARDWARE,
					.config = PERF_COUNT_HW_CPU_CYCLES,
					.exclude_host = 1,
					.disabled = 1 };
	int fd = mediated_pmu_is_enabled("/sys/module") ? -1 : perf_open(&attr, 0, -1);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* The PMU needs filtered MSRs. Linux reads its counters with RDPMC, which only breakpoints can
 * trap. */
void probe_emulated_pmu(struct probe_row *row)
{
	struct probe_row breakpoints = { 0 };
	int khz = guest_tsc(row);
	char source[80];

	if (khz <= 0)
		return;
	probe_msr_filter(row);
	if (row->state != PROBE_YES)
		return;
	probe_int3(&breakpoints);
	if (host_counts_for_guests())
		(void)snprintf(source, sizeof(source), "events by the host's counters");
	else
		(void)snprintf(
			source, sizeof(source),
			"cycles from the guest's run time, at its TSC frequency of %d.%03d MHz",
			khz / 1000, khz % 1000);
	if (breakpoints.works & PROBE_IN_KERNEL)
		probe_report(row, PROBE_YES, "%s; RDPMC by software breakpoints", source);
	else
		probe_report(
			row, PROBE_PARTLY,
			"%s; RDMSR only: Linux's RDPMC needs software breakpoints in kernel code",
			source);
}
