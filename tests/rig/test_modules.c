// SPDX-License-Identifier: Apache-2.0
/*
 * Modules of Debian's kernel that are loaded the moment after another one was unloaded, into its place
 * (tests/rig/guest/modules.c). A sample's process tells which module was there: the truth, sample by sample.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/rig.h"

#define DATA "build/rig/modules.data"
#define HOME "build/rig/modules-home"

/* Enough to say that something was attributed; a machine that stands still gives fewer. */
#define ENOUGH 50

static const char *const names[] = { "md4", "michael_mic" };
/* Functions of each that its process runs begin so. */
static const char *const prefixes[] = { "md4_", "michael_" };
static const char *const images[] = { "([md4])", "([michael_mic])" };

struct tally {
	unsigned long of_image[2], of_function[2], untold[2], wrong;
};

static void count(struct tally *tally, unsigned int module, const char *function, const char *image)
{
	bool is_named = strcmp(function, "[unknown]") != 0 && strncmp(function, "0x", 2) != 0;
	bool is_right = !is_named || !strncmp(function, prefixes[module], strlen(prefixes[module]));

	if (!is_right || !strcmp(image, images[!module])) {
		if (!tally->wrong++)
			FAIL_TEST("%s was running, and is said to be %s %s", names[module], function, image);
		return;
	}
	tally->of_function[module] += is_named;
	tally->of_image[module] += !strcmp(image, images[module]);
	tally->untold[module] += !is_named && strcmp(image, images[module]) != 0;
}

/* "COMM ADDRESS FUNCTION (IMAGE)", the innermost frame of each sample; PAGE is the one of the shared place.
 */
static struct tally read_lines(const char *command, unsigned long long page)
{
	char line[4096], comm[64], function[512], image[1024];
	struct tally tally = { 0 };
	unsigned long long address;
	FILE *lines = popen(command, "r");

	while (lines && fgets(line, sizeof(line), lines)) {
		if (sscanf(line, " %63s %llx %511s %1023s", comm, &address, function, image) != 4 ||
		    (address & ~4095ull) != page)
			continue;
		for (unsigned int module = 0; module < 2; module++)
			if (!strcmp(comm, names[module]))
				count(&tally, module, function, image);
	}
	CHECK(lines && !pclose(lines));
	return tally;
}

static struct tally check(const char *who, const char *command, unsigned long long page)
{
	struct tally tally = read_lines(command, page);

	for (unsigned int module = 0; module < 2; module++)
		printf("%s: %s has %lu samples in its image, %lu in its functions, %lu are not told\n", who,
		       names[module], tally.of_image[module], tally.of_function[module],
		       tally.untold[module]);
	CHECK_EQUAL(tally.wrong, 0);
	return tally;
}

static const char *make_initrd(void)
{
	struct rig_result result;
	bool made;

	rig_run_here(&result, 60,
		     "tests/rig/initrd --kernel 6.1 --output build/initrd/modules.cpio --modules "
		     "'virtio_mmio virtio_console button algif_hash' build/rig/modules "
		     "build/cache/kernels/6.1/modules/lib/modules/*/kernel/crypto/{md4,michael_mic}.ko");
	made = !result.status;
	if (!made)
		FAIL_TEST("tests/rig/initrd: %s", result.errors);
	rig_result_free(&result);
	return made ? "build/initrd/modules.cpio" : NULL;
}

/* The page where all modules lay; 0: no profile came about, which is recorded, or they lay apart. */
static unsigned long long profile(const char *kernel, const char *initrd)
{
	unsigned long long page = 0, place;
	struct rig_result result;

	rig_run(&result, 240,
		"rm -rf " HOME " && mkdir -p " HOME " && HOME=$PWD/" HOME
		" build/kvmscope run --pmu off --kernel %s --initrd %s --mem 256M -F 999 -o " DATA
		" --append 'console=ttyS0 quiet kvmscope.run=modules+1+md4+michael_mic+md4+michael_mic'",
		kernel, initrd);
	if (result.status || !strstr(result.output, "modules: end"))
		FAIL_TEST("no profile was made: %.2000s%.2000s", result.output, result.errors);
	for (const char *at = result.output; (at = strstr(at, " at 0x")); at++) {
		place = strtoull(at + 4, NULL, 16);
		if (page && place != page) {
			test_skip(__FILE__, __LINE__,
				  "the modules lay at %#llx and %#llx: nothing to be told apart", page,
				  place);
			page = 0;
			break;
		}
		page = place;
	}
	rig_result_free(&result);
	return page;
}

TEST(module_truth, no_sample_is_in_a_module_that_had_its_place_before_or_behind)
{
	const char *kernel, *initrd;
	unsigned long long page;
	struct tally perfs, ours;

	RIG_REQUIRED();
	kernel = rig_kernel("6.1");
	initrd = make_initrd();
	page = kernel && initrd ? profile(kernel, initrd) : 0;
	if (!page)
		return;
	perfs = check("perf", "HOME=$PWD/" HOME " perf script -G -F comm,ip,sym,dso -i " DATA " 2>/dev/null",
		      page);
	ours = check("kvmscope",
		     "HOME=$PWD/" HOME " build/kvmscope export --format script -i " DATA
		     " | awk '/^[^\\t ]/ { comm = $1; next } comm { print comm, $0; comm = \"\" }'",
		     page);
	for (unsigned int module = 0; module < 2; module++) {
		CHECK_EQUAL(perfs.of_image[module], ours.of_image[module]);
		CHECK_EQUAL(perfs.of_function[module], ours.of_function[module]);
	}
	for (unsigned int module = 0; module < 2; module++)
		if (ours.of_image[module] < ENOUGH)
			SKIP("nothing is wrong, but this machine stands still too often: of %s %lu samples have their image, %d are needed",
			     names[module], ours.of_image[module], ENOUGH);
}
