// SPDX-License-Identifier: Apache-2.0
/*
 * Live migration of Debian's kernel on a standard KVM (kvm_amd): the test of migration (tests/kvm), which
 * moves a guest of our own where it runs by itself, in the rig. libvirt's is too slow there.
 */
#include <stdio.h>
#include <string.h>

#include "tests/rig/rig.h"

#define TESTS "attach_migration.*"

TEST(migration, debian_is_followed_out_and_in)
{
	const char *kernel, *initrd;
	struct rig_result result;

	RIG_REQUIRED();
	kernel = rig_kernel("6.1");
	if (!kernel)
		return;
	initrd = rig_initrd("6.1");
	rig_run(&result, 600,
		"KVMSCOPE_MIGRATION_KERNEL=%s KVMSCOPE_MIGRATION_INITRD=%s build/kvmscope-tests "
		"--gtest_filter=" TESTS,
		kernel, initrd);
	printf("%s", result.output);
	CHECK_EQUAL(result.status, 0);
	if (!strstr(result.output, "[  PASSED  ] 1 test."))
		FAIL_TEST("it was not run: %.4000s", result.errors);
	rig_result_free(&result);
}
