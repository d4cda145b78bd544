// SPDX-License-Identifier: Apache-2.0
/* A program that is on the guest's disk alone, named by report, and by perf afterwards. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/e2e/command.h"
#include "tests/e2e/perf_home.h"
#include "tests/unit/shim/test.h"

TEST(guest_disk_report, names_programs_that_are_on_the_disk_alone)
{
	char home[64];
	int status;
	char *text;

	NEED_PERF;
	if (access("/usr/bin/grub-fstest", X_OK))
		SKIP("grub-fstest (package grub-common) is not here");
	perf_home_enter(home);
	free(perf_output(
		"cp build/inlines/gcc %s/gone && mkdir -p %s/tree%s && cp build/inlines/gcc %s/tree%s/gone && "
		"truncate -s 64M %s/disk && PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -q -d %s/tree %s/disk && "
		"perf record -q -e cpu-clock -F 5000 -o %s/perf.data %s/gone 2>&1; rm -rf %s/gone %s/.debug %s/tree",
		home, home, home, home, home, home, home, home, home, home, home, home, home));
	text = command_output(NULL, "build/kvmscope report -i %s/perf.data", home);
	CHECK(strstr(text, " gone"));
	CHECK(!strstr(text, "hash_block"));
	free(text);
	text = command_output(&status, "build/kvmscope report -i %s/perf.data --inline --guest-disk %s/disk",
			      home, home);
	CHECK_EQUAL(status, 0);
	CHECK(strstr(text, "hash_block"));
	CHECK(strstr(text, "mix (inlined)"));
	free(text);

	/* It is in the build-id cache now. */
	text = command_output(NULL, "build/kvmscope report -i %s/perf.data", home);
	CHECK(strstr(text, "hash_block"));
	free(text);
	text = perf_output("perf report -i %s/perf.data --stdio --no-inline 2> /dev/null", home);
	CHECK(strstr(text, "hash_block"));
	free(text);
	text = command_output(&status, "build/kvmscope report -i %s/perf.data --guest-disk Makefile 2>&1",
			      home);
	CHECK_EQUAL(status, 1);
	CHECK(strstr(text, "no ext4, XFS or btrfs file system"));
	free(text);
	perf_home_leave(home);
}
