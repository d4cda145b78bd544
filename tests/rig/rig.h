/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rig for tests: a machine with a standard KVM (Debian's kvm_amd under
 * QEMU's TCG), in which a test runs a command, usually build/kvmscope.
 *
 *	TEST(boot, debian_kernel_reaches_init)
 *	{
 *		struct rig_result result;
 *
 *		RIG_REQUIRED();
 *		rig_run(&result, 60, "build/kvmscope run --kernel %s --initrd %s --append
 *console=ttyS0", rig_kernel("6.1"), rig_initrd("6.1")); CHECK_EQUAL(result.status, 0);
 *		CHECK(strstr(result.output, "guest-init: up"));
 *		rig_result_free(&result);
 *	}
 *
 * The command is a line for bash; it runs in the project's root with this
 * machine's files at their usual paths, as root. What it writes is lost, but
 * for what is below build/. Starting the rig takes 4 to 5 s of one CPU, and
 * code in it runs ten to fifty times slower than outside: put what belongs
 * together into one command, and read files that it left in build/ outside.
 *
 * See tests/rig/rig for what the rig is, tests/rig/guest-init for what guests
 * booted with rig_initrd() do. Main thread only.
 */
#ifndef KVMSCOPE_TESTS_RIG_RIG_H
#define KVMSCOPE_TESTS_RIG_RIG_H

#include <stddef.h>

#include "tests/unit/quick_boot.h"
#include "tests/unit/shim/test.h"

/* What the machine is: see the options of tests/rig/rig, which are called the same. */
enum rig_kind {
	RIG_AMD,
	RIG_TRUSTED_TSC,  /* with the TSC as its clock, for tests with the guest agent */
	RIG_UNSTABLE_TSC, /* without, and with its rate wrong */
	RIG_INTEL,        /* with kvm_intel, in Bochs */
};

struct rig_result {
	int status;   /* the command's exit status; 124 timed out, 125 the rig failed */
	char *output; /* its standard output, ends with '\0'; never NULL */
	char *errors; /* its standard error, ends with '\0'; never NULL */
};

/*
 * Runs the command that FORMAT makes in the rig of that KIND (rig_run(): of
 * RIG_AMD), and waits for it, TIMEOUT seconds at most from the start of the rig.
 * RESULT is always filled; free with rig_result_free(). On status 125 and 124
 * what is known is also printed, so that a failed check shows why.
 */
void rig_run_on(struct rig_result *result, enum rig_kind kind, unsigned int timeout,
		const char *format, ...) __attribute__((format(printf, 4, 5)));
#define rig_run(result, timeout, ...) rig_run_on(result, RIG_AMD, timeout, __VA_ARGS__)

/* The same on this machine instead of in the rig; timeout(1) ends it. For perf and for scripts of
 * ours. */
void rig_run_here(struct rig_result *result, unsigned int timeout, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

void rig_result_free(struct rig_result *result);

/* Why the rig can not be had here, NULL if it can. Asked once. */
const char *rig_unavailable_reason(void);

/* The same for host and guest debug registers of L2 guests, which need our shim for QEMU. */
const char *rig_debug_registers_unavailable_reason(void);

/* The same for the rig with kvm_intel. */
const char *rig_intel_unavailable_reason(void);

/*
 * Debian's cloud kernel VERSION ("5.10", "6.1", "6.12", "7.2"), or Ubuntu's "5.4": the path of its
 * bzImage, of 5.4 of its vmlinux, fetched if need be. NULL where it can not be had: the test is
 * then skipped with the reason if the mirror has it not, else failed; return at once.
 */
const char *rig_kernel(const char *version);

/* The initrd of tests/rig/guest-init and the workloads with VERSION's modules: its path, made if
 * need be. */
const char *rig_initrd(const char *version);

/* Ends the test as skipped where the rig (or debug registers in it, or the one with kvm_intel) is
 * not to be had. */
#define RIG_REQUIRED()                                                                             \
	do {                                                                                       \
		if (rig_unavailable_reason())                                                      \
			SKIP("no rig: %s", rig_unavailable_reason());                              \
	} while (0)
#define RIG_DEBUG_REGISTERS_REQUIRED()                                                             \
	do {                                                                                       \
		if (rig_debug_registers_unavailable_reason())                                      \
			SKIP("no debug registers in the rig: %s",                                  \
			     rig_debug_registers_unavailable_reason());                            \
	} while (0)
#define RIG_INTEL_REQUIRED()                                                                       \
	do {                                                                                       \
		if (rig_intel_unavailable_reason())                                                \
			SKIP("no Intel rig: %s", rig_intel_unavailable_reason());                  \
	} while (0)

#endif
