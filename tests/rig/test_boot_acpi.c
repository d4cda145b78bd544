/* SPDX-License-Identifier: Apache-2.0 */
/* Debian's kernel accepts our ACPI tables and memory map, and a reboot by ACPI ends the run. */
#include "tests/rig/rig.h"

/*
 * '.' stands for the spaces that grep should match. The log also contains the command line. The
 * last command's status, which is that of the whole, is 1 if there are no complaints in the log.
 */
#define COMMANDS                                                                                   \
	"cut+-c1-8+/proc/cmdline;"                                                                 \
	"nproc;"                                                                                   \
	"echo+memory+$(grep+-c+^100000000-17fffffff.:.System.RAM+/proc/iomem);"                    \
	"grep+MemTotal+/proc/meminfo;"                                                             \
	"echo+virtio+$(ls+-d+/sys/bus/acpi/devices/LNRO0005*|wc+-l);"                              \
	"echo+button+$(ls+/sys/bus/acpi/devices|grep+LNXPWRBN);"                                   \
	"echo+serial+$(ls+/sys/bus/acpi/devices|grep+PNP0501);"                                    \
	"grep+-e+ttyS0+-e+acpi+-e+virtio0+/proc/interrupts;"                                       \
	"cat+/sys/power/mem_sleep;"                                                                \
	"dmesg|grep+-v+ommand.line|grep+-o+.supports.S0.*;"                                        \
	"echo+rtc+$(cat+/sys/class/rtc/rtc0/name);"                                                \
	"dmesg|grep+-v+ommand.line|grep+-e+ACPI.Error+-e+ACPI.Warning+-e+ACPI.BIOS+-e+Firmware.Bug"

/* A guest that reads and writes where nothing is, here and under QEMU. */
#define GUEST "build/guests/guest-multiboot.elf"
#define UNMAPPED                                                                                   \
	"build/kvmscope run --no-profile --timeout 60 --kernel " GUEST                             \
	" --append program=unmapped < /dev/null > /tmp/ours; "                                     \
	"qemu-system-x86_64 -accel kvm -m 64 -nodefaults -no-user-config -display none "           \
	"-no-reboot -serial stdio -device isa-debug-exit,iobase=0xf4,iosize=4 -kernel " GUEST      \
	" -append program=unmapped < /dev/null > /tmp/qemu; "                                      \
	"tail -n 1 /tmp/ours; cmp /tmp/ours /tmp/qemu && echo the same; "

static void check_contains(const struct rig_result *result, const char *text)
{
	if (!strstr(result->output, text))
		FAIL_TEST("no '%s' in:\n%s\n%s", text, result->output, result->errors);
}

TEST(acpi, debian_finds_all_devices_and_logs_no_complaints)
{
	const char *kernel = rig_kernel("6.1"), *initrd = rig_initrd("6.1");
	struct rig_result result;

	RIG_REQUIRED();
	if (!kernel || !initrd)
		return;
	rig_run(&result, 280,
		UNMAPPED
		"truncate -s 1M /tmp/disk; build/kvmscope run --pmu off --no-profile --timeout 250 --mem 5G --cpus 3 --kernel %s "
		"--initrd %s --disk /tmp/disk --append 'console=ttyS0 quiet panic=-1 reboot=a kvmscope.end=reboot kvmscope.run=" COMMANDS
		"' < /dev/null",
		kernel, initrd);
	CHECK_EQUAL(result.status, 0);
	check_contains(&result, "memory after port I/O: 00 00");
	check_contains(&result, "\nthe same\n");
	check_contains(&result, "pci=off \r\n3\r\nmemory 1\r\n");
	check_contains(&result, "MemTotal:        50"); /* 5.0 million KiB */
	check_contains(&result, "virtio 2");
	check_contains(&result, "button LNXPWRBN:00");
	check_contains(&result, "serial PNP0501:00");
	check_contains(&result, "rtc rtc_cmos");
	check_contains(&result, "IO-APIC   4-edge      ttyS0");
	check_contains(&result, "IO-APIC   9-fasteoi   acpi");
	check_contains(&result, "fasteoi   virtio0");
	/* As QEMU's microvm with ACPI. */
	check_contains(&result, "[s2idle]\r\n(supports S0 S5)\r\n");
	check_contains(&result, "guest-init: status 1");
	rig_result_free(&result);
}
