/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's machine: VM, RAM with the kernel in it, devices on their bus, a thread for each vCPU
 * and one for the devices.
 *
 * machine_create() -> machine_start() -> machine_wait() -> machine_destroy(), all on the main
 * thread; machine_reset() leads back from machine_wait() to machine_start(). machine_stop() and
 * machine_power_button() may be called between create and destroy on any thread but the vCPUs'.
 */
#ifndef KVMSCOPE_MACHINE_MACHINE_H
#define KVMSCOPE_MACHINE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/error.h"
#include "vmm/boot/kernel_boot.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vm.h"

struct machine;

/* Callbacks of a profiler, on the vCPU's thread; each may be NULL. vcpu_start is called before
 * the vCPU first runs, vcpu_end after it last ran; the others are those of struct vcpu_handlers. */
struct machine_hooks {
	void (*vcpu_start)(void *context, struct vcpu *vcpu);
	void (*vcpu_end)(void *context, struct vcpu *vcpu);
	void (*sample)(void *context, struct vcpu *vcpu);
	void (*kicked)(void *context, struct vcpu *vcpu);
	void (*debug)(void *context, struct vcpu *vcpu);
	void *context;
};

struct machine_disk {
	const char *path; /* a raw image */
	bool read_only;
};

/* Pointers are not copied: their targets must live until machine_destroy(). */
struct machine_options {
	struct boot_options boot; /* the machine fills in cpus and rsdp */
	unsigned int cpus;        /* 1 to VM_CPUS_MAX */
	uint64_t memory_size;     /* bytes */
	bool resets;              /* enables machine_reset() */
	bool nested;              /* nested virtualization, if KVM has it */

	const struct machine_disk *disks;
	size_t disk_count;
	/* The port org.kvmscope.agent.0: a UNIX socket to listen on, or a connected stream
	 * socket (duplicated; 0: none). With neither, the port does not exist. */
	const char *agent_socket;
	int agent_fd;

	/* The serial port: descriptors are not owned, -1 for none. The filter is that of
	 * serial.h. */
	int console_output, console_input;
	size_t (*console_filter)(void *context, uint8_t *bytes, size_t size);
	void *console_filter_context;
	/* Each line printed on it, on the printing vCPU's thread; must be fast. May be NULL. */
	void (*console_line)(void *context, const char *line);
	void *console_line_context;

	/* The guest reports a kernel panic (vmm/devices/port_devices.h). On that vCPU's thread. */
	void (*panic)(void *context, bool crash_kernel);
	void *panic_context;

	struct machine_hooks hooks;
	const struct vcpu_pmu_operations *pmu; /* the guest's PMU, or NULL */
};

struct machine_result {
	enum vcpu_end end;
	uint32_t debug_exit_value;        /* with VCPU_END_DEBUG_EXIT */
	char message[ERROR_MESSAGE_SIZE]; /* the reason for ends that are errors, else "" */
};

/* Builds everything and loads the kernel; no vCPU runs yet. The errors of the parts, with a
 * message. */
int machine_create(struct machine **machine, const struct machine_options *options);

/* Starts the vCPU threads. After an error none runs. */
int machine_start(struct machine *machine);

/* Becomes readable when the guest has ended; for poll(). Owned by the machine. */
int machine_end_fd(const struct machine *machine);

/* Waits until the guest and all vCPU threads have ended. */
void machine_wait(struct machine *machine, struct machine_result *result);

/*
 * After machine_wait() with VCPU_END_RESET: restores the state after machine_create(), with empty
 * memory and the kernel loaded again from its file; then call machine_start(). Console, disks and
 * agent port stay connected. -ENOTSUP without machine_options.resets. After errors of loading or of
 * KVM the machine can only be destroyed.
 */
int machine_reset(struct machine *machine);

/* Ends the guest immediately with VCPU_END_STOPPED, unless it has ended. Does not wait. */
void machine_stop(struct machine *machine);

/* Presses the ACPI power button. False if the guest has not enabled its event and will not
 * react. */
bool machine_power_button(struct machine *machine);

/* The VM, for guest views and statistics. Owned by the machine. */
struct vm *machine_vm(struct machine *machine);

/* How the kernel was started; valid after machine_create(). */
const struct boot_start *machine_boot_start(const struct machine *machine);

/* Stops the guest, waits for all threads, and frees everything. NULL is a no-op. */
void machine_destroy(struct machine *machine);

#endif
