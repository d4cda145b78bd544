// SPDX-License-Identifier: Apache-2.0
/* Debian's kernels as the vmlinux that is packed in their bzImage: by PVH and by the 64-bit entry. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/rig.h"

static void boots(const char *version, const char *protocol)
{
	const char *kernel = rig_kernel(version), *initrd = rig_initrd(version);
	struct rig_result result;
	char image[64], unpack[256];

	RIG_REQUIRED();
	if (!kernel || !initrd)
		return;
	snprintf(image, sizeof(image), "build/rig/vmlinux-%s-%s", version, protocol);
	/* outside of the rig, where it is fast */
	snprintf(unpack, sizeof(unpack), "mkdir -p build/rig && tests/rig/extract-vmlinux %s > %s", kernel,
		 image);
	REQUIRE_EQUAL(system(unpack), 0);
	rig_run(&result, 120,
		"build/kvmscope run --pmu off --no-profile --timeout 90 --mem 256M --cpus 2 --protocol %s --kernel %s "
		"--initrd %s --append 'console=ttyS0 quiet panic=-1 kvmscope.run=echo+cpus+$(nproc)' < /dev/null",
		protocol, image, initrd);
	CHECK(!remove(image));
	CHECK_EQUAL(result.status, 0);
	if (!strstr(result.output, "cpus 2") || !strstr(result.output, "guest-init: status 0"))
		FAIL_TEST("Linux %s by %s did not come up:\n%s\n%s", version, protocol, result.output,
			  result.errors);
	rig_result_free(&result);
}

TEST(boot, debian_vmlinux_by_pvh)
{
	boots("6.1", "pvh");
}

TEST(boot, debian_vmlinux_by_64_bit_entry)
{
	boots("6.1", "elf64");
}

TEST(boot, newest_debian_vmlinux_is_found_to_be_pvh)
{
	boots("7.2", "auto");
}

TEST(boot, oldest_debian_vmlinux_by_64_bit_entry)
{
	boots("5.10", "elf64");
}
