/* SPDX-License-Identifier: Apache-2.0 */
/* The probes, and how they report their results. */
#ifndef KVMSCOPE_MACHINE_PROBE_LIST_H
#define KVMSCOPE_MACHINE_PROBE_LIST_H

#include "vmm/machine/host_probe.h"

/* Fills state and detail of its row. Runs in a child process that may be killed at any time. */
typedef void probe(struct probe_row *row);

/* Sets state and detail of the row. */
void probe_report(struct probe_row *row, enum probe_state state, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* PROBE_NO with error_message(). */
void probe_report_error(struct probe_row *row);

/* Runs the probe in a child process, which is killed after TIMEOUT_MS. The row must be in memory
 * shared with children. */
void probe_run(probe *run, struct probe_row *row, int timeout_ms);

/* probe_kvm.c: /dev/kvm and the basic functions of a VM */
probe probe_kvm_device;
probe probe_kvm_flavour;
probe probe_kvm_irqchip;
probe probe_kvm_sync_regs;
probe probe_kvm_kick;
probe probe_msr_filter;

/* probe_cpu.c: how guest code runs */
probe probe_kernel_speed;
probe probe_kernel_instructions;
probe probe_system_call;

/* probe_debug.c: KVM_SET_GUEST_DEBUG */
probe probe_breakpoint;
probe probe_watchpoint;
probe probe_single_step;
probe probe_int3;

/* probe_pmu.c: performance counters of host and guest, perf's clock */
probe probe_host_pmu;
probe probe_shared_pmu;
probe probe_guest_pmu;
probe probe_emulated_pmu;
probe probe_cpu_clock;
probe probe_perf_permission;

/* probe_attach.c: requirements for profiling VMs of other programs */
probe probe_bpf;
probe probe_btf;
probe probe_process_memory;
probe probe_libvirt;
probe probe_libvirt_hooks;

#endif
