/* SPDX-License-Identifier: Apache-2.0 */
/* The installed programs have the requested protections of compiler and linker. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"

static void check_has(const char *path, const char *options, const char *expected)
{
	char *output = command_output(NULL, "readelf %s %s", options, path);

	if (!output || !strstr(output, expected))
		FAIL_TEST("readelf %s %s does not show %s", options, path, expected);
	free(output);
}

static void check_has_not(const char *path, const char *options, const char *expected)
{
	char *output = command_output(NULL, "readelf %s %s", options, path);

	if (!output || strstr(output, expected))
		FAIL_TEST("readelf %s %s shows %s", options, path, expected);
	free(output);
}

static void check_every_program(const char *path)
{
	check_has(path, "-W --program-headers", "GNU_RELRO");
	check_has(path, "-W --program-headers", "GNU_STACK");
	check_has_not(path, "-W --program-headers", "RWE");
}

static void check_dynamic_program(const char *path)
{
	check_every_program(path);
	check_has(path, "-W --file-header", "Position-Independent Executable");
	check_has(path, "-W --dynamic", "BIND_NOW");
	check_has(path, "-W --dynamic", "PIE");
	check_has(path, "-W --dyn-syms", "__stack_chk_fail");
	check_has(path, "-W --dyn-syms", "__snprintf_chk"); /* _FORTIFY_SOURCE */
}

TEST(hardening, dynamic_programs_are_hardened)
{
	check_dynamic_program("build/kvmscope");
	check_dynamic_program("build/kvmscoped");
}

static void check_static_program(const char *path)
{
	check_every_program(path);
	check_has(path, "-W --file-header", "Position-Independent Executable");
	check_has(path, "-W --dynamic", "PIE");
	check_has_not(path, "-W --dynamic", "NEEDED");
	check_has_not(path, "-W --dynamic", "TEXTREL");
	check_has_not(path, "-W --program-headers", "INTERP");
}

/* musl has no _FORTIFY_SOURCE. */
TEST(hardening, static_programs_are_hardened)
{
	check_static_program("build/agent/kvmscope-agent");
	check_has("build/agent/kvmscope-agent", "-W --symbols", "__stack_chk_fail");
	check_static_program("build/hook/kvmscope-hook"); /* without symbols */
}
