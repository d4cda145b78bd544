/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that uses the MSRs of its PMU and LVTPC arbitrarily, from the RDMSR or WRMSR exit to the
 * interrupt requested from KVM. This file's ioctl() is KVM. Input: a byte for the processor, then
 * the guest's actions.
 */
#include <errno.h>
#include <linux/kvm.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "vmm/kvm/cpuid.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vm.h"
#include "vmm/pmu/cpu_clock.h"
#include "vmm/pmu/vcpu_pmu.h"

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort();                                                                   \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LAPIC_LVT_PC  0x340
#define LVT_MASKED    0x10000
#define X2APIC_LVT_PC 0x834
#define DEBUGCTL      0x1d9
#define MISC_ENABLE   0x1a0

/* The state of the emulated KVM. */
static struct {
	struct kvm_lapic_state lapic;
	uint64_t debugctl;
	uint64_t interrupts;
	bool fails;
} kvm;

static uint32_t lvt(void)
{
	uint32_t value;

	memcpy(&value, kvm.lapic.regs + LAPIC_LVT_PC, sizeof(value));
	return value;
}

static int access_msr(struct kvm_msrs *msrs, bool set)
{
	struct kvm_msr_entry *entry = &msrs->entries[0];

	CHECK(msrs->nmsrs == 1);
	CHECK(entry->index == DEBUGCTL || entry->index == X2APIC_LVT_PC ||
	      entry->index == MISC_ENABLE);
	if (kvm.fails)
		return 0;
	if (set && entry->index == DEBUGCTL)
		kvm.debugctl = entry->data;
	if (set && entry->index == X2APIC_LVT_PC)
		memcpy(kvm.lapic.regs + LAPIC_LVT_PC, &entry->data, sizeof(uint32_t));
	if (!set)
		entry->data = kvm.debugctl;
	return 1;
}

/* Replaces the C library's function. */
int ioctl(int fd, unsigned long request, ...)
{
	void *argument;
	va_list list;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);
	if (kvm.fails &&
	    (request == KVM_GET_LAPIC || request == KVM_SET_LAPIC || request == KVM_NMI)) {
		errno = EIO;
		return -1;
	}
	switch (request) {
	case KVM_NMI:
	case KVM_SIGNAL_MSI:
		kvm.interrupts++;
		return 0;
	case KVM_GET_TSC_KHZ:
		return 2000000;
	case KVM_CHECK_EXTENSION:
		return 1;
	case KVM_GET_LAPIC:
		memcpy(argument, &kvm.lapic, sizeof(kvm.lapic));
		return 0;
	case KVM_SET_LAPIC:
		memcpy(&kvm.lapic, argument, sizeof(kvm.lapic));
		return 0;
	case KVM_GET_MSRS:
		return access_msr(argument, false);
	case KVM_SET_MSRS:
		return access_msr(argument, true);
	default:
		return 0;
	}
}

/*
 * Replaces cpu_clock.c: time advances with each call, so that an input behaves the same in each
 * run.
 */
static uint64_t time_now; /* ns */

void cpu_clock_open(struct cpu_clock *clock)
{
}

void cpu_clock_close(struct cpu_clock *clock)
{
}

uint64_t cpu_clock_now(const struct cpu_clock *clock)
{
	return time_now += 10000;
}

struct action {
	uint8_t kind;
	uint8_t index;
	uint64_t value;
} __attribute__((packed));

static const char *const vendors[] = { "GenuineIntel", "AuthenticAMD", "HygonGenuine",
				       "NeitherOfTwo" };

static void show_processor(struct cpuid_table *table, uint8_t which)
{
	struct kvm_cpuid_entry2 *leaf = &table->entries[0];

	memset(table, 0, sizeof(table->header) + 2 * sizeof(*leaf));
	table->header.nent = 2;
	memcpy(&leaf->ebx, vendors[which & 3], 4);
	memcpy(&leaf->edx, vendors[which & 3] + 4, 4);
	memcpy(&leaf->ecx, vendors[which & 3] + 8, 4);
	leaf[1].function = 1;
	leaf[1].eax = which & 4 ? 0x600f00 : 0x600; /* families 15H and 6 */
}

/* Maps INDEX to all filtered registers and some next to them, or to any register. */
static uint32_t msr_of(uint8_t index, uint64_t value)
{
	static const uint32_t first[] = { 0xc0,  0x185,      0x308,      0x345,
					  0x38c, 0x4c0,      0xc0010000, 0xc0010200,
					  0x1d9, 0xc0010008, 0xc000ffff, 0x833 };

	return index >> 4 < 12 ? first[index >> 4] + (index & 0xf) : (uint32_t)(value >> 32);
}

/* Exactly the events that were added are removed again. */
static void save_and_restore(struct vcpu *vcpu, const struct action *action)
{
	struct pmu_state state, changed, after;

	pmu_vcpu_save(vcpu, &state);
	CHECK(pmu_vcpu_restore(vcpu, &state, sizeof(state)) == 0);
	memcpy(&changed, &state, sizeof(state));
	((uint8_t *)&changed)[action->value % sizeof(state)] ^= action->index;
	/* No clock reaches a time that is far ahead. */
	changed.time = state.time;
	if (pmu_vcpu_restore(vcpu, &changed, sizeof(changed)) == 0)
		memcpy(&state, &changed, sizeof(state));
	pmu_vcpu_save(vcpu, &after);
	CHECK(memcmp(&after, &state, sizeof(state)) == 0);
}

static void set_lvt(uint64_t value)
{
	memcpy(kvm.lapic.regs + LAPIC_LVT_PC, &value, sizeof(uint32_t));
}

static void act(struct vcpu *vcpu, const struct action *action)
{
	const struct vcpu_pmu_operations *pmu = vcpu->handlers->pmu;
	uint64_t value;

	switch (action->kind % 8) {
	case 0:
	case 1:
		(void)pmu->write_msr(vcpu, msr_of(action->index, action->value), action->value);
		break;
	case 2:
		(void)pmu->read_msr(vcpu, msr_of(action->index, action->value), &value);
		break;
	case 3:
		(void)pmu_vcpu_read_counter(vcpu, (uint32_t)action->value, &value);
		break;
	case 4:
		set_lvt(action->value);
		vcpu->run->s.regs.sregs.apic_base = action->index << 8;
		break;
	case 5:
		save_and_restore(vcpu, action);
		break;
	case 6:
		pmu_vcpu_reset(vcpu);
		break;
	case 7:
		kvm.fails = action->index & 1;
		break;
	}
}

/* The guest may have exited between any two of its instructions. */
static void run(struct vcpu *vcpu, const uint8_t *data, size_t size)
{
	const struct vcpu_pmu_operations *pmu = vcpu->handlers->pmu;
	struct action action;
	bool masked;

	for (; size >= sizeof(action); data += sizeof(action), size -= sizeof(action)) {
		memcpy(&action, data, sizeof(action));
		masked = lvt() & LVT_MASKED;
		kvm.interrupts = 0;
		pmu->enter(vcpu);
		pmu->leave(vcpu);
		CHECK(kvm.interrupts <= !masked);
		act(vcpu, &action);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct vcpu_handlers handlers = { .pmu = &pmu_vcpu_emulated };
	static struct cpuid_table table;
	static struct kvm_run page;
	struct vm vm = { .cpus = 1 };
	struct vcpu vcpu = { .vm = &vm, .run = &page, .handlers = &handlers };
	int error;

	signal(VCPU_KICK_SIGNAL, SIG_IGN);
	memset(&kvm, 0, sizeof(kvm));
	time_now = 0;
	if (size == 0)
		return 0;
	pthread_mutex_init(&vm.irq_lock, NULL);
	vm.cpus = data[0] & 8 ? 2 : 1;
	show_processor(&table, data[0]);
	error = handlers.pmu->create(&vcpu, &table);
	CHECK(!error || (data[0] & 3) == 3);
	if (!error)
		run(&vcpu, data + 1, size - 1);
	handlers.pmu->destroy(&vcpu);
	pthread_mutex_destroy(&vm.irq_lock);
	return 0;
}
