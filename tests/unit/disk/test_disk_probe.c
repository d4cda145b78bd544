/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/disk/sandbox_broker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"

static bool write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	return file && fputs(text, file) >= 0 && !fclose(file);
}

TEST(disk_probe, reads_owner_and_first_bytes)
{
	char path[] = "/tmp/kvmscope-look-XXXXXX";
	int fd = mkstemp(path);
	struct disk_probe look;

	REQUIRE(fd >= 0 && write_file(path, "QFI"));
	REQUIRE_EQUAL(disk_probe(&(struct disk_file){ .path = path }, &look), 0);
	CHECK_EQUAL(look.uid, geteuid());
	CHECK_EQUAL(look.size, 3);
	CHECK(!memcmp(look.start, "QFI", 3));
	unlink(path);
	CHECK_EQUAL(disk_probe(&(struct disk_file){ .path = path }, &look), -ENOENT);
	close(fd);
}

/* Opening a device may start it, e.g. a watchdog. A FIFO stands for one, because opening it can be
 * observed. */
TEST(disk_probe, does_not_open_other_devices)
{
	char directory[] = "/tmp/kvmscope-look-XXXXXX", fifo[64], events[4096];
	int opened = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	struct disk_probe look;

	REQUIRE(mkdtemp(directory) && opened >= 0);
	snprintf(fifo, sizeof(fifo), "%s/fifo", directory);
	REQUIRE(!mkfifo(fifo, 0600) && inotify_add_watch(opened, fifo, IN_OPEN) >= 0);
	CHECK_EQUAL(disk_probe(&(struct disk_file){ .path = fifo }, &look), -ENOTBLK);
	CHECK_EQUAL(read(opened, events, sizeof(events)), -1);
	CHECK_EQUAL(disk_probe(&(struct disk_file){ .path = "/dev/zero" }, &look), -ENOTBLK);
	close(opened);
	unlink(fifo);
	rmdir(directory);
}

/* The directory's owner links to another user's file. */
TEST(disk_probe, does_not_open_another_file)
{
	char directory[] = "/tmp/kvmscope-look-XXXXXX", disk[64], other[64], events[4096];
	int opened = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	struct disk_probe look;
	struct stat status;

	REQUIRE(mkdtemp(directory) && opened >= 0);
	snprintf(disk, sizeof(disk), "%s/disk", directory);
	snprintf(other, sizeof(other), "%s/other", directory);
	REQUIRE(write_file(disk, "disk") && write_file(other, "other") && !stat(disk, &status));

	struct disk_file place = { .path = disk, .device = status.st_dev, .inode = status.st_ino };

	CHECK_EQUAL(disk_probe(&place, &look), 0);
	REQUIRE(inotify_add_watch(opened, other, IN_OPEN) >= 0);
	REQUIRE(!unlink(disk) && !symlink("other", disk));
	CHECK_EQUAL(disk_probe(&place, &look), -ESTALE);
	CHECK_EQUAL(look.size, 0);
	CHECK_EQUAL(read(opened, events, sizeof(events)), -1);
	unlink(disk);
	unlink(other);
	close(opened);
	rmdir(directory);
}
