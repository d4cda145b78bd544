/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stuck vCPUs on a standard KVM: a kernel that spins with interrupts off is reported; a busy and an
 * idle Linux are not.
 */
#include "tests/rig/rig.h"

#define RUN                                                                                        \
	"build/kvmscope run --sampler kick --no-buildid-cache --no-control -o /tmp/perf.data --flight 1s -F 1000 "

TEST(watchdog_rig, only_a_spinning_kernel_is_reported_as_stuck)
{
	const char *kernel = rig_kernel("6.1"), *initrd = rig_initrd("6.1");
	struct rig_result result;

	RIG_REQUIRED();
	if (!kernel || !initrd)
		return;
	rig_run(&result, 240,
		RUN "--trigger stuck=500 --kernel build/guests/guest.elf --mem 64M --duration 4 "
		    "--append 'program=spin cpl=0' < /dev/null; echo first $?;" RUN
		    "--trigger stuck=2000 --cpus 2 --kernel %s --initrd %s --timeout 200 "
		    "--append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT
		    " kvmscope.run=sleep+2;timeout+4+yes>/dev/null' "
		    "< /dev/null; echo second $?",
		kernel, initrd);
	if (!strstr(result.output, "first 0\n") || !strstr(result.errors, "before stuck vCPU\n"))
		FAIL_TEST("the spinning guest:\n%s\n%s", result.output, result.errors);
	if (!strstr(result.output, "second 0\n") || !strstr(result.output, "guest-init: up") ||
	    !strstr(result.errors, "nothing triggered one"))
		FAIL_TEST("Linux:\n%s\n%s", result.output, result.errors);
	rig_result_free(&result);
}
