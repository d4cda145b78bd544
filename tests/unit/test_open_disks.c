// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/open_disks.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"

/* Of this process. */
static bool is_found(const char *path)
{
	struct open_disks *disks = malloc(sizeof(*disks));
	int directory = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	size_t times = 0;

	if (!disks || directory < 0)
		abort();
	open_disks_find(disks, directory);
	for (size_t i = 0; i < disks->count; i++)
		times += !strcmp(disks->paths[i], path);
	CHECK(times <= 1);
	close(directory);
	free(disks);
	return times;
}

TEST(open_disks, are_large_files_that_are_open)
{
	char path[] = "/tmp/kvmscope-disk-XXXXXX";
	int disk = mkstemp(path), again = open(path, O_RDONLY | O_CLOEXEC);

	REQUIRE(disk >= 0 && again >= 0);
	CHECK(!is_found(path));
	REQUIRE_EQUAL(ftruncate(disk, 2 << 20), 0);
	CHECK(is_found(path));
	unlink(path);
	CHECK(!is_found(path));
	close(again);
	close(disk);
}

TEST(open_disks, are_none_of_a_process_that_is_not_there)
{
	struct open_disks *disks = malloc(sizeof(*disks));

	REQUIRE(disks);
	disks->count = 1;
	open_disks_find(disks, -1);
	CHECK_EQUAL(disks->count, 0);
	free(disks);
}
