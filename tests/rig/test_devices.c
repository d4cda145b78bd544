/* SPDX-License-Identifier: Apache-2.0 */
/* The devices with Debian's own drivers; see tests/rig/guest-devices for the guest's part. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/rig/rig.h"

#define FILES          "build/rig/devices"
#define DISK_MEGABYTES "32"

/* A line "NAME VALUE" of the output, with a console's line end. */
static void check_line(const struct rig_result *result, const char *line)
{
	char text[256];

	snprintf(text, sizeof(text), "%s\r\n", line);
	if (strstr(result->output, text))
		return;
	snprintf(text, sizeof(text), "%s\n", line);
	if (!strstr(result->output, text))
		FAIL_TEST("the output lacks \"%s\"", line);
}

/* Files on a file system for the guest, and a read-only disk. */
static bool make_disks(void)
{
	return !system(
		"rm -rf " FILES " && mkdir -p " FILES "/tree && cd " FILES " &&"
		"head -c 3000000 /dev/urandom > tree/data && (cd tree && md5sum data > data.md5) &&"
		"PATH=$PATH:/sbin mke2fs -q -t ext4 -d tree disk.img " DISK_MEGABYTES
		"M > /dev/null 2>&1 &&"
		"(printf read-only; head -c 100000 /dev/zero) > read-only.img");
}

/* The guest's clock is set from the RTC, which counts seconds. */
static void check_clock(const struct rig_result *result)
{
	const char *line = strstr(result->output, "devices: clock ");
	long long difference =
		line ? atoll(line + strlen("devices: clock ")) - (long long)time(NULL) : -1;

	if (!line || difference < -300 || difference > 300)
		FAIL_TEST("the guest's RTC is %lld s off", difference);
}

/* A sequence of numbers without a gap, longer than any buffer of a UART. */
static void check_serial_output(const struct rig_result *result)
{
	const char *at = strstr(result->output, "\n1\r\n2\r\n");
	char number[16];

	REQUIRE(at);
	for (int i = 1; i <= 400; i++) {
		snprintf(number, sizeof(number), "\n%d\r", i);
		REQUIRE(!strncmp(at, number, strlen(number)));
		at += strlen(number);
	}
}

/* The image has everything that the guest wrote and flushed, and its file system is intact. */
static void check_disk(void)
{
	CHECK(!system("cd " FILES " && PATH=$PATH:/sbin && e2fsck -fn disk.img > fsck.txt 2>&1 &&"
		      "debugfs -R 'dump written written' disk.img 2> /dev/null &&"
		      "debugfs -R 'dump written.md5 written.md5' disk.img 2> /dev/null &&"
		      "[ $(stat -c %s written) = 2097152 ] && md5sum -c --status written.md5"));
}

TEST(devices, devices_work_with_debian_drivers)
{
	struct rig_result result;

	RIG_REQUIRED();
	REQUIRE(make_disks());
	REQUIRE(!system(
		"tests/rig/initrd --init tests/rig/guest-devices --output build/initrd/devices.cpio"
		" > /dev/null"));
	REQUIRE(rig_kernel("6.1"));
	rig_run(&result, 240,
		"socket=/tmp/kvmscope-devices.sock; tests/rig/port-peer $socket > " FILES
		"/peer.txt 2>&1 &"
		"echo typed by the host | build/kvmscope run --pmu off --no-profile --cpus 2 --mem 256M --timeout 200"
		" --kernel %s --initrd build/initrd/devices.cpio --append 'console=ttyS0 quiet'"
		" --disk " FILES "/disk.img --disk " FILES
		"/read-only.img,ro --agent-socket $socket;"
		" status=$?; cat " FILES "/peer.txt; exit $status",
		rig_kernel("6.1"));
	CHECK_EQUAL(result.status, 0);
	check_line(&result, "devices: serial-line typed by the host");
	check_serial_output(&result);

	check_line(&result, "devices: disk-size 65536"); /* sectors of 512 bytes */
	check_line(&result, "devices: disk-serial kvmscope-2");
	check_line(&result, "devices: disk-cache write back");
	check_line(&result, "devices: disk-read good");
	check_line(&result, "devices: disk-written good");
	check_disk();
	check_line(&result, "devices: read-only 1");
	check_line(&result, "devices: read-only-text read-only");
	check_line(&result, "devices: read-only-write refused");

	check_line(&result, "devices: port-name org.kvmscope.agent.0");
	check_line(&result, "devices: port-line hello from the host");
	check_line(&result, "devices: port-closed good");
	check_line(&result, "port-peer: answer you said hello from the host");
	check_line(&result, "port-peer: bulk good");
	check_line(&result, "port-peer: again good");

	check_line(&result, "devices: entropy virtio_rng.0");
	check_line(&result, "devices: entropy-read good");
	check_line(&result, "devices: entropy-differs good");
	check_line(&result, "devices: interrupts 4"); /* one for each device */
	check_clock(&result);
	check_line(&result, "devices: end good");
	rig_result_free(&result);
}
