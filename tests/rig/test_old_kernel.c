// SPDX-License-Identifier: Apache-2.0
/*
 * Linux 5.4 as Ubuntu built it: the oldest kernel to be had. It has no BTF and no ORC tables, and its
 * functions keep frame pointers. Its symbols are those that it says it has, chains reach the entry, and the
 * agent answers. Which process a sample is of nobody says without BTF, so no program has a
 * name, and none a wrong one.
 */
#include <stdio.h>
#include <string.h>

#include "tests/rig/remap_truth.h"
#include "tests/rig/rig.h"
#include "tests/rig/system_call_chains.h"

#define DIRECTORY "build/rig/old-kernel"
#define INITRD    "build/initrd/old-kernel.cpio"
/* Functions in the lines of /proc/kallsyms, which are in the image; there are no modules, and no KASLR. */
#define FUNCTION "^ffffffff8[0-2][0-9a-f]*.[tTwW].[^.]"

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

/* What was read of memory is what the guest has SAID. */
static void check_symbols(const char *said)
{
	struct rig_result result;

	rig_run_here(&result, 60,
		     "export LC_ALL=C; grep -h '" FUNCTION "' " DIRECTORY
		     "/.debug/*kcore*/*/*/kallsyms > " DIRECTORY "/functions; "
		     "[ $(wc -l < " DIRECTORY "/functions) -gt 30000 ] && sort -u " DIRECTORY
		     "/functions | md5sum | cut -c 1-32 | tr -d '\\n'");
	if (strlen(result.output) != 32 || !strstr(said, result.output))
		FAIL_TEST("the functions of the guest's memory, %s, are not those that it has: %s",
			  result.output, said);
	rig_result_free(&result);
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
	rig_run_trusted_tsc(&result, 280,
			    "d=$PWD/" DIRECTORY "; rm -rf $d; mkdir -p $d; "
			    "HOME=$d build/kvmscope run --pmu off --agent --timeout 250 --mem 256M --cpus 2 "
			    "--stack-time 100ms -F 499 -o $d/perf.data --kernel %s --initrd " INITRD
			    " --append 'console=ttyS0 quiet panic=-1 pti=off "
			    "kvmscope.run=grep+" FUNCTION
			    "+/proc/kallsyms|sort+-u|md5sum;workload+shares+4;remap+3' < /dev/null",
			    kernel);
	printf("%s\n", result.errors);
	if (result.status || !strstr(result.output, "remap: mapped")) {
		FAIL_TEST("%s%s", result.output, result.errors);
		rig_result_free(&result);
		return;
	}
	CHECK(!strstr(result.errors, "agent did not answer"));
	check_symbols(result.output);
	rig_result_free(&result);
	system_call_chains_check("5.4", DIRECTORY);
	truth = remap_truth_read(DIRECTORY "/perf.data", DIRECTORY);
	CHECK_EQUAL(truth.wrong, 0);
	CHECK_EQUAL(truth.misnamed, 0);
}
