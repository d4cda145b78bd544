/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/remap_truth.h"

#include <stdio.h>
#include <string.h>

#include "tests/rig/perf_script.h"
#include "tests/unit/shim/test.h"

/*
 * From tests/rig/guest/remap.c and tests/rig/module.mk: pages, and offsets in them in units of 256
 * bytes.
 */
#define MAPPED_PAGE  0x600000000ull
#define PROGRAM_PAGE 0x401ull

const char *const remap_images[REMAP_IMAGES] = { NULL,  "alpha", "beta",  "gamma", "delta",
						 "one", "two",   "three", "brief" };

/* The image that has code at ADDRESS; 0: none of ours. */
static unsigned int image_at(unsigned long long address)
{
	unsigned int place = address >> 8 & 15;

	if (address >> 12 == MAPPED_PAGE && place >= 1 && place <= 4)
		return place;
	/* The workload's own code is on the same page, in the first and last units. */
	if (address >> 12 == PROGRAM_PAGE && place >= 5 && place < REMAP_IMAGES &&
	    (address & 255) < 6)
		return place;
	return 0;
}

static bool is_path_of(const char *path, const char *image)
{
	const char *slash = strrchr(path, '/');

	return slash && !strcmp(slash + 1, image);
}

static void count_function(struct remap_truth *truth, unsigned int image, const char *function)
{
	if (!strncmp(function, "spin_", 5) && !strcmp(function + 5, remap_images[image]))
		truth->functions++;
	else if (strcmp(function, "[unknown]") != 0)
		FAIL_TEST("perf calls a function of %s %s", remap_images[image], function);
}

/*
 * Other programs of the guest that are linked to the same address and may run their own code there.
 */
static bool is_at_same_address(const char *path)
{
	return is_path_of(path, "remap") || is_path_of(path, "busybox") ||
	       is_path_of(path, "kvmscope-agent");
}

static void count(struct remap_truth *truth, const char *comm, unsigned long long address,
		  const char *function, const char *path)
{
	unsigned int image = image_at(address);

	for (unsigned int i = 1; i < REMAP_IMAGES; i++)
		truth->of_path[i] += is_path_of(path, remap_images[i]);
	if (!image)
		return;
	if (!strcmp(path, "[unknown]")) {
		truth->unknown++;
	} else if (is_path_of(path, remap_images[image])) {
		truth->right++;
		truth->of_image[image]++;
		count_function(truth, image, function);
		if (image > 4)
			(*(strcmp(comm, remap_images[image]) ? &truth->misnamed : &truth->named))++;
	} else if (address >> 12 != PROGRAM_PAGE || !is_at_same_address(path)) {
		if (!truth->wrong++)
			printf("%s at %#llx was running, but is attributed to %s\n",
			       remap_images[image], address, path);
	}
}

/* Output of perf script -G -F comm,ip,sym,dso: "COMM ADDRESS FUNCTION (PATH)". */
static void read_line(void *context, char *line)
{
	char comm[64], function[256], path[1024];
	unsigned long long address;

	if (sscanf(line, " %63s %llx %255s (%1023[^)])", comm, &address, function, path) == 4)
		count(context, comm, address, function, path);
}

struct remap_truth remap_truth_read(const char *file, const char *home)
{
	struct remap_truth truth = { 0 };
	char command[512];

	snprintf(command, sizeof(command),
		 "HOME=$PWD/%s perf script -G -i %s -F comm,ip,sym,dso 2>/dev/null", home, file);
	each_line(command, read_line, &truth);
	return truth;
}
