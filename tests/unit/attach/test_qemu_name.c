/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/qemu_command_line.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "vmm/attach/vmm_encryption.h"

static void check_name(const char *option, const char *expected)
{
	char line[1024], name[QEMU_NAME_SIZE] = "";
	int size = snprintf(line, sizeof(line), "qemu-system-x86_64%c-m%c64%c-name%c%s", 0, 0, 0, 0,
			    option) +
		   1;

	CHECK_EQUAL(qemu_name_parse(line, (size_t)size, name), expected != NULL);
	if (expected)
		CHECK_STRING(name, expected);
}

TEST(qemu_name, is_read_from_the_command_line)
{
	check_name("guest=web,debug-threads=on", "web");
	check_name("debug-threads=on,guest=web", "web");
	check_name("web", "web");
	check_name("web,process=qemu:web", "web");
	check_name("guest,debug-threads=on", "guest");
	check_name("guest=a,,b,debug-threads=on", "a,b");
	check_name("a,,b", "a,b");
	check_name("debug-threads=on", NULL);
	check_name("process=web", NULL);
	check_name("", NULL);
}

TEST(qemu_name, hostile_command_lines_are_bounded)
{
	static const char cut[] = "qemu\0-name\0web";
	char name[QEMU_NAME_SIZE], wide[512] = "";

	memset(wide, 'a', QEMU_NAME_SIZE);
	check_name(wide, NULL);
	wide[QEMU_NAME_SIZE - 1] = '\0';
	check_name(wide, wide);
	CHECK(!qemu_name_parse(cut, sizeof(cut) - 1, name));
	CHECK(qemu_name_parse(cut, sizeof(cut), name));
	CHECK(!qemu_name_parse(cut, 11, name));
	CHECK(!qemu_name_parse(NULL, 0, name));
	CHECK(!qemu_name(getpid(), name));
}

/* OPTION is the value of -object, MACHINE that of -machine. */
static void check_encryption(const char *machine, const char *object,
			     enum guest_encryption expected)
{
	char line[1024];
	int size = snprintf(line, sizeof(line), "qemu-system-x86_64%c-machine%c%s%c-object%c%s", 0,
			    0, machine, 0, 0, object) +
		   1;

	CHECK_EQUAL(qemu_encryption_parse(line, (size_t)size), expected);
}

#define MACHINE "q35,confidential-guest-support=sev0"

TEST(qemu_encryption, is_read_from_the_command_line)
{
	check_encryption(MACHINE, "sev-guest,id=sev0,policy=0x3", GUEST_SEV);
	check_encryption(MACHINE, "sev-guest,id=sev0", GUEST_SEV);
	check_encryption(MACHINE, "sev-guest,id=sev0,policy=0x5", GUEST_SEV_ES);
	check_encryption(MACHINE, "qom-type=sev-guest,policy=7", GUEST_SEV_ES);
	check_encryption("pc,memory-encryption=sev0", "sev-guest,policy=7", GUEST_SEV_ES);
	check_encryption(MACHINE, "sev-snp-guest,id=sev0", GUEST_SEV_SNP);
	check_encryption(MACHINE, "tdx-guest,id=tdx", GUEST_TDX);
	check_encryption(MACHINE, "{\"qom-type\":\"sev-guest\",\"id\":\"lsec0\",\"policy\":7}",
			 GUEST_SEV_ES);
	check_encryption(MACHINE, "{\"qom-type\":\"sev-guest\",\"policy\":\"7\"}", GUEST_SEV);
	check_encryption(MACHINE, "{\"qom-type\":\"tdx-guest\"}", GUEST_TDX);
	check_encryption(MACHINE, "{\"qom-type\":7}", GUEST_PLAIN);
	check_encryption(MACHINE, "{", GUEST_PLAIN);
	check_encryption(MACHINE, "memory-backend-ram,id=sev-guest", GUEST_PLAIN);
	check_encryption("q35", "sev-guest,id=sev0,policy=5", GUEST_PLAIN);
	CHECK_EQUAL(qemu_encryption_parse(NULL, 0), GUEST_PLAIN);
}

/* DIRECTORY has the layout of /proc/PID, with one descriptor. */
static enum guest_encryption with_file(const char *target, bool has_tdx)
{
	char directory[] = "/tmp/kvmscope-encryption-XXXXXX", fd[64], link[80];
	enum guest_encryption encryption;
	int proc;

	CHECK(mkdtemp(directory) != NULL);
	snprintf(fd, sizeof(fd), "%s/fd", directory);
	snprintf(link, sizeof(link), "%s/7", fd);
	CHECK(!mkdir(fd, 0700) && !symlink(target, link));
	proc = open(directory, O_PATH | O_DIRECTORY);
	encryption = encryption_by_files(proc, has_tdx);
	close(proc);
	CHECK(!unlink(link) && !rmdir(fd) && !rmdir(directory));
	return encryption;
}

TEST(vmm_encryption, is_detected_by_open_files_of_any_vmm)
{
	CHECK_EQUAL(with_file("/dev/sev", false), GUEST_SEV_ANY);
	CHECK_EQUAL(with_file("/dev/sev", true), GUEST_SEV_ANY);
	CHECK_EQUAL(with_file("anon_inode:[kvm-gmem]", true), GUEST_TDX);
	CHECK_EQUAL(with_file("anon_inode:[kvm-gmem]", false), GUEST_PLAIN);
	CHECK_EQUAL(with_file("anon_inode:kvm-vm", true), GUEST_PLAIN);
	CHECK_EQUAL(with_file("/dev/sev0", true), GUEST_PLAIN);
	CHECK_EQUAL(encryption_by_files(-1, true), GUEST_PLAIN);
}
