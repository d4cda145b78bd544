/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Debian's Xen 4.17 as a multiboot image, with Linux 6.1 as its dom0: both boot, Xen's samples and
 * a watch have the symbols of its ELF file, and its reset ends the run. The package with debug
 * symbols has that file, whose addresses are those of the running Xen.
 */
#include <stdio.h>

#include "tests/rig/rig.h"

#define DIRECTORY "build/rig/xen"
#define FILES     "build/cache/xen/files/"

/* The address range of Xen's text, in which each sample has a symbol. */
#define TEXT "0xffff82d0402"

/* False: the mirror has no such package. */
static bool fetch(void)
{
	struct rig_result result;
	bool fetched;

	rig_run_here(&result, 300,
		     "mkdir -p " DIRECTORY
		     " && tests/rig/fetch-packages xen xen-hypervisor-4.17-amd64 "
		     "xen-hypervisor-4.17-amd64-dbg > /dev/null && "
		     "gunzip -c " FILES "boot/xen-4.17-amd64.gz > " DIRECTORY "/xen");
	fetched = !result.status;
	if (!fetched)
		printf("%s\n", result.errors);
	rig_result_free(&result);
	return fetched;
}

static void check_lines(const struct rig_result *result, bool watched)
{
	static const char *const lines[] = {
		"(XEN) Xen version 4.17",
		"(XEN)  Dom0 kernel: 64-bit",
		"] Linux version 6.1",
		"Kernel panic - not syncing: VFS: Unable to mount root fs",
		"(XEN) Resetting with ACPI",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		if (!strstr(result->output, lines[i]))
			FAIL_TEST("no line \"%s\" in:\n%s\n%s", lines[i], result->output,
				  result->errors);
	if (watched && !strstr(result->errors, "mem:construct_dom0:x: 1 hits"))
		FAIL_TEST("the watch had not one hit: %s", result->errors);
}

static void check_profile(void)
{
	struct rig_result result;

	rig_run_here(&result, 60,
		     "HOME=" DIRECTORY " build/kvmscope report -i " DIRECTORY "/perf.data");
	CHECK_EQUAL(result.status, 0);
	if (!strstr(result.output, " ns16550_tx_ready ") || strstr(result.output, " " TEXT))
		FAIL_TEST("Xen's functions have no symbols:\n%s", result.output);
	rig_result_free(&result);
}

/* The dom0 has no root file system: it panics, and Xen resets the machine. */
TEST(xen, boots_with_its_dom0_and_is_profiled_by_its_symbols)
{
	const bool watched = !rig_debug_registers_unavailable_reason();
	const char *kernel = rig_kernel("6.1");
	struct rig_result result;

	RIG_REQUIRED();
	if (!kernel)
		return;
	if (!fetch())
		SKIP("Debian's Xen could not be fetched");
	rig_run(&result, 240,
		"HOME=" DIRECTORY " build/kvmscope run --pmu off --timeout 220 --mem 512M "
		"--kernel " DIRECTORY "/xen --initrd %s -o " DIRECTORY "/perf.data "
		"--vmlinux " FILES "usr/lib/debug/boot/xen-syms-4.17-amd64 %s "
		"--append 'console=hvc0 earlyprintk=xen,keep console=com1 com1=115200,8n1 "
		"dom0_mem=256M panic=-1 mitigations=off' < /dev/null",
		kernel, watched ? "--watch construct_dom0:x" : "");
	CHECK_EQUAL(result.status, 0);
	check_lines(&result, watched);
	rig_result_free(&result);
	check_profile();
}
