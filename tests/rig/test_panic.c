/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Debian's kernels report their panics by pvpanic, with the module that udev would load because of
 * our DSDT.
 */
#include "tests/rig/rig.h"

static void check_panic(const char *version)
{
	const char *kernel = rig_kernel(version), *initrd = rig_initrd(version);
	struct rig_result result;

	if (!kernel || !initrd)
		return;
	rig_run(&result, 280,
		"build/kvmscope run --pmu off --no-profile --timeout 250 --kernel %s --initrd %s "
		"--append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT
		" kvmscope.run=ls+/sys/bus/acpi/devices kvmscope.end=panic' "
		"< /dev/null",
		kernel, initrd);
	/* panic=-1 reboots immediately. */
	CHECK_EQUAL(result.status, 0);
	if (!strstr(result.output, "QEMU0001:00"))
		FAIL_TEST("Linux %s does not find the device:\n%s", version, result.output);
	if (!strstr(result.output, "sysrq triggered crash") ||
	    !strstr(result.errors, "kvmscope: warning: the guest's kernel panicked\n"))
		FAIL_TEST("the panic of Linux %s is not reported:\n%s\n%s", version, result.output,
			  result.errors);
	rig_result_free(&result);
}

TEST(panic, debian_kernels_report_a_panic_by_pvpanic)
{
	static const char *const versions[] = { "5.10", "7.2" };

	RIG_REQUIRED();
	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++)
		check_panic(versions[i]);
}
