/* SPDX-License-Identifier: Apache-2.0 */
/* Missing builds are not searched again, but not for ever. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "vmm/disk/disk_misses.h"

static const char *const disks[] = { "/a", "/b" };
static const uint8_t one[] = { 0x12, 0xab, 0 }, other[] = { 0x12, 0xab };

static bool has(const char *directory, size_t disk_count, const uint8_t *build_id, size_t size)
{
	struct disk_misses misses;
	bool found;

	disk_misses_read(&misses, directory, disks, disk_count);
	found = disk_misses_has(&misses, span_of(build_id, size));
	CHECK_EQUAL(disk_misses_write(&misses, directory), 0);
	return found;
}

static void write_text(const char *directory, const char *text)
{
	char path[96];
	FILE *file;

	snprintf(path, sizeof(path), "%s/" DISK_MISSES_FILE, directory);
	file = fopen(path, "we");
	REQUIRE(file != NULL);
	fputs(text, file);
	fclose(file);
}

TEST(disk_misses, are_valid_for_a_day_and_those_disks)
{
	char directory[] = "/tmp/kvmscope-misses-XXXXXX", command[96];
	struct disk_misses misses;

	REQUIRE(mkdtemp(directory) != NULL);
	CHECK(!has(directory, 2, one, sizeof(one)));
	disk_misses_read(&misses, directory, disks, 2);
	disk_misses_add(&misses, span_of(one, sizeof(one)));
	disk_misses_add(&misses, span_of(one, sizeof(one)));
	CHECK(disk_misses_has(&misses, span_of(one, sizeof(one))));
	CHECK_EQUAL(disk_misses_write(&misses, directory), 0);
	CHECK(has(directory, 2, one, sizeof(one)));
	CHECK(!has(directory, 2, other, sizeof(other)));
	CHECK(!has(directory, 1, one, sizeof(one)));

	snprintf(command, sizeof(command),
		 "sed -i 's/since [0-9]*/since 1000000000/' %s/" DISK_MISSES_FILE, directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): a test's own words */
	CHECK(!has(directory, 2, one, sizeof(one)));
	snprintf(command, sizeof(command), "rm -r %s", directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): a test's own words */
}

TEST(disk_misses, are_read_only_if_valid)
{
	static const char *const texts[] = { "",
					     "\n",
					     "\n12ab00\n",
					     "since\n12ab00\n",
					     "since 99999999999999 0\n12ab00\n",
					     "since x y\n12ab00\n",
					     "12ab00" };
	char directory[] = "/tmp/kvmscope-misses-XXXXXX", command[96];

	REQUIRE(mkdtemp(directory) != NULL);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		write_text(directory, texts[i]);
		CHECK(!has(directory, 2, one, sizeof(one)));
	}
	snprintf(command, sizeof(command), "rm -r %s", directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): a test's own words */
}
