/* SPDX-License-Identifier: Apache-2.0 */
/* Debian's kernels as the vmlinux inside of their bzImage: by PVH and by the 64-bit entry. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/rig.h"

static int count(const char *output, const char *text)
{
	int found = 0;

	for (const char *at = output; (at = strstr(at, text)); at++)
		found++;
	return found;
}

/* Boots by each of PROTOCOLS, which are separated by spaces. */
static void boots(const char *version, const char *protocols, int number)
{
	const char *kernel = rig_kernel(version), *initrd = rig_initrd(version);
	struct rig_result result;
	char image[64], unpack[256];

	RIG_REQUIRED();
	if (!kernel || !initrd)
		return;
	snprintf(image, sizeof(image), "build/rig/vmlinux-%s", version);
	/* outside of the rig, where this is fast */
	snprintf(unpack, sizeof(unpack), "mkdir -p build/rig && tests/rig/extract-vmlinux %s > %s",
		 kernel, image);
	REQUIRE_EQUAL(system(unpack), 0);
	rig_run(&result, 280,
		"for protocol in %s; do "
		"build/kvmscope run --pmu off --no-profile --timeout 120 --mem 256M --cpus 2 --protocol $protocol --kernel %s "
		"--initrd %s --append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT
		" kvmscope.run=echo+cpus+$(nproc)' < /dev/null || exit; "
		"done",
		protocols, image, initrd);
	CHECK(!remove(image));
	CHECK_EQUAL(result.status, 0);
	if (count(result.output, "cpus 2\r\n") != number ||
	    count(result.output, "guest-init: status 0") != number)
		FAIL_TEST("Linux %s by %s did not boot:\n%s\n%s", version, protocols, result.output,
			  result.errors);
	rig_result_free(&result);
}

TEST(boot, debian_vmlinux_boots_by_pvh_and_by_64_bit_entry)
{
	boots("6.1", "pvh elf64", 2);
}

TEST(boot, newest_debian_vmlinux_is_detected_as_pvh)
{
	boots("7.2", "auto", 1);
}

TEST(boot, oldest_debian_vmlinux_boots_by_64_bit_entry)
{
	boots("5.10", "elf64", 1);
}
