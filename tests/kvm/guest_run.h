/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one of the test guests (tests/guests) in this process, on the local /dev/kvm, with the
 * machine that `kvmscope run` uses. Main thread.
 */
#ifndef KVMSCOPE_TESTS_KVM_GUEST_RUN_H
#define KVMSCOPE_TESTS_KVM_GUEST_RUN_H

#include <stdbool.h>

#include "tests/unit/shim/test.h"
#include "vmm/machine/machine.h"

#define GUEST_IMAGE             "build/guests/guest.elf"
#define GUEST_IMAGE_MULTIBOOT   "build/guests/guest-multiboot.elf"
#define GUEST_IMAGE_MULTIBOOT64 "build/guests/guest-multiboot64.elf"

#define GUEST_SECONDS_MAX 60

struct guest_run {
	const char *image; /* NULL: GUEST_IMAGE */
	enum boot_protocol protocol;
	const char *append; /* selects the program */
	const char *module_text;
	unsigned int cpus;    /* 0: 1 */
	uint64_t memory_size; /* 0: 64 MiB */
	bool resets;          /* allow any number of guest resets */
	unsigned int boots;   /* reset it until it has been started this often, however it ended */
	struct machine_hooks hooks;
	const struct vcpu_pmu_operations *pmu;
	struct machine_disk disk; /* path NULL: no disk */
	int agent_fd;             /* as in machine_options */

	int error;      /* of creating or starting the machine, or 0; then the following are
			 * valid */
	bool timed_out; /* the machine was stopped */
	struct machine_result result;
	char console[4096]; /* the beginning of its output */
};

/* True if /dev/kvm can be opened. */
bool guest_run_possible(void);

#define GUEST_REQUIRED()                                                                           \
	do {                                                                                       \
		if (!guest_run_possible())                                                         \
			SKIP("/dev/kvm cannot be opened");                                         \
	} while (0)

/* Runs it until it ends, at most GUEST_SECONDS_MAX. The results are in RUN. */
void guest_run(struct guest_run *run);

/*
 * Returns the value written to the debug-exit port. If the guest ended otherwise, the check fails
 * and -1 is returned.
 */
int guest_run_value(struct guest_run *run);

#endif
