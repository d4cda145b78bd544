/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/qemu_command_line.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"

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
