/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine that a guest runs on, put together: VM, RAM with the kernel in
 * it, devices on their bus, a thread for each vCPU and one for the devices.
 *
 * machine_create() -> machine_start() -> machine_wait() -> machine_destroy(),
 * all on the main thread; machine_reset() leads from the third back to the second. machine_stop()
 * and machine_power_button() may be called on any thread but the vCPUs' between create and destroy.
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

/*
 * What a profiler wants to know. Each is called on the vCPU's thread and may
 * be NULL: vcpu_start before the vCPU first runs and vcpu_end after it last
 * ran, sample, kicked and debug as in struct vcpu_handlers.
 */
struct machine_hooks {
	void (*vcpu_start)(void *context, struct vcpu *vcpu);
	void (*vcpu_end)(void *context, struct vcpu *vcpu);
	void (*sample)(void *context, struct vcpu *vcpu);
	void (*kicked)(void *context, struct vcpu *vcpu);
	void (*debug)(void *context, struct vcpu *vcpu);
	void *context;
};

struct machine_disk {
	const char *path; /* of a raw image */
	bool read_only;
};

/* What it points to is not copied: it must live until machine_destroy(). */
struct machine_options {
	struct boot_options boot; /* cpus and rsdp are filled in by the machine */
	unsigned int cpus;        /* 1 to VM_CPUS_MAX */
	uint64_t memory_size;     /* bytes */
	bool resets;              /* machine_reset() will be possible */
	bool nested;              /* the guest may run guests of its own, as far as KVM lets it */

	const struct machine_disk *disks;
	size_t disk_count;
	/*
	 * The port org.kvmscope.agent.0: a UNIX socket to listen on, or else a
	 * connected stream socket (duplicated; 0 without). Neither: there is no such port.
	 */
	const char *agent_socket;
	int agent_fd;

	/* The serial port: descriptors are not owned, -1 for none. See serial.h for the filter. */
	int console_output, console_input;
	size_t (*console_filter)(void *context, uint8_t *bytes, size_t size);
	void *console_filter_context;
	/* Each line printed on it, on the vCPU's thread that printed it; must be quick. May be
	 * NULL. */
	void (*console_line)(void *context, const char *line);
	void *console_line_context;

	/* The guest says that its kernel panics (vmm/devices/pvpanic.h). On the vCPU's thread that
	 * does. */
	void (*panic)(void *context, bool crash_kernel);
	void *panic_context;

	struct machine_hooks hooks;
	const struct vcpu_pmu_operations *pmu; /* the guest's, NULL for none */
};

struct machine_result {
	enum vcpu_end end;
	uint32_t debug_exit_value;        /* with VCPU_END_DEBUG_EXIT */
	char message[ERROR_MESSAGE_SIZE]; /* why, with the ends that are errors; else "" */
};

/* Builds everything and loads the kernel; nothing runs yet. The errors of the parts, each with its
 * message.
 */
int machine_create(struct machine **machine, const struct machine_options *options);

/* Starts the vCPUs' threads. On an error none runs. */
int machine_start(struct machine *machine);

/* Readable from the moment on at which the guest has ended: for poll(). Owned by the machine. */
int machine_end_fd(const struct machine *machine);

/* Waits until the guest has ended and all vCPU threads with it. */
void machine_wait(struct machine *machine, struct machine_result *result);

/*
 * After machine_wait() with VCPU_END_RESET: the machine becomes as machine_create() made it, with
 * empty memory and the kernel loaded anew from its file; machine_start() starts it. What is
 * connected to it stays so: console, disks, the agent's port. -ENOTSUP without
 * machine_options.resets, and the errors of loading and of KVM, after which it can only be
 * destroyed.
 */
int machine_reset(struct machine *machine);

/* Ends the guest where it stands: VCPU_END_STOPPED, unless it has ended already. Returns at once.
 */
void machine_stop(struct machine *machine);

/* Presses the ACPI power button. False where the guest has not asked for its event: nobody will
 * react. */
bool machine_power_button(struct machine *machine);

/* The VM, for guest views and statistics. Owned by the machine. */
struct vm *machine_vm(struct machine *machine);

/* How the kernel was started; valid after machine_create(). */
const struct boot_start *machine_boot_start(const struct machine *machine);

/* Stops, waits for what still runs, and frees all; works on NULL. */
void machine_destroy(struct machine *machine);

#endif
