// SPDX-License-Identifier: Apache-2.0
/*
 * Linux 5.4 as Ubuntu built it: the oldest kernel to be had. It has no BTF and no ORC tables, and its
 * functions keep frame pointers. Chains reach the entry, and the agent answers. Which process a sample is of
 * nobody says without BTF, so no program has a name, and none a wrong one.
 */
#include <stdio.h>
#include <string.h>

#include "tests/rig/remap_truth.h"
#include "tests/rig/rig.h"
#include "tests/rig/system_call_chains.h"

#define DIRECTORY "build/rig/old-kernel"
#define INITRD    "build/initrd/old-kernel.cpio"

static bool make_initrd(void)
{
	struct rig_result result;
	bool made;

	rig_run_here(&result, 300,
		     "tests/rig/initrd --kernel 5.4 --output " INITRD " build/rig/workload "
		     "build/rig/remap/{remap,alpha,beta,gamma,delta,one,two,three,brief}");
	made = !result.status;
	if (!made)
		FAIL_TEST("tests/rig/initrd: %s", result.errors);
	rig_result_free(&result);
	return made;
}

TEST(old_kernel, of_ubuntu_5_4_has_its_functions_and_callers)
{
	struct rig_result result;
	struct remap_truth truth;
	const char *kernel;

	RIG_REQUIRED();
	kernel = rig_kernel("5.4");
	if (!kernel || !make_initrd())
		return;
	rig_run(&result, 280,
		"d=$PWD/" DIRECTORY "; rm -rf $d; mkdir -p $d; "
		"HOME=$d build/kvmscope run --pmu off --agent --timeout 250 --mem 256M --cpus 2 "
		"--stack-time 100ms -F 499 -o $d/perf.data --kernel %s --initrd " INITRD
		" --append 'console=ttyS0 quiet panic=-1 pti=off "
		"kvmscope.run=workload+shares+4;remap+3' < /dev/null",
		kernel);
	printf("%s\n", result.errors);
	if (result.status || !strstr(result.output, "remap: mapped")) {
		FAIL_TEST("%s%s", result.output, result.errors);
		rig_result_free(&result);
		return;
	}
	CHECK(!strstr(result.errors, "agent did not answer"));
	rig_result_free(&result);
	system_call_chains_check("5.4", DIRECTORY);
	truth = remap_truth_read(DIRECTORY "/perf.data", DIRECTORY);
	CHECK_EQUAL(truth.wrong, 0);
	CHECK_EQUAL(truth.misnamed, 0);
}
