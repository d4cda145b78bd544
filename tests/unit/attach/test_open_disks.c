/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/open_disks.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"

/* In the process whose /proc directory is PROCESS. */
static bool is_found_of(const char *process, const char *path)
{
	struct open_disks *disks = malloc(sizeof(*disks));
	int directory = open(process, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
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

static bool is_found(const char *path)
{
	return is_found_of("/proc/self", path);
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

/* Opened with O_PATH, which needs no right. */
TEST(open_disks, exclude_files_opened_with_o_path)
{
	char path[] = "/tmp/kvmscope-disk-XXXXXX";
	int disk = mkstemp(path), fd;

	REQUIRE(disk >= 0);
	REQUIRE_EQUAL(ftruncate(disk, 2 << 20), 0);
	close(disk);
	fd = open(path, O_PATH | O_CLOEXEC);
	CHECK(!is_found(path));
	close(fd);
	unlink(path);
}

/* The number of a block device that can be opened; 0: none. */
static dev_t find_device(void)
{
	DIR *devices = opendir("/dev");
	const struct dirent *entry;
	struct stat status;
	dev_t found = 0;
	int fd;

	while (devices && !found && (entry = readdir(devices))) {
		if (fstatat(dirfd(devices), entry->d_name, &status, 0) || !S_ISBLK(status.st_mode))
			continue;
		fd = openat(dirfd(devices), entry->d_name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0)
			continue;
		found = status.st_rdev;
		close(fd);
	}
	if (devices)
		closedir(devices);
	return found;
}

/* Runs in its own mount namespace, with its own device node NODE, and keeps it open until the
 * other end of REPORT_FD is closed. */
static _Noreturn void be_other(const char *directory, const char *node, dev_t device, int report_fd)
{
	char reported = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!unshare(CLONE_NEWNS) && !mount("", "/", NULL, MS_SLAVE | MS_REC, NULL) &&
	    !mount("devfs", directory, "tmpfs", 0, NULL) && !mknod(node, S_IFBLK | 0600, device) &&
	    open(node, O_RDONLY | O_NONBLOCK) >= 0)
		reported = 1;
	if (write(report_fd, &reported, 1) == 1 && reported)
		pause();
	_exit(0);
}

/* As libvirt's QEMU, which has its own /dev. */
TEST(open_disks, are_block_devices_with_another_node)
{
	char directory[] = "/tmp/kvmscope-dev-XXXXXX", node[64], process[32], reported = 0;
	dev_t device = find_device();
	int ends[2];
	pid_t other;

	if (!device)
		SKIP("there is no block device here that can be opened");
	REQUIRE(mkdtemp(directory) != NULL && !pipe2(ends, O_CLOEXEC));
	snprintf(node, sizeof(node), "%s/disk", directory);
	fflush(NULL);
	other = fork();
	if (!other)
		be_other(directory, node, device, ends[1]);
	snprintf(process, sizeof(process), "/proc/%d", other);
	if (read(ends[0], &reported, 1) == 1 && reported) {
		CHECK(!is_found_of(process, node));
		REQUIRE_EQUAL(mknod(node, S_IFBLK | 0600, device), 0);
		CHECK(is_found_of(process, node));
		unlink(node);
	}
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	close(ends[0]);
	close(ends[1]);
	rmdir(directory);
	if (!reported)
		SKIP("a mount namespace with a block device is not possible here");
}

TEST(open_disks, are_none_without_a_process)
{
	struct open_disks *disks = malloc(sizeof(*disks));

	REQUIRE(disks);
	disks->count = 1;
	open_disks_find(disks, -1);
	CHECK_EQUAL(disks->count, 0);
	free(disks);
}
