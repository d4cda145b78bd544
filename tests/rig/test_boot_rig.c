/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Debian's unmodified cloud kernels in the rig: boot to init with one and four vCPUs, their virtio
 * devices, and the ways to end them. For reboots see test_boot_acpi.c and test_flight.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/rig.h"

/*
 * Limits against a hang, far above the duration of a boot: four vCPUs on the rig's single CPU take
 * minutes on a busy machine.
 */
#define RUN "build/kvmscope run --pmu off --no-profile --timeout 250 --mem 256M --console stdio "

/* nproc, then a writable disk and a read-only one, the agent's port, and the entropy device. */
#define GUEST_COMMANDS                                                                             \
	"echo+cpus+$(nproc+--all);"                                                                \
	"echo+disk+$(head+-c+5+/dev/vda);"                                                         \
	"echo+changed+|dd+of=/dev/vda+bs=512+seek=1+conv=fsync+2>/dev/null;"                       \
	"echo+read-only+$(cat+/sys/block/vda/ro)+$(cat+/sys/block/vdb/ro);"                        \
	"echo+port+$(cat+/sys/class/virtio-ports/vport0p1/name);"                                  \
	"exec+3<>/dev/vport0p1;"                                                                   \
	"echo+from+the+guest>&3;"                                                                  \
	"read+line<&3;"                                                                            \
	"echo+got+$line;"                                                                          \
	"echo+entropy+$(cat+/sys/class/misc/hw_random/rng_current)"

static void check_contains(const struct rig_result *result, const char *what, const char *text)
{
	if (!strstr(result->output, text))
		FAIL_TEST("%s: no '%s' in:\n%s\n%s", what, text, result->output, result->errors);
}

static void check_count(const struct rig_result *result, const char *what, const char *text,
			int expected)
{
	int count = 0;

	for (const char *at = result->output; (at = strstr(at, text)); at++)
		count++;
	if (count != expected)
		FAIL_TEST("%s: '%s' %d times instead of %d in:\n%s\n%s", what, text, count,
			  expected, result->output, result->errors);
}

/* One run with each number of vCPUs, each with new disks and a new peer. */
#define BOOT_WITH_DEVICES                                                                                    \
	"for cpus in 1 4; do "                                                                               \
	"printf dataX > /tmp/disk; truncate -s 1M /tmp/disk; cp /tmp/disk /tmp/ro; "                         \
	"build/rig/peer /tmp/agent 'to the guest' > /tmp/peer & peer=$!; " RUN                               \
	"--cpus $cpus --kernel %s --initrd %s --disk /tmp/disk --disk /tmp/ro,ro --agent-socket /tmp/agent " \
	"--append 'console=ttyS0 quiet panic=-1 %s kvmscope.run=" GUEST_COMMANDS                             \
	"' < /dev/null || exit; "                                                                            \
	"echo image $(tail -c +513 /tmp/disk | head -c 7); wait $peer; echo peer $(cat /tmp/peer); done"

static void boots(const char *version, const char *options)
{
	static const char *const printed_twice[] = {
		"guest-init: up",       "disk dataX",
		"read-only 0 1",        "port org.kvmscope.agent.0",
		"got to the guest",     "entropy virtio_rng",
		"guest-init: status 0", "image changed",
		"peer from the guest",
	};
	const char *kernel = rig_kernel(version), *initrd = rig_initrd(version);
	struct rig_result result;

	RIG_REQUIRED();
	if (!kernel || !initrd)
		return;
	rig_run(&result, 520, BOOT_WITH_DEVICES, kernel, initrd, options);
	CHECK_EQUAL(result.status, 0);
	check_contains(&result, version, "cpus 1\r\n");
	check_contains(&result, version, "cpus 4\r\n");
	for (size_t i = 0; i < sizeof(printed_twice) / sizeof(*printed_twice); i++)
		check_count(&result, version, printed_twice[i], 2);
	rig_result_free(&result);
}

TEST(boot, debian_5_10)
{
	boots("5.10", QUICK_BOOT);
}

TEST(boot, debian_6_1)
{
	boots("6.1", QUICK_BOOT);
}

TEST(boot, debian_6_12)
{
	boots("6.12", QUICK_BOOT);
}

/* Boots with all of the kernel's default activity. */
TEST(boot, debian_7_2)
{
	boots("7.2", "");
}

/*
 * The first SIGINT presses the power button, which this guest receives and ignores; the second one
 * stops it.
 */
TEST(boot, debian_first_sigint_presses_the_power_button_second_one_stops)
{
	const char *kernel = rig_kernel("6.1"), *initrd = rig_initrd("6.1");
	struct rig_result result;

	RIG_REQUIRED();
	if (!kernel || !initrd)
		return;
	rig_run(&result, 280,
		RUN
		"--kernel %s --initrd %s --append 'console=ttyS0 quiet " QUICK_BOOT
		" kvmscope.end=stay "
		"kvmscope.run=n=0;while+[+$n+=+0+];do+sleep+1;read+n+rest</sys/firmware/acpi/interrupts/ff_pwr_btn;done;"
		"echo+button+pressed' < /dev/null > /tmp/console & run=$!; "
		"guest_says() { until grep -q \"$1\" /tmp/console; do kill -0 $run || break; sleep 0.5; done; }; "
		"guest_says 'guest-init: up'; kill -INT $run; "
		"guest_says 'guest-init: status 0'; kill -INT $run; "
		"wait $run; status=$?; cat /tmp/console; exit $status",
		kernel, initrd);
	CHECK_EQUAL(result.status, 0);
	check_contains(&result, "SIGINT", "button pressed");
	rig_result_free(&result);
}
