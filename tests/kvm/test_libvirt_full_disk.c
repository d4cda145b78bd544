/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libvirt domains whose recordings, and the messages of the hook, are on file systems that fill up:
 * the oldest recordings are removed, files of others never. No domain is harmed, and kvmscoped
 * continues when there is room again.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/kvm/guest_run.h"
#include "tests/kvm/libvirt_host.h"
#include "tests/unit/shim/test.h"

#define KIB 1024ul

/* Disk of the recordings: a file is started if the reserve and 1 MiB are free. */
#define DISK     (4096 * KIB)
#define RESERVE  (1024 * KIB)
#define TO_BEGIN (RESERVE + 1024 * KIB)
/* Earlier recordings, the oldest of all. */
#define OLD_FILES 4
#define OLD_SIZE  (256 * KIB)
/* For current recordings, some KiB a second. */
#define SPARE (768 * KIB)

#define TRIES 1200 /* of 50 ms, a minute */

struct disks {
	char recordings[128], run[128]; /* their mount points */
};

static bool mount_disk(const char *path, const char *options)
{
	return (!mkdir(path, 0700) || errno == EEXIST) && !mount("none", path, "tmpfs", 0, options);
}

static bool mount_disks(struct disks *disks, const struct libvirt_host *host)
{
	snprintf(disks->recordings, sizeof(disks->recordings), "%s/recordings",
		 host->daemon.directory);
	snprintf(disks->run, sizeof(disks->run), "%s", host->daemon.run);
	if (!mount_disk(disks->recordings, "size=4m,mode=0700"))
		return false;
	if (mount_disk(disks->run, "size=64k,mode=0755"))
		return true;
	umount(disks->recordings);
	return false;
}

static size_t free_bytes(const char *disk)
{
	struct statvfs status;

	return statvfs(disk, &status) ? 0 : status.f_bavail * status.f_frsize;
}

/*
 * Appends SIZE bytes to the file NAME below DISK, or fewer if there is no room. Returns its new
 * size.
 */
static size_t grow_file(const char *disk, const char *name, size_t size)
{
	static char zeros[4 * KIB];
	struct stat status = { 0 };
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", disk, name);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	for (size_t written = 0; fd >= 0 && written < size; written += sizeof(zeros))
		if (write(fd, zeros, sizeof(zeros)) <= 0)
			break;
	CHECK(fd >= 0 && !fstat(fd, &status) && !close(fd));
	return (size_t)status.st_size;
}

/* A file of another program leaves this number of bytes free, or none. Returns its size. */
static size_t leave_free(const char *disk, size_t bytes)
{
	return grow_file(disk, "others", free_bytes(disk) - bytes);
}

static size_t fill(const char *disk)
{
	return grow_file(disk, "others", DISK);
}

static void check_others(const char *disk, size_t size)
{
	struct stat status;
	char path[192];

	snprintf(path, sizeof(path), "%s/others", disk);
	CHECK(!stat(path, &status) && (size_t)status.st_size == size);
}

/* The domain "old", which no longer exists. */
static void make_old_recordings(const struct disks *disks)
{
	char path[192];
	FILE *name;

	snprintf(path, sizeof(path), "%s/old", disks->recordings);
	CHECK(!mkdir(path, 0700));
	for (int i = 0; i < OLD_FILES; i++) {
		char file[64];

		snprintf(file, sizeof(file), "old/2026010%dT000000.000Z.perf.data", i + 1);
		CHECK_EQUAL(grow_file(disks->recordings, file, OLD_SIZE), OLD_SIZE);
	}
	snprintf(path, sizeof(path), "%s/old/domain", disks->recordings);
	name = fopen(path, "we");
	REQUIRE(name != NULL);
	fputs("old", name);
	fclose(name);
}

static bool has_old(const struct disks *disks, int number)
{
	char path[192];

	snprintf(path, sizeof(path), "%s/old/2026010%dT000000.000Z.perf.data", disks->recordings,
		 number);
	return !access(path, F_OK);
}

/* Domains without idle time, so that each second has a file. */
static bool start_domain(struct libvirt_host *host, const char *name)
{
	const struct libvirt_domain domain = {
		.kernel = GUEST_IMAGE_MULTIBOOT,
		.command_line = "program=spin",
		.extra = "<metadata>" FAKE_PROFILE("frequency='20'") "</metadata>",
	};

	return libvirt_domain_start_with(&host->libvirt, name, &domain);
}

static size_t count_in_log(const struct libvirt_host *host, const char *text)
{
	char *log = daemon_run_log(&host->daemon);
	size_t count = 0;

	for (const char *at = log; (at = strstr(at, text)); at++)
		count++;
	free(log);
	return count;
}

/* The number of complete files of NAME; the check fails if there is none after a minute. */
static bool wait_for_file(const struct disks *disks, const char *name)
{
	char command[320];

	snprintf(
		command, sizeof(command),
		"timeout 60 sh -c 'until ls %s/%s/*.perf.data > /dev/null 2>&1; do sleep 0.1; done'",
		disks->recordings, name);
	if (!system(command)) /* NOLINT(cert-env33-c): the test's own command */
		return true;
	FAIL_TEST("no recording of %s", name);
	return false;
}

static bool is_recorded(const struct libvirt_host *host, const struct disks *disks,
			const char *name)
{
	return daemon_run_wait_for_samples(&host->daemon, name, 5) && wait_for_file(disks, name);
}

/* So much that some of the old files have to be removed, but not all. */
static void check_the_oldest_go(const struct libvirt_host *host, const struct disks *disks)
{
	CHECK(has_old(disks, 1));
	leave_free(disks->recordings, TO_BEGIN - OLD_SIZE / 2);
	for (int i = 0; i < TRIES && has_old(disks, 1); i++)
		usleep(50000);
	CHECK(!has_old(disks, 1) && has_old(disks, OLD_FILES));
	CHECK_EQUAL(count_in_log(host, "has no space: old recordings are removed"), 1);
	CHECK_EQUAL(count_in_log(host, "not recorded until"), 0);
}

/* Until no file of ours is left to remove, and nothing is written. */
static size_t fill_up(const struct libvirt_host *host, const struct disks *disks)
{
	size_t others = fill(disks->recordings);

	CHECK(daemon_run_wait_for_log(&host->daemon, "no domain is recorded until there is space"));
	CHECK(!has_old(disks, OLD_FILES));
	check_others(disks->recordings, others);
	return fill(disks->recordings);
}

/* Sampling continues, though nothing is kept. */
static void check_it_is_sampled(const struct libvirt_host *host, const char *name)
{
	json_t *status =
		daemon_run_ask(&host->daemon, "domain-status", json_pack("{s:s}", "domain", name));
	long samples = (long)json_integer_value(json_object_get(status, "samples"));

	json_decref(status);
	CHECK(daemon_run_wait_for_samples(&host->daemon, name, samples + 60));
}

/* Beside kvmscoped, whose disk is full, and without room for the hook's messages. */
static void start_another(struct libvirt_host *host, const struct disks *disks)
{
	CHECK_EQUAL(daemon_run_stop(&host->daemon, SIGTERM), 0);
	fill(disks->run);
	CHECK_EQUAL(free_bytes(disks->run), 0);
	CHECK(start_domain(host, "three"));
	CHECK(daemon_run_start(&host->daemon));
	CHECK(daemon_run_wait_for_domains(&host->daemon, 3));
}

static void remove_others(const char *disk)
{
	char path[192];

	snprintf(path, sizeof(path), "%s/others", disk);
	CHECK(!unlink(path));
}

static void check_they_run(const struct libvirt_host *host, const pid_t pids[2])
{
	CHECK(libvirt_host_runs(host, "one", pids[0]));
	CHECK(libvirt_host_runs(host, "two", pids[1]));
}

static void fill_disks(struct libvirt_host *host, const struct disks *disks)
{
	const pid_t pids[2] = { libvirt_domain_pid(&host->libvirt, "one"),
				libvirt_domain_pid(&host->libvirt, "two") };
	size_t others;

	CHECK(is_recorded(host, disks, "one") && is_recorded(host, disks, "two"));
	check_the_oldest_go(host, disks);
	others = fill_up(host, disks);
	check_it_is_sampled(host, "one");
	check_they_run(host, pids);
	check_others(disks->recordings, others);
	CHECK_EQUAL(count_in_log(host, "no domain is recorded until there is space"), 1);

	remove_others(disks->recordings);
	CHECK(daemon_run_wait_for_log(&host->daemon, "has space again"));
	CHECK(wait_for_file(disks, "one") && wait_for_file(disks, "two"));

	others = fill(disks->recordings);
	start_another(host, disks);
	check_they_run(host, pids);
	check_others(disks->recordings, others);
	remove_others(disks->recordings);
	CHECK(is_recorded(host, disks, "one") && is_recorded(host, disks, "three"));
	check_they_run(host, pids);
}

/* Nothing is left but recordings; the disk of the hook's messages has the other program's file. */
static void end_domains(struct libvirt_host *host, const struct disks *disks)
{
	CHECK(!libvirt_virsh(&host->libvirt, NULL, 0, "destroy one"));
	CHECK(!libvirt_virsh(&host->libvirt, NULL, 0, "destroy two"));
	CHECK(!libvirt_virsh(&host->libvirt, NULL, 0, "destroy three"));
	CHECK(daemon_run_wait_for_domains(&host->daemon, 0));
	remove_others(disks->run);
	CHECK_EQUAL(daemon_run_stop(&host->daemon, SIGTERM), 0);
	libvirt_host_check_nothing_is_left(host, "t");
}

TEST(libvirt, a_full_disk_takes_old_recordings_and_harms_no_domain)
{
	struct libvirt_host host;
	struct disks disks;

	LIBVIRT_REQUIRED();
	libvirt_host_prepare(&host, "[recordings]\nreserve = 1M\nage = 0s\n");
	if (!mount_disks(&disks, &host)) {
		libvirt_host_end(&host);
		SKIP("mounting a file system requires root");
	}
	libvirt_host_install_hook(&host);
	make_old_recordings(&disks);
	leave_free(disks.recordings, TO_BEGIN + SPARE);
	if (libvirt_daemon_start(&host.libvirt) && daemon_run_start(&host.daemon) &&
	    start_domain(&host, "one") && start_domain(&host, "two")) {
		fill_disks(&host, &disks);
		end_domains(&host, &disks);
	}
	daemon_run_stop(&host.daemon, SIGKILL);
	CHECK(!umount2(disks.run, MNT_DETACH) && !umount2(disks.recordings, MNT_DETACH));
	libvirt_host_end(&host);
}
