/* SPDX-License-Identifier: Apache-2.0 */
/* The loaders on Debian's own kernels from tests/rig/fetch-kernels. */
#include <asm/bootparam.h>
#include <stdio.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/boot_fixture.h"
#include "tests/unit/shim/test.h"

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
