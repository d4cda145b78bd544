/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel files: FIFOs are refused, and Debian's kernels from tests/rig/fetch-kernels load. */
#include <asm/bootparam.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/boot_fixture.h"
#include "tests/unit/shim/test.h"
#include "vmm/boot/kernel_file.h"

static void check_kernel(const char *version)
{
	struct boot_fixture fixture;
	struct boot_params params = { 0 };
	char path[64];

	snprintf(path, sizeof(path), "build/cache/kernels/%s/vmlinuz", version);
	if (access(path, R_OK))
		SKIP("%s is not there; tests/rig/fetch-kernels gets it", path);
	fixture_open(&fixture, 256 << 20);
	fixture.options.kernel = path;
	if (fixture_load(&fixture))
		FAIL_TEST("%s", error_message());
	CHECK_EQUAL(fixture.start.protocol, BOOT_BZIMAGE);
	CHECK(span_copy(guest_bytes(&fixture, fixture.start.rsi, sizeof(params)), 0, &params,
			sizeof(params)));
	CHECK(params.hdr.version >= 0x20f);
	CHECK(params.hdr.init_size > 0);
	/* startup_64 of arch/x86/boot/compressed/head_64.S has CLD and CLI after an optional
	 * ENDBR64 */
	CHECK(memchr(guest_bytes(&fixture, fixture.start.rip, 8).data, 0xfc, 8));
	fixture_close(&fixture);
}

TEST(boot, loads_debian_kernel_5_10)
{
	check_kernel("5.10");
}

TEST(boot, loads_debian_kernel_6_1)
{
	check_kernel("6.1");
}

TEST(boot, loads_debian_kernel_6_12)
{
	check_kernel("6.12");
}

TEST(boot, loads_debian_kernel_7_2)
{
	check_kernel("7.2");
}

TEST(boot, refuses_a_fifo_without_waiting_for_a_writer)
{
	static const char path[] = "build/kernel-fifo";
	struct kernel_file file;

	unlink(path);
	REQUIRE_EQUAL(mkfifo(path, 0600), 0);
	CHECK_EQUAL(kernel_file_open(&file, path), -EINVAL);
	CHECK(strstr(error_message(), "build/kernel-fifo is not a regular file"));
	unlink(path);
}
