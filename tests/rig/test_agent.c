// SPDX-License-Identifier: Apache-2.0
/*
 * The guest agent in Debian's kernel 5.10, which tells no build ids, so that the agent has to read
 * them, beside processes that exec, map and unmap different code at the same address in a loop
 * (tests/rig/guest/remap.c). Each image has its code at another place of the page, so that a sample's own
 * address tells which image was running: the truth, sample by sample.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/rig.h"

#define DATA "build/rig/agent.data"
#define HOME "build/rig/agent-home"
/* A home whose build-id cache has nothing. */
#define EMPTY_HOME "build/rig/agent-empty-home"

/* Of tests/rig/guest/remap.c and tests/rig/module.mk: pages, and places in them by 256 bytes. */
#define MAPPED_PAGE  0x600000000ull
#define PROGRAM_PAGE 0x401ull
static const char *const images[] = {
	NULL, "alpha", "beta", "gamma", "delta", "one", "two", "three", "brief"
};
#define IMAGES (sizeof(images) / sizeof(images[0]))
/* It lives 5 ms: its samples come to be looked at when it is long dead. */
#define BRIEF 8

/* Enough to say that something was attributed; a machine that stands still gives fewer. */
#define ENOUGH 100

struct tally {
	unsigned long right, wrong, untold;
	unsigned long of_image[IMAGES]; /* right ones */
	unsigned long of_path[IMAGES];  /* all that perf says are in it */
	unsigned long named, misnamed;  /* of programs, by the process's name */
	unsigned long functions;        /* right ones whose function perf names */
};

/* Which image has code at ADDRESS; 0: none of ours. */
static unsigned int image_at(unsigned long long address)
{
	unsigned int place = address >> 8 & 15;

	if (address >> 12 == MAPPED_PAGE && place >= 1 && place <= 4)
		return place;
	/* The workload's own code lies at the same page; there it is in the first and last places. */
	if (address >> 12 == PROGRAM_PAGE && place >= 5 && place < IMAGES && (address & 255) < 6)
		return place;
	return 0;
}

static bool is_path_of(const char *path, const char *image)
{
	const char *slash = strrchr(path, '/');

	return slash && !strcmp(slash + 1, image);
}

static void count(struct tally *tally, const char *comm, unsigned long long address, const char *function,
		  const char *path)
{
	unsigned int image = image_at(address);

	for (unsigned int i = 1; i < IMAGES; i++)
		tally->of_path[i] += is_path_of(path, images[i]);
	if (!image)
		return;
	if (!strcmp(path, "[unknown]")) {
		tally->untold++;
	} else if (is_path_of(path, images[image])) {
		tally->right++;
		tally->of_image[image]++;
		if (!strncmp(function, "spin_", 5) && !strcmp(function + 5, images[image]))
			tally->functions++;
		else if (strcmp(function, "[unknown]") != 0)
			FAIL_TEST("a function of %s is %s to perf", images[image], function);
		if (image > 4)
			(*(strcmp(comm, images[image]) ? &tally->misnamed : &tally->named))++;
	} else if (address >> 12 != PROGRAM_PAGE || !is_path_of(path, "remap")) {
		if (!tally->wrong++)
			FAIL_TEST("%s at %#llx was running, and is said to be in %s", images[image], address,
				  path);
	}
}

/* perf script -G -F comm,ip,sym,dso: "COMM ADDRESS FUNCTION (PATH)". */
static struct tally read_script(void)
{
	struct tally tally = { 0 };
	char line[4096], comm[64], function[256], path[1024];
	unsigned long long address;
	FILE *perf =
		popen("HOME=$PWD/" HOME " perf script -G -i " DATA " -F comm,ip,sym,dso 2>/dev/null", "r");

	while (perf && fgets(line, sizeof(line), perf))
		if (sscanf(line, " %63s %llx %255s (%1023[^)])", comm, &address, function, path) == 4)
			count(&tally, comm, address, function, path);
	if (perf)
		CHECK_EQUAL(pclose(perf), 0);
	return tally;
}

/*
 * kvmscope report counts the same samples for each image, and names its function by what the agent told of
 * the image (HOME), or by the guest's files: FILES/right/bin has them, FILES/wrong/bin others by the same
 * names. What was not told in time, and a mapping whose build id nobody could read, keep their addresses.
 */
#define FILES      "build/rig/agent-files"
#define FILES_HERE "../agent-files/wrong/bin" /* from build/rig/remap */

/* Samples of IMAGE in rows whose function's name matches PATTERN, by the build-id cache of HOME and FILES. */
static unsigned long count_function(const char *home, const char *files, const char *image,
				    const char *pattern)
{
	struct rig_result result;
	unsigned long samples;

	rig_run_here(
		&result, 60,
		"HOME=$PWD/%s build/kvmscope report -i " DATA " --sort symbol,image --symfs " FILES "/%s | "
		"awk '$NF == \"%s\" && $(NF - 1) ~ /%s/ { gsub(\",\", \"\", $2); n += $2; names = names \" \" $(NF - 1) } "
		"END { print n + 0 names }'",
		home, files, image, pattern);
	samples = strtoul(result.output, NULL, 10);
	if (strstr(result.output, "spin_") && !strstr(result.output, image))
		FAIL_TEST("a function of %s is called %s", image, result.output);
	rig_result_free(&result);
	return samples;
}

static void check_report(const struct tally *tally)
{
	unsigned long functions = 0;

	for (unsigned int image = 1; image < IMAGES; image++) {
		unsigned long named = count_function(EMPTY_HOME, "right", images[image], "^spin_");
		unsigned long told = count_function(HOME, "none", images[image], "^spin_");

		CHECK_EQUAL(named + count_function(EMPTY_HOME, "right", images[image], "^0x"),
			    tally->of_image[image]);
		CHECK(named >= tally->of_image[image] / 2);
		CHECK_EQUAL(count_function(EMPTY_HOME, "wrong", images[image], "^spin_"), 0);
		CHECK(told == named || !told);
		functions += told;
	}
	CHECK_EQUAL(tally->functions, functions);
	for (unsigned int image = 1; image < IMAGES; image++) {
		struct rig_result result;

		rig_run_here(&result, 60,
			     "HOME=$PWD/" HOME " build/kvmscope report -i " DATA " --sort image | "
			     "awk '$NF == \"%s\" { gsub(\",\", \"\", $2); print $2 }'",
			     images[image]);
		CHECK_EQUAL(strtoul(result.output, NULL, 10), tally->of_path[image]);
		rig_result_free(&result);
	}
}

static void check_tally(const struct tally *tally)
{
	printf("%lu samples in the right image, %lu in a wrong one, %lu not told; programs named %lu, otherwise %lu\n",
	       tally->right, tally->wrong, tally->untold, tally->named, tally->misnamed);
	CHECK_EQUAL(tally->wrong, 0);
	CHECK_EQUAL(tally->misnamed, 0);
	check_report(tally);
}

static const char *make_initrd(void)
{
	struct rig_result result;
	bool made;

	rig_run_here(&result, 60,
		     "mkdir -p " FILES "/right " FILES "/wrong/bin && ln -sfn ../../remap " FILES
		     "/right/bin && "
		     "(cd build/rig/remap && cp alpha " FILES_HERE "/beta && cp beta " FILES_HERE "/gamma && "
		     "cp gamma " FILES_HERE "/delta && cp delta " FILES_HERE "/alpha && cp one " FILES_HERE
		     "/two && "
		     "cp two " FILES_HERE "/three && cp three " FILES_HERE "/brief && cp brief " FILES_HERE
		     "/one) && "
		     "tests/rig/initrd --kernel 5.10 --output build/initrd/remap.cpio "
		     "build/rig/remap/{remap,alpha,beta,gamma,delta,one,two,three,brief}");
	made = !result.status;
	if (!made)
		FAIL_TEST("tests/rig/initrd: %s", result.errors);
	rig_result_free(&result);
	return made ? "build/initrd/remap.cpio" : NULL;
}

/* In the machine of the rig, as its kernel has a vsock that leads back to itself; one start does for both. */
#define VSOCK_TEST "guest_agent.reaches_the_host_by_vsock"
#define TRY_VSOCK                                                                                            \
	"for module in vsock vmw_vsock_virtio_transport_common vsock_loopback; do "                          \
	"insmod build/cache/kernels/6.1/modules/lib/modules/*/kernel/net/vmw_vsock/$module.ko; done; "       \
	"build/kvmscope-tests --gtest_filter=" VSOCK_TEST " >&2; "

/* False if no profile came about; the failure is recorded. */
static bool profile(const char *kernel, const char *initrd)
{
	struct rig_result result;
	bool made;

	rig_run(&result, 240,
		TRY_VSOCK
		"rm -rf " HOME " && mkdir -p " HOME " && HOME=$PWD/" HOME
		" build/kvmscope run --agent --kernel %s --initrd %s --mem 256M --from-line 'remap: begin' -F 999 "
		"-o " DATA " --append 'console=ttyS0 quiet kvmscope.run=remap+12;sleep+4'",
		kernel, initrd);
	made = !result.status && strstr(result.output, "remap: mapped");
	if (!made)
		FAIL_TEST("no profile was made: %.2000s%.2000s", result.output, result.errors);
	CHECK(!strstr(result.errors, "agent did not answer"));
	if (!strstr(result.errors, "[       OK ] " VSOCK_TEST))
		FAIL_TEST("the agent does not talk by vsock: %.2000s", result.errors);
	rig_result_free(&result);
	return made;
}

TEST(agent_truth, no_sample_is_in_a_wrong_image)
{
	const char *kernel, *initrd;
	struct tally tally = { 0 };

	RIG_REQUIRED();
	kernel = rig_kernel("5.10");
	initrd = make_initrd();
	if (!kernel || !initrd)
		return;
	for (int i = 0; i < 2 && tally.right < ENOUGH; i++) {
		if (!profile(kernel, initrd))
			return;
		tally = read_script();
		check_tally(&tally);
	}
	if (tally.right < ENOUGH)
		SKIP("nothing is wrong, but this machine stands still too often: %lu samples are attributed, %d are needed",
		     tally.right, ENOUGH);
	for (unsigned int image = 1; image < 5; image++)
		CHECK(tally.of_image[image] > 0);
	printf("%lu samples are of a program that lives 5 ms\n", tally.of_image[BRIEF]);
	CHECK(tally.of_image[BRIEF] > 0);
	CHECK(tally.untold < tally.right);
	printf("the agent told the functions of %lu of %lu samples\n", tally.functions, tally.right);
	if (!tally.functions)
		SKIP("nothing is wrong, but this machine stands still too often: no table of symbols came in time");
}
