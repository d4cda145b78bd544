/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest agent in Debian's kernel 5.10, whose events have no build IDs, so that the agent has to
 * read them, with processes that exec, map and unmap different code at the same address in a loop
 * (tests/rig/guest/remap.c). Each image has its code at a different offset in the page, so a
 * sample's own address identifies the running image.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rig/remap_truth.h"
#include "tests/rig/rig.h"

#define DATA          "build/rig/agent.data"
#define DATA_UNSTABLE "build/rig/agent-unstable.data"
#define HOME          "build/rig/agent-home"
/* A home with an empty build-id cache. */
#define EMPTY_HOME "build/rig/agent-empty-home"

/* Enough to show that samples are attributed; a stalling machine has fewer. */
#define ENOUGH 100

/*
 * kvmscope report counts the same samples for each image, and symbolizes them from the agent's data
 * (HOME), or from the guest's files: FILES/right/bin has them, FILES/wrong/bin has others with the
 * same names. Samples whose mapping was reported too late, or whose build ID could not be read,
 * keep their addresses.
 */
#define FILES      "build/rig/agent-files"
#define FILES_HERE "../agent-files/wrong/bin" /* from build/rig/remap */

/*
 * Samples of IMAGE in rows whose function matches PATTERN, with the build-id cache of HOME and
 * FILES.
 */
static unsigned long count_function(const char *home, const char *files, const char *image,
				    const char *pattern)
{
	struct rig_result result;
	unsigned long samples;

	rig_run_here(
		&result, 300,
		"set -o pipefail; HOME=$PWD/%s build/kvmscope report -i " DATA
		" --sort symbol,image --symfs " FILES "/%s | "
		"awk '$NF == \"%s\" && $(NF - 1) ~ /%s/ { gsub(\",\", \"\", $2); n += $2; names = names \" \" $(NF - 1) } "
		"END { print n + 0 names }'",
		home, files, image, pattern);
	CHECK_EQUAL(result.status, 0);
	samples = strtoul(result.output, NULL, 10);
	if (strstr(result.output, "spin_") && !strstr(result.output, image))
		FAIL_TEST("a function of %s has the symbol %s", image, result.output);
	rig_result_free(&result);
	return samples;
}

static void check_report(const struct remap_truth *tally)
{
	unsigned long functions = 0;

	for (unsigned int image = 1; image < REMAP_IMAGES; image++) {
		unsigned long named =
			count_function(EMPTY_HOME, "right", remap_images[image], "^spin_");
		unsigned long symbolized =
			count_function(HOME, "none", remap_images[image], "^spin_");

		CHECK_EQUAL(named + count_function(EMPTY_HOME, "right", remap_images[image], "^0x"),
			    tally->of_image[image]);
		CHECK(named >= tally->of_image[image] / 2);
		CHECK_EQUAL(count_function(EMPTY_HOME, "wrong", remap_images[image], "^spin_"), 0);
		CHECK(symbolized == named || !symbolized);
		functions += symbolized;
	}
	CHECK_EQUAL(tally->functions, functions);
	for (unsigned int image = 1; image < REMAP_IMAGES; image++) {
		struct rig_result result;

		rig_run_here(&result, 300,
			     "HOME=$PWD/" HOME " build/kvmscope report -i " DATA " --sort image | "
			     "awk '$NF == \"%s\" { gsub(\",\", \"\", $2); print $2 }'",
			     remap_images[image]);
		CHECK_EQUAL(strtoul(result.output, NULL, 10), tally->of_path[image]);
		rig_result_free(&result);
	}
}

static void check_samples(const struct remap_truth *tally)
{
	printf("%lu samples in the right image, %lu in a wrong one, %lu unknown; programs with the right name %lu, a wrong one %lu\n",
	       tally->right, tally->wrong, tally->unknown, tally->named, tally->misnamed);
	CHECK_EQUAL(tally->misnamed, 0);
}

static const char *make_initrd(void)
{
	struct rig_result result;
	bool made;

	rig_run_here(&result, 300,
		     "mkdir -p " FILES "/right " FILES "/wrong/bin " FILES "/none && rm -rf " FILES
		     "/right/bin && cp -al build/rig/remap " FILES "/right/bin && "
		     "(cd build/rig/remap && cp alpha " FILES_HERE "/beta && cp beta " FILES_HERE
		     "/gamma && "
		     "cp gamma " FILES_HERE "/delta && cp delta " FILES_HERE
		     "/alpha && cp one " FILES_HERE "/two && "
		     "cp two " FILES_HERE "/three && cp three " FILES_HERE
		     "/brief && cp brief " FILES_HERE "/one) && "
		     "tests/rig/initrd --kernel 5.10 --output build/initrd/remap.cpio "
		     "build/rig/remap/{remap,alpha,beta,gamma,delta,one,two,three,brief}");
	made = !result.status;
	if (!made)
		FAIL_TEST("tests/rig/initrd: %s", result.errors);
	rig_result_free(&result);
	return made ? "build/initrd/remap.cpio" : NULL;
}

static const struct host {
	enum rig_kind kind;
	const char *data;
	int seconds;
	const char *said; /* clock source */
} host = { RIG_TRUSTED_TSC, DATA, 10, " by the TSC" },
  unstable_host = { RIG_UNSTABLE_TSC, DATA_UNSTABLE, 8, "clock source is not the TSC" };

/* False if there is no profile, which is recorded as a failure. */
static bool profile(const struct host *on, const char *kernel, const char *initrd)
{
	struct rig_result result;
	bool made;

	rig_run_on(
		&result, on->kind, 240,
		"rm -rf " HOME " && mkdir -p " HOME " && HOME=$PWD/" HOME
		" build/kvmscope run --sampler kick -v --pmu off --agent --kernel %s --initrd %s --mem 256M --from-line 'remap: begin' -F 999 "
		"-o %s --append 'console=ttyS0 quiet " QUICK_BOOT " kvmscope.run=remap+%d;sleep+4'",
		kernel, initrd, on->data, on->seconds);
	made = !result.status && strstr(result.output, "remap: mapped");
	if (!made)
		FAIL_TEST("there is no profile: %.2000s%.2000s", result.output, result.errors);
	CHECK(!strstr(result.errors, "agent did not answer"));
	CHECK(strstr(result.errors, on->said) != NULL);
	rig_result_free(&result);
	return made;
}

static bool enough(const struct remap_truth *tally)
{
	return tally->right >= ENOUGH && tally->of_image[REMAP_BRIEF];
}

TEST(agent_truth, no_sample_is_attributed_to_a_wrong_image)
{
	const char *kernel, *initrd;
	struct remap_truth tally = { 0 };

	RIG_REQUIRED();
	kernel = rig_kernel("5.10");
	initrd = make_initrd();
	if (!kernel || !initrd)
		return;
	for (int i = 0; i < 2 && !enough(&tally); i++) {
		if (!profile(&host, kernel, initrd))
			return;
		tally = remap_truth_read(DATA, HOME);
		check_samples(&tally);
		CHECK_EQUAL(tally.wrong, 0);
		check_report(&tally);
	}
	if (!enough(&tally))
		SKIP("this machine stalls too often: only %lu samples are attributed (%d are needed), %lu of them to the program that runs for 5 ms",
		     tally.right, ENOUGH, tally.of_image[REMAP_BRIEF]);
	for (unsigned int image = 1; image < 5; image++)
		CHECK(tally.of_image[image] > 0);
	printf("%lu samples are of a program that runs for 5 ms\n", tally.of_image[REMAP_BRIEF]);
	CHECK(tally.unknown < tally.right);
	printf("the agent symbolized %lu of %lu samples\n", tally.functions, tally.right);
	if (!tally.functions)
		SKIP("this machine stalls too often: no symbol table arrived in time");
}

/*
 * The guest's clock lags by half of the time since KVM last entered it, and is correct when it is
 * read. The allowance for that is exceeded if the guest runs for 40 ms, on a stalling machine;
 * without the allowance one sample in a hundred would be wrong.
 */
TEST(agent_truth, samples_have_the_right_image_if_the_host_clock_is_not_the_tsc)
{
	const char *kernel, *initrd;
	struct remap_truth tally;

	RIG_REQUIRED();
	kernel = rig_kernel("5.10");
	initrd = make_initrd();
	if (!kernel || !initrd || !profile(&unstable_host, kernel, initrd))
		return;
	tally = remap_truth_read(DATA_UNSTABLE, HOME);
	check_samples(&tally);
	CHECK(200 * tally.wrong <= tally.right + 199);
	if (!tally.right)
		SKIP("this machine stalls too often: no sample is attributed");
}

/*
 * The agent and the host side on one machine: the test needs a kernel whose vsock is not in use,
 * which this machine may not have. An emulated machine has one, without a KVM in it.
 */
TEST(agent_vsock, agent_connects_and_reconnects_to_the_host)
{
	struct rig_result result;
	const char *kernel;

	RIG_REQUIRED();
	kernel = rig_kernel("6.1");
	if (!kernel)
		return;
	rig_run_here(
		&result, 300,
		"tests/rig/initrd --kernel 6.1 --init tests/rig/vsock-init --output build/initrd/vsock.cpio "
		"--modules 'vsock vmw_vsock_virtio_transport_common vsock_loopback' build/kvmscope-tests "
		"build/agent/kvmscope-agent && "
		"qemu-system-x86_64 -accel tcg -m 512 -nodefaults -no-user-config -display none -serial stdio "
		"-no-reboot -kernel %s -initrd build/initrd/vsock.cpio "
		"-append 'console=ttyS0 quiet panic=-1 mitigations=off " QUICK_BOOT "' < /dev/null",
		kernel);
	if (result.status || !strstr(result.output, "[  PASSED  ] 2 tests.") ||
	    strstr(result.output, "SKIPPED"))
		FAIL_TEST("%s\n%s", result.output, result.errors);
	rig_result_free(&result);
}

#define VSOCK "build/rig/vsock"

/* With a VM's device: in the rig's machine, whose kernel has vhost. */
TEST(agent_vsock, agent_reports_from_a_qemu_guest_with_a_vhost_device)
{
	struct rig_result result;
	const char *kernel;
	json_t *summary;

	RIG_REQUIRED();
	kernel = rig_kernel("6.1");
	if (!kernel)
		return;
	rig_run_here(&result, 300,
		     "rm -rf " VSOCK "; tests/rig/initrd --output build/initrd/vhost-vsock.cpio "
		     "--modules 'virtio_pci vmw_vsock_virtio_transport' "
		     "build/agent/kvmscope-agent build/rig/remap/booted");
	CHECK_EQUAL(result.status, 0);
	rig_result_free(&result);
	rig_run_on(&result, RIG_TRUSTED_TSC, 200,
		   "tests/rig/vsock-host " VSOCK " %s build/initrd/vhost-vsock.cpio", kernel);
	if (result.status)
		FAIL_TEST("%s%s", result.output, result.errors);
	rig_result_free(&result);
	summary = json_load_file(VSOCK "/json", 0, NULL);
	/* A reply that is too late belongs to an earlier request. */
	CHECK(json_integer_value(json_object_get(json_object_get(summary, "agent"), "sessions")) >=
	      1);
	json_decref(summary);
	rig_run_here(
		&result, 300,
		"HOME=$PWD/" VSOCK " build/kvmscope report -i " VSOCK "/data --sort comm,symbol | "
		"awk '$(NF - 1) == \"booted\" && $NF == \"spin_booted\" { gsub(\",\", \"\", $2); n += $2 } "
		"END { print n + 0 }'");
	printf("%s samples are symbolized\n", result.output);
	CHECK(strtoul(result.output, NULL, 10) >= ENOUGH);
	rig_result_free(&result);
}
