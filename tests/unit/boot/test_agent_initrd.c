/* SPDX-License-Identifier: Apache-2.0 */
#include <asm/bootparam.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/boot_fixture.h"
#include "tests/unit/shim/test.h"
#include "vmm/boot/agent_initrd.h"

static void check_line(const char *append, const char *expected)
{
	char *line = agent_initrd_command_line(append);

	CHECK_STRING(line, expected);
	free(line);
}

TEST(agent_initrd, command_line_starts_the_agent_and_names_the_real_init)
{
	check_line("", "rdinit=/kvmscope-agent");
	check_line("console=ttyS0", "console=ttyS0 rdinit=/kvmscope-agent");
	check_line("console=ttyS0 -- -x", "console=ttyS0 rdinit=/kvmscope-agent -- -x");
	check_line("-- -x", "rdinit=/kvmscope-agent -- -x");
	check_line("rdinit=/bin/sh quiet",
		   "rdinit=/bin/sh quiet rdinit=/kvmscope-agent kvmscope_init=/bin/sh");
	check_line("rdinit=/a rdinit=/b -- rdinit=/c",
		   "rdinit=/a rdinit=/b rdinit=/kvmscope-agent kvmscope_init=/b -- rdinit=/c");
	check_line("a--b init=/x", "a--b init=/x rdinit=/kvmscope-agent");
}

/* cpio(1) unpacks the archive to the agent's program, executable and with the same bytes. */
TEST(agent_initrd, archive_is_one_that_cpio_reads)
{
	size_t size;
	uint8_t *archive = agent_initrd_archive(&size);
	FILE *cpio = popen(
		"d=$(mktemp -d) && cp build/agent/kvmscope-agent $d/right && cd $d && cpio -i --quiet && "
		"cmp kvmscope-agent right && [ -x kvmscope-agent ] && rm -r $d",
		"w");

	REQUIRE(archive && cpio);
	CHECK_EQUAL(size % 4, 0);
	CHECK_EQUAL(fwrite(archive, 1, size, cpio), size);
	CHECK_EQUAL(pclose(cpio), 0);
	free(archive);
}

TEST(agent_initrd, archive_precedes_the_initrd)
{
	static const uint8_t front[64] = { 'f' }, initrd[5000] = { 'i' };
	struct boot_fixture fixture;
	struct boot_params params = { 0 };
	struct image image;
	struct span loaded;

	image_bzimage(&image);
	fixture_image(&fixture, 64 << 20, &image);
	fixture_initrd(&fixture, initrd, sizeof(initrd));
	fixture.options.initrd_front = span_of(front, sizeof(front));
	CHECK_EQUAL(fixture_load(&fixture), 0);
	CHECK(span_copy(guest_bytes(&fixture, fixture.start.rsi, sizeof(params)), 0, &params,
			sizeof(params)));
	CHECK_EQUAL(params.hdr.ramdisk_size, sizeof(front) + sizeof(initrd));
	loaded = guest_bytes(&fixture, params.hdr.ramdisk_image, params.hdr.ramdisk_size);
	REQUIRE(loaded.size == sizeof(front) + sizeof(initrd));
	CHECK(!memcmp(loaded.data, front, sizeof(front)));
	CHECK(!memcmp(loaded.data + sizeof(front), initrd, sizeof(initrd)));
	fixture_close(&fixture);
}
