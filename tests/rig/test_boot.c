/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Debian's unmodified cloud kernels in the rig: to init with one and four
 * vCPUs, their virtio devices in use, and each way to end.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/rig.h"

#define RUN "build/kvmscope run --no-profile --timeout 90 --mem 256M --console stdio "

/* nproc, then a disk that is written and one that must not be, the agent's port, and the entropy device. */
#define GUEST_COMMANDS                                                         \
	"echo+cpus+$(nproc+--all);"                                            \
	"echo+disk+$(head+-c+5+/dev/vda);"                                     \
	"echo+changed+|dd+of=/dev/vda+bs=512+seek=1+conv=fsync+2>/dev/null;"   \
	"echo+read-only+$(cat+/sys/block/vda/ro)+$(cat+/sys/block/vdb/ro);"    \
	"echo+port+$(cat+/sys/class/virtio-ports/vport0p1/name);"              \
	"exec+3<>/dev/vport0p1;"                                               \
	"echo+from+the+guest>&3;"                                              \
	"read+line<&3;"                                                        \
	"echo+got+$line;"                                                      \
	"echo+entropy+$(cat+/sys/class/misc/hw_random/rng_current)"

static void check_contains(const struct rig_result *result, const char *what, const char *text)
{
	if (!strstr(result->output, text))
		FAIL_TEST("%s: no '%s' in:\n%s\n%s", what, text, result->output, result->errors);
}

static void boots(const char *version, unsigned int cpus)
{
	const char *kernel = rig_kernel(version), *initrd = rig_initrd(version);
	struct rig_result result;
	char expected[32];

	RIG_REQUIRED();
	if (!kernel || !initrd)
		return;
	rig_run(&result, 150,
		"printf dataX > /tmp/disk; truncate -s 1M /tmp/disk; cp /tmp/disk /tmp/ro; "
		"build/rig/peer /tmp/agent 'to the guest' > /tmp/peer & peer=$!; " RUN
		"--cpus %u --kernel %s --initrd %s --disk /tmp/disk --disk /tmp/ro,ro --agent-socket /tmp/agent "
		"--append 'console=ttyS0 quiet panic=-1 kvmscope.run=" GUEST_COMMANDS "' < /dev/null; status=$?; "
		"echo image $(tail -c +513 /tmp/disk | head -c 7); wait $peer; echo peer $(cat /tmp/peer); exit $status",
		cpus, kernel, initrd);
	CHECK_EQUAL(result.status, 0);
	snprintf(expected, sizeof(expected), "cpus %u\r\n", cpus);
	check_contains(&result, version, expected);
	check_contains(&result, version, "guest-init: up");
	check_contains(&result, version, "disk dataX");
	check_contains(&result, version, "read-only 0 1");
	check_contains(&result, version, "port org.kvmscope.agent.0");
	check_contains(&result, version, "got to the guest");
	check_contains(&result, version, "entropy virtio_rng");
	check_contains(&result, version, "guest-init: status 0");
	check_contains(&result, version, "image changed");
	check_contains(&result, version, "peer from the guest");
	rig_result_free(&result);
}

TEST(boot, debian_5_10)
{
	boots("5.10", 1);
	boots("5.10", 4);
}

TEST(boot, debian_6_1)
{
	boots("6.1", 1);
	boots("6.1", 4);
}

TEST(boot, debian_6_12)
{
	boots("6.12", 1);
	boots("6.12", 4);
}

TEST(boot, debian_7_2)
{
	boots("7.2", 1);
	boots("7.2", 4);
}

/* A reboot by each method ends the run, and so does a panic that reboots. */
TEST(boot, debian_reboot_ends_the_run)
{
	static const char *const methods[] = { "k", "a", "t" };

	RIG_REQUIRED();
	for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++) {
		struct rig_result result;

		rig_run(&result, 120,
			RUN "--kernel %s --initrd %s --append 'console=ttyS0 quiet reboot=%s kvmscope.end=reboot' < /dev/null",
			rig_kernel("6.1"), rig_initrd("6.1"), methods[i]);
		/* A reboot by triple fault is one: it can not be told from a crash. */
		CHECK_EQUAL(result.status, *methods[i] == 't' ? 3 : 0);
		check_contains(&result, methods[i], "guest-init: up");
		rig_result_free(&result);
	}
}

/* In the background, so that it can be sent signals; until the guest is up. */
#define IN_BACKGROUND                                                          \
	" < /dev/null > /tmp/console & run=$!; "                               \
	"until grep -q 'guest-init: up' /tmp/console; do sleep 0.5; done; "

/* The first SIGINT presses the power button: this guest sees it, and powers off. */
TEST(boot, debian_sigint_is_the_power_button)
{
	struct rig_result result;

	RIG_REQUIRED();
	rig_run(&result, 120,
		RUN "--kernel %s --initrd %s --append 'console=ttyS0 quiet "
		    "kvmscope.run=n=0;while+[+$n+=+0+];do+sleep+1;read+n+rest</sys/firmware/acpi/interrupts/ff_pwr_btn;done;"
		    "echo+button+pressed'" IN_BACKGROUND "kill -INT $run; wait $run; status=$?; cat /tmp/console; exit $status",
		rig_kernel("6.1"), rig_initrd("6.1"));
	CHECK_EQUAL(result.status, 0);
	check_contains(&result, "SIGINT", "button pressed");
	rig_result_free(&result);
}

/* A guest that does not care for its button is stopped by the second one. */
TEST(boot, debian_second_sigint_stops)
{
	struct rig_result result;

	RIG_REQUIRED();
	rig_run(&result, 120,
		RUN "--kernel %s --initrd %s --append 'console=ttyS0 quiet kvmscope.end=stay'" IN_BACKGROUND
		    "kill -INT $run; sleep 1; kill -INT $run; wait $run; status=$?; cat /tmp/console; exit $status",
		rig_kernel("6.1"), rig_initrd("6.1"));
	CHECK_EQUAL(result.status, 0);
	check_contains(&result, "SIGINT", "guest-init: up");
	rig_result_free(&result);
}
