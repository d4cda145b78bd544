/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rig for tests: a machine with a standard KVM (Debian's kvm_amd under QEMU's TCG), in which a
 * test runs a command, usually build/kvmscope.
 *
 *	TEST(boot, debian_kernel_reaches_init)
 *	{
 *		struct rig_result result;
 *
 *		RIG_REQUIRED();
 *		rig_run(&result, 60,
 *			"build/kvmscope run --kernel %s --initrd %s --append console=ttyS0",
 *			rig_kernel("6.1"), rig_initrd("6.1"));
 *		CHECK_EQUAL(result.status, 0);
 *		CHECK(strstr(result.output, "guest-init: up"));
 *		rig_result_free(&result);
 *	}
 *
 * The command is a line for bash; it runs as root in the project's root with this machine's files
 * at their usual paths. Everything that it writes is lost, except below build/. Starting the rig
 * takes 4 to 5 s of one CPU, and code in it runs ten to fifty times slower than outside: put
 * related commands into one, and process files that it left in build/ outside.
 *
 * See tests/rig/rig for the rig itself, tests/rig/guest-init for the guests booted with
 * rig_initrd(). Main thread only.
 */
#ifndef KVMSCOPE_TESTS_RIG_RIG_H
#define KVMSCOPE_TESTS_RIG_RIG_H

#include <stddef.h>

#include "tests/unit/quick_boot.h"
#include "tests/unit/shim/test.h"

/* The kind of machine: see the options of tests/rig/rig with the same names. */
enum rig_kind {
	RIG_AMD,
	RIG_TRUSTED_TSC,  /* with the TSC as its clock source, for tests with the guest agent */
	RIG_UNSTABLE_TSC, /* with another clock source, and with a wrong TSC frequency */
	RIG_INTEL,        /* with kvm_intel, in Bochs */
};

struct rig_result {
	int status;   /* the command's exit status; 124 timed out, 125 the rig failed */
	char *output; /* its standard output, ends with '\0'; never NULL */
	char *errors; /* its standard error, ends with '\0'; never NULL */
};

/*
 * Runs the command made from FORMAT in the rig of the given KIND (rig_run(): RIG_AMD), and waits
 * for it at most TIMEOUT seconds from the start of the rig. RESULT is always filled; free it with
 * rig_result_free(). With status 125 and 124 the output is also printed, so that a failed check
 * shows the reason.
 */
void rig_run_on(struct rig_result *result, enum rig_kind kind, unsigned int timeout,
		const char *format, ...) __attribute__((format(printf, 4, 5)));
#define rig_run(result, timeout, ...) rig_run_on(result, RIG_AMD, timeout, __VA_ARGS__)

/*
 * The same on this machine instead of in the rig, ended by timeout(1). For perf and for our
 * scripts.
 */
void rig_run_here(struct rig_result *result, unsigned int timeout, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

void rig_result_free(struct rig_result *result);

/* The reason why the rig is unavailable here, NULL if it is available. Determined once. */
const char *rig_unavailable_reason(void);

/* The same for debug registers of the host and of L2 guests, which need our shim for QEMU. */
const char *rig_debug_registers_unavailable_reason(void);

/* The same for the rig with kvm_intel. */
const char *rig_intel_unavailable_reason(void);

/*
 * Debian's cloud kernel VERSION ("5.10", "6.1", "6.12", "7.2"), its other kernels "6.1-amd64",
 * "6.1-686" and "6.1-686-pae" (32 bits), or Ubuntu's "5.4": the path of its bzImage, or of 5.4's
 * vmlinux, fetched if needed. NULL if unavailable: the test has then been
 * skipped with the reason if the mirror does not have it, or has failed; return at once.
 */
const char *rig_kernel(const char *version);

/*
 * The initrd of tests/rig/guest-init and the workloads with VERSION's modules: its path, made if
 * needed.
 */
const char *rig_initrd(const char *version);

/*
 * Skips the test if the rig (or debug registers in it, or the one with kvm_intel) is unavailable.
 */
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
