/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated PMU on a standard KVM, kvm_amd, is AMD's, which auto selects; and Linux boots
 * without one.
 */
#include <string.h>

#include "tests/rig/rig.h"

/* The features in tests/guests/program_pmu.c that AMD's PMU has. */
#define OWN_GUESTS                                                                                                \
	"for part in registers count halt masked 'overflow pmis=20' 'overflow pmis=20 cpl=0' "                    \
	"'overflow pmis=20 by=vector' 'overflow pmis=20 apic=x2' 'overflow pmis=20 apic=x2 by=vector cpl=0'; do " \
	"build/kvmscope run --no-control --no-profile --timeout 100 --mem 64M "                                   \
	"--kernel build/guests/guest.elf --append \"program=pmu loops=100000000 pmu=$part\"; "                    \
	"[ $? = 0 ] || { echo \"$part: wrong\"; exit 1; }; done; "

#define LINUX                                                                                          \
	"build/kvmscope run --no-control --no-profile --pmu off --timeout 250 --mem 256M --kernel %s " \
	"--initrd %s --append 'console=ttyS0 quiet " QUICK_BOOT                                        \
	" kvmscope.run=dmesg+|+grep+-A1+Performance.Events'"

/*
 * AMD's registers have no CPUID bit that announces them: Linux has to probe them, and must find
 * none if the PMU is off. In one rig, which takes some seconds to start.
 */
TEST(pmu_rig, guests_have_an_amd_pmu_and_linux_boots_without_one)
{
	const char *kernel = rig_kernel("6.1"), *initrd = rig_initrd("6.1");
	struct rig_result result;

	RIG_DEBUG_REGISTERS_REQUIRED(); /* the shim also fixes INT3 */
	if (!kernel || !initrd)
		return;
	rig_run(&result, 500, OWN_GUESTS LINUX, kernel, initrd);
	if (result.status || !strstr(result.output, "PMU not available due to virtualization"))
		FAIL_TEST("exit status %d: %s%s", result.status, result.output, result.errors);
	rig_result_free(&result);
}
