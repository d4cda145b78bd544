/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/qemu_command_line.h"

#include <stdio.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "vmm/attach/process.h"

static unsigned int ids_of(const char *smp)
{
	char line[256];
	int size = snprintf(line, sizeof(line), "qemu-system-x86_64%c-m%c64%c-smp%c%s", 0, 0, 0, 0,
			    smp) +
		   1;

	return qemu_vcpu_ids_parse(line, (size_t)size);
}

TEST(qemu_vcpus, are_as_many_as_the_command_line_allows)
{
	CHECK_EQUAL(ids_of("1,maxcpus=16,sockets=16,dies=1,cores=1,threads=1"), 16);
	CHECK_EQUAL(ids_of("cpus=2,maxcpus=64"), 64);
	CHECK_EQUAL(ids_of("1,maxcpus=8,cores=2"), 8);
	CHECK_EQUAL(ids_of("4"), 0);
	CHECK_EQUAL(ids_of("4,sockets=4"), 0);
}

/* Three cores use two bits of the APIC ID: those of the second socket are 4, 5 and 6. */
TEST(qemu_vcpus, ids_have_gaps)
{
	CHECK_EQUAL(ids_of("1,maxcpus=6,sockets=2,cores=3,threads=1"), 8);
	CHECK_EQUAL(ids_of("1,maxcpus=12,sockets=2,dies=2,cores=3"), 16);
	CHECK_EQUAL(ids_of("1,maxcpus=9,cores=3"), 16);
}

TEST(qemu_vcpus, hostile_command_lines_are_bounded)
{
	static const char cut[] = "qemu\0-smp\0maxcpus=9";

	CHECK_EQUAL(ids_of("1,maxcpus=99999999999999999999999"), VMM_VCPUS_MAX);
	CHECK_EQUAL(
		ids_of("1,maxcpus=1024,sockets=1024,dies=1024,modules=1024,cores=1024,threads=1024"),
		VMM_VCPUS_MAX);
	CHECK_EQUAL(ids_of("1,maxcpus=-1"), VMM_VCPUS_MAX);
	CHECK_EQUAL(ids_of("1,maxcpus=x"), 0);
	CHECK_EQUAL(ids_of(""), 0);
	CHECK_EQUAL(qemu_vcpu_ids_parse(cut, sizeof(cut) - 1), 0);
	CHECK_EQUAL(qemu_vcpu_ids_parse(cut, sizeof(cut)), 16);
	CHECK_EQUAL(qemu_vcpu_ids_parse(NULL, 0), 0);
	CHECK_EQUAL(qemu_vcpu_ids(getpid()), 0);
}
