/* SPDX-License-Identifier: Apache-2.0 */
/* /dev/kvm itself, and the parts of its interface that this VMM uses. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/machine/probe_guest.h"
#include "vmm/machine/probe_list.h"

static const uint8_t end_at_once[] = { PROBE_END };
static const uint8_t spin[] = { 0xeb, 0xfe }; /* jmp to itself */

static const struct {
	int capability;
	const char *name;
} capabilities[] = {
	{ KVM_CAP_IRQCHIP, "IRQCHIP" },
	{ KVM_CAP_USER_MEMORY, "USER_MEMORY" },
	{ KVM_CAP_SET_TSS_ADDR, "SET_TSS_ADDR" },
	{ KVM_CAP_EXT_CPUID, "EXT_CPUID" },
	{ KVM_CAP_MP_STATE, "MP_STATE" },
	{ KVM_CAP_PIT2, "PIT2" },
	{ KVM_CAP_IMMEDIATE_EXIT, "IMMEDIATE_EXIT" },
	{ KVM_CAP_SYNC_REGS, "SYNC_REGS" },
	{ KVM_CAP_SET_GUEST_DEBUG, "SET_GUEST_DEBUG" },
	{ KVM_CAP_DEBUGREGS, "DEBUGREGS" },
	{ KVM_CAP_XSAVE, "XSAVE" },
	{ KVM_CAP_XCRS, "XCRS" },
	{ KVM_CAP_TSC_DEADLINE_TIMER, "TSC_DEADLINE_TIMER" },
	{ KVM_CAP_X86_USER_SPACE_MSR, "X86_USER_SPACE_MSR" },
	{ KVM_CAP_X86_MSR_FILTER, "X86_MSR_FILTER" },
	{ KVM_CAP_PMU_CAPABILITY, "PMU_CAPABILITY" },
};

static void list_missing(const struct probe_vm *vm, char *text, size_t size)
{
	for (size_t i = 0; i < sizeof(capabilities) / sizeof(capabilities[0]); i++)
		if (!probe_vm_capability(vm, capabilities[i].capability))
			snprintf(text + strlen(text), size - strlen(text), "%s%s",
				 *text ? ", " : "; missing capabilities: ", capabilities[i].name);
}

/* Lists missing capabilities; the rows below try them. */
void probe_kvm_device(struct probe_row *row)
{
	char missing[160] = "";
	struct probe_vm vm;
	int version;

	if (probe_vm_create(&vm)) {
		probe_report_error(row);
		return;
	}
	version = ioctl(vm.kvm_fd, KVM_GET_API_VERSION, 0);
	list_missing(&vm, missing, sizeof(missing));
	probe_report(row, version == KVM_API_VERSION ? PROBE_YES : PROBE_NO,
		     "a VM can be created; API version %d%s", version, missing);
}

static const char *loaded_module(void)
{
	static const char *const modules[] = { "kvm_intel", "kvm_amd", "kvm_pvm" };
	char path[64];

	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
		snprintf(path, sizeof(path), "/sys/module/%s", modules[i]);
		if (!access(path, F_OK))
			return modules[i];
	}
	return NULL;
}

static const char *cpu_extension(void)
{
	static char line[8192];
	const char *found = "neither vmx nor svm";
	FILE *cpuinfo = fopen("/proc/cpuinfo", "r");

	while (cpuinfo && fgets(line, sizeof(line), cpuinfo)) {
		if (strncmp(line, "flags", 5) != 0)
			continue;
		found = strstr(line, " vmx") ? "vmx" : strstr(line, " svm") ? "svm" : found;
		break;
	}
	if (cpuinfo)
		fclose(cpuinfo);
	return found;
}

void probe_kvm_flavour(struct probe_row *row)
{
	const char *module = loaded_module();

	if (module)
		probe_report(row, PROBE_YES, "module %s; the CPU has %s", module, cpu_extension());
	else
		probe_report(row, PROBE_PARTLY, "unknown module; the CPU has %s", cpu_extension());
}

void probe_kvm_irqchip(struct probe_row *row)
{
	struct kvm_pit_config pit = { .flags = KVM_PIT_SPEAKER_DUMMY };
	struct kvm_irqchip chip = { .chip_id = KVM_IRQCHIP_IOAPIC };
	struct kvm_irq_level level = { .irq = 5, .level = 1 };
	struct kvm_lapic_state lapic;
	struct probe_vm vm;

	if (probe_vm_create(&vm))
		probe_report_error(row);
	else if (ioctl(vm.vm_fd, KVM_CREATE_IRQCHIP, 0))
		probe_report(row, PROBE_NO, "KVM_CREATE_IRQCHIP: %m");
	else if (ioctl(vm.vm_fd, KVM_CREATE_PIT2, &pit))
		probe_report(row, PROBE_NO, "KVM_CREATE_PIT2: %m");
	else if (probe_vm_start(&vm, end_at_once, sizeof(end_at_once), 0))
		probe_report_error(row);
	else if (ioctl(vm.vcpu_fd, KVM_GET_LAPIC, &lapic))
		probe_report(row, PROBE_NO, "KVM_GET_LAPIC: %m");
	else if (ioctl(vm.vm_fd, KVM_IRQ_LINE, &level) || ioctl(vm.vm_fd, KVM_GET_IRQCHIP, &chip))
		probe_report(row, PROBE_NO, "KVM_IRQ_LINE: %m");
	else
		probe_report(row, PROBE_YES, "LAPIC, IOAPIC, PIC and PIT in the kernel%s",
			     probe_vm_capability(&vm, KVM_CAP_TSC_DEADLINE_TIMER)
				     ? ", TSC deadline timer"
				     : "");
}

/* mov al, dl; end. The value enters through the shared registers and leaves by the port. */
void probe_kvm_sync_regs(struct probe_row *row)
{
	static const uint8_t code[] = { 0x88, 0xd0, PROBE_END };
	struct probe_vm vm;
	struct kvm_regs regs;
	int mask;

	if (probe_vm_open(&vm, code, sizeof(code), 0) || ioctl(vm.vcpu_fd, KVM_GET_REGS, &regs)) {
		probe_report_error(row);
		return;
	}
	mask = probe_vm_capability(&vm, KVM_CAP_SYNC_REGS);
	if (!(mask & KVM_SYNC_X86_REGS)) {
		probe_report(row, PROBE_NO, "KVM_CAP_SYNC_REGS is %d", mask);
		return;
	}
	vm.run->s.regs.regs = regs;
	vm.run->s.regs.regs.rdx = 0x5a;
	vm.run->kvm_valid_regs = KVM_SYNC_X86_REGS;
	vm.run->kvm_dirty_regs = KVM_SYNC_X86_REGS;
	if (probe_vm_run(&vm) < 0)
		probe_report_error(row);
	else if (!probe_vm_ended(&vm) || probe_vm_value(&vm) != 0x5a ||
		 (vm.run->s.regs.regs.rax & 0xff) != 0x5a)
		probe_report(row, PROBE_NO, "the registers are not transferred");
	else
		probe_report(row, PROBE_YES, "%s%s%s", "general",
			     mask & KVM_SYNC_X86_SREGS ? ", special" : "",
			     mask & KVM_SYNC_X86_EVENTS ? " and events" : "");
}

static struct kvm_run *kicked_run;

static void kick(int signal)
{
	kicked_run->immediate_exit = 1;
}

static void kick_in(long microseconds)
{
	const struct itimerval timer = { .it_value.tv_usec = microseconds };
	const struct sigaction action = { .sa_handler = kick };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

/* A signal must end a guest that loops forever, and a kick before the entry must not be lost. */
void probe_kvm_kick(struct probe_row *row)
{
	struct probe_vm vm;
	int result;

	if (probe_vm_open(&vm, spin, sizeof(spin), 0)) {
		probe_report_error(row);
		return;
	}
	kicked_run = vm.run;
	vm.run->immediate_exit = 1;
	result = ioctl(vm.vcpu_fd, KVM_RUN, 0);
	if (result == 0 || errno != EINTR) {
		probe_report(row, PROBE_NO, "a kick before the entry does not stop the vCPU");
		return;
	}
	vm.run->immediate_exit = 0;
	kick_in(20000);
	result = ioctl(vm.vcpu_fd, KVM_RUN, 0);
	if (result == 0 || errno != EINTR)
		probe_report(row, PROBE_NO, "a signal ends KVM_RUN with %s",
			     result ? strerror(errno) : probe_vm_exit(&vm));
	else
		probe_report(row, PROBE_YES,
			     "by immediate_exit before the entry, by a signal in the guest");
}

#define FILTERED_MSR   0x186u /* IA32_PERFEVTSEL0 */
#define FILTERED_VALUE 0x5a

static int filter_msr(const struct probe_vm *vm)
{
	static uint8_t nothing_allowed;
	struct kvm_enable_cap cap = { .cap = KVM_CAP_X86_USER_SPACE_MSR,
				      .args = { KVM_MSR_EXIT_REASON_FILTER } };
	struct kvm_msr_filter filter = {
		.flags = KVM_MSR_FILTER_DEFAULT_ALLOW,
		.ranges[0] = { .flags = KVM_MSR_FILTER_READ | KVM_MSR_FILTER_WRITE,
			       .nmsrs = 1,
			       .base = FILTERED_MSR,
			       .bitmap = &nothing_allowed },
	};

	if (ioctl(vm->vm_fd, KVM_ENABLE_CAP, &cap))
		return error_set(-errno, "KVM_CAP_X86_USER_SPACE_MSR: %m");
	return ioctl(vm->vm_fd, KVM_X86_SET_MSR_FILTER, &filter)
		       ? error_set(-errno, "KVM_X86_SET_MSR_FILTER: %m")
		       : 0;
}

/* mov ecx, FILTERED_MSR; rdmsr; end */
void probe_msr_filter(struct probe_row *row)
{
	static const uint8_t code[] = {
		0xb9, FILTERED_MSR & 0xff, FILTERED_MSR >> 8, 0, 0, 0x0f, 0x32, PROBE_END
	};
	struct probe_vm vm;

	if (probe_vm_create(&vm) || filter_msr(&vm) || probe_vm_start(&vm, code, sizeof(code), 0) ||
	    probe_vm_run(&vm) < 0) {
		probe_report_error(row);
		return;
	}
	if (vm.run->exit_reason != KVM_EXIT_X86_RDMSR || vm.run->msr.index != FILTERED_MSR) {
		probe_report(row, PROBE_NO, "reading a filtered MSR ends with %s",
			     probe_vm_exit(&vm));
		return;
	}
	vm.run->msr.data = FILTERED_VALUE;
	vm.run->msr.error = 0;
	if (probe_vm_run(&vm) < 0 || !probe_vm_ended(&vm) || probe_vm_value(&vm) != FILTERED_VALUE)
		probe_report(row, PROBE_NO,
			     "the result of a filtered read does not reach the guest");
	else
		probe_report(row, PROBE_YES, "user space handled a read of MSR %#x", FILTERED_MSR);
}
