/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live migration of Debian's kernel on a standard KVM (kvm_amd): the migration tests of tests/kvm,
 * which migrate a guest of ours when they run on their own, in the rig.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rig/rig.h"

/* Runs the test TEST. */
static void move_debian(const char *test)
{
	const char *kernel = rig_kernel("6.1"), *initrd;
	struct rig_result result;

	if (!kernel)
		return;
	initrd = rig_initrd("6.1");
	rig_run(&result, 600,
		"KVMSCOPE_MIGRATION_KERNEL=%s KVMSCOPE_MIGRATION_INITRD=%s build/kvmscope-tests "
		"--gtest_filter=%s",
		kernel, initrd, test);
	printf("%s", result.output);
	CHECK_EQUAL(result.status, 0);
	if (!strstr(result.output, "[  PASSED  ] 1 test."))
		FAIL_TEST("the test did not run: %.4000s", result.errors);
	rig_result_free(&result);
}

TEST(migration, debian_is_followed_through_live_migration)
{
	RIG_REQUIRED();
	move_debian("attach_migration.a_guest_of_kvm_is_followed_out_and_in");
}

/* Two libvirtds, their hooks and two kvmscopeds. */
TEST(migration, debian_in_a_libvirt_domain_is_followed_through_live_migration)
{
	RIG_REQUIRED();
	if (!getenv("KVMSCOPE_MIGRATION_BY_LIBVIRT"))
		SKIP("this takes minutes: set KVMSCOPE_MIGRATION_BY_LIBVIRT to run it");
	move_debian("libvirt_migration.a_guest_of_kvm_is_followed_out_and_in");
}
