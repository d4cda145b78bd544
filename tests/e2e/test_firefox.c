/* SPDX-License-Identifier: Apache-2.0 */
/* Firefox Profiler's own command-line reader loads our export. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/e2e/recorded_guest.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"

#define READER "build/readers/node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js"

/*
 * What the reader's COMMANDS, each a line, print. Its "load" gives its daemon half a second to
 * start, which is too short on a busy machine: the daemon is started as "load" does it. A reader
 * that comes while it starts may remove the daemon's session, so another daemon is tried then.
 */
static char *ask(const struct named_guest *named, const char *commands)
{
	recorded_guest_export(named, "guest.firefox.json", "");
	return command_output(
		NULL,
		"export PROFILER_CLI_SESSION_DIR=%s/cli PROFILER_CLI_NO_SYMBOLICATE=1; "
		"reader() { timeout 30 node " READER " \"$@\" --session s; }; "
		"for start in 1 2 3 4; do "
		"rm -rf $PROFILER_CLI_SESSION_DIR; mkdir $PROFILER_CLI_SESSION_DIR; "
		"timeout 100 node " READER
		" --daemon %s/guest.firefox.json --session s > %s/log 2>&1 & "
		"for i in $(seq 15); do sleep 1; reader thread list > %s/up 2>&1 && break 2; done; "
		"kill $!; done; "
		"while read -r command; do reader $command 2>&1; done <<'END'\n%s\nEND\n"
		"kill $!; wait; cat %s/log",
		named->home, named->home, named->home, named->home, commands, named->home);
}

static void check_has(const char *text, const char *what)
{
	if (!strstr(text, what))
		FAIL_TEST("the reader does not show \"%s\":\n%.3000s", what, text);
}

TEST(firefox, shows_vcpus_threads_and_functions)
{
	struct named_guest named;
	char *text;

	if (access(READER, R_OK))
		SKIP("npm could not fetch profiler-cli, see build/readers/npm.log");
	recorded_guest_begin(&named, "vcpu 0", PERSPECTIVE_GUEST);
	text = ask(&named, "profile info --all\nprofile meta\nthread info\nthread samples");
	check_has(text, "Name: guest \342\200\223 6.1.0-test\n");
	check_has(text, "p-0: guest [pid 1]");
	check_has(text, "t-1: vCPU 1 [tid vCPU 1] - 1499.7");
	check_has(text, "Sampling interval: 1ms\n");
	check_has(text, "Arguments: kvmscope run --cpus 2\n");
	check_has(text, "This thread contains 1500 samples and 0 markers.\n");
	/* Every fifth sample is in user mode, and of an unknown program. */
	check_has(text, "  Guest kernel  ");
	check_has(text, " 80.0%\n  Unknown ");
	check_has(text, " f-0. vcpu 0 - total: 1.501s (100.0%)\n");
	check_has(text, " [kernel.kallsyms]!guest_function_0 - self: 347.18ms (23.1%)\n");
	check_has(text, " [fake_module]!module_function_0 - self: 58.028ms (3.9%)\n");
	free(text);
	named_guest_end(&named);
}

/* The time outside of the guest, if it was recorded beside the clock. */
TEST(firefox, shows_exits_as_markers)
{
	struct named_guest named;
	char *text;

	if (access(READER, R_OK))
		SKIP("npm could not fetch profiler-cli, see build/readers/npm.log");
	recorded_guest_begin_outside(&named);
	text = ask(&named, "thread info\nthread markers\nthread markers --thread t-1");
	check_has(text, "This thread contains 1200 samples and 300 markers.\n");
	check_has(text, "  [off-cpu halted]            300 markers  (instant)\n");
	check_has(text, "  [exit npf]                  200 markers  (instant)\n");
	check_has(text, "  [exit io]                   100 markers  (instant)\n");
	free(text);
	named_guest_end(&named);
}

TEST(firefox, keeps_unsymbolized_images_apart)
{
	struct named_guest named;
	char *text;

	if (access(READER, R_OK))
		SKIP("npm could not fetch profiler-cli, see build/readers/npm.log");
	recorded_guest_begin(&named, "a\"\\b", PERSPECTIVE_GUEST);
	free(command_output(NULL, "rm -r %s/.debug", named.home));
	text = ask(&named, "thread samples");
	check_has(text, " a\"\\b - total: 1.501s (100.0%)\n");
	check_has(text, " [kernel.kallsyms] - self: ");
	check_has(text, " [fake_module] - self: ");
	check_has(text, " [unknown] - self: ");
	free(text);
	named_guest_end(&named);
}
