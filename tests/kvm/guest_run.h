/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one of the test guests (tests/guests) in this process, on the local
 * /dev/kvm, through the machine as `kvmscope run` uses it. Main thread.
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
	const char *image; /* GUEST_IMAGE where NULL */
	enum boot_protocol protocol;
	const char *append; /* names the program */
	const char *module_text;
	unsigned int cpus;    /* 0: 1 */
	uint64_t memory_size; /* 0: 64 MiB */
	bool resets;          /* as often as the guest does it */
	unsigned int boots;   /* reset it until it has been started so often, however it ended */
	struct machine_hooks hooks;
	const struct vcpu_pmu_operations *pmu;
	struct machine_disk disk; /* none where its path is NULL */
	int agent_fd;             /* as in machine_options */

	int error;      /* of creating or starting the machine, else 0 and: */
	bool timed_out; /* and was stopped */
	struct machine_result result;
	char console[4096]; /* the first of what it printed */
};

/* True if /dev/kvm can be opened. */
bool guest_run_possible(void);

#define GUEST_REQUIRED()                                                                           \
	do {                                                                                       \
		if (!guest_run_possible())                                                         \
			SKIP("/dev/kvm cannot be opened");                                         \
	} while (0)

/* Runs it to its end, GUEST_SECONDS_MAX at most; what it leaves is in RUN. */
void guest_run(struct guest_run *run);

/* The value at the debug-exit port; a failed check and -1 where the guest ended otherwise. */
int guest_run_value(struct guest_run *run);

#endif
