/* SPDX-License-Identifier: Apache-2.0 */
/* As root, each command parses recordings in a confined process. The recording is a FIFO, so that
 * the process waits for it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/recorded_guest.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "vmm/disk/sandbox_parts.h"

#define OWNER 1234

#define NEED_ROOT                                                                                  \
	do {                                                                                       \
		if (geteuid())                                                                     \
			SKIP("needs root, whose commands are confined");                           \
		if (SANDBOX_SANITIZED)                                                             \
			SKIP("commands are not confined in builds with sanitizers");               \
	} while (0)

/* Starts the shell's COMMAND. */
static pid_t start(const char *command)
{
	pid_t child = fork();

	if (!child) {
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	return child;
}

/* The child of PARENT with a seccomp filter; 0: none. */
static pid_t find_confined(pid_t parent)
{
	char *text = command_output(NULL,
				    "for child in $(cat /proc/%d/task/%d/children); do "
				    "grep -q '^Seccomp:.2$' /proc/$child/status && echo $child; "
				    "done 2> /dev/null",
				    parent, parent);
	pid_t found = (pid_t)atoi(text);

	free(text);
	return found;
}

static pid_t wait_for_confined(pid_t parent)
{
	pid_t found = 0;

	for (unsigned int i = 0; i < 2000 && !(found = find_confined(parent)); i++)
		usleep(10000);
	return found;
}

static void check_status(pid_t confined)
{
	char *text = command_output(NULL,
				    "grep -E '^(Uid|NoNewPrivs|CapEff|CapPrm|CapBnd):' "
				    "/proc/%d/status | tr '\t\n' '  '",
				    confined);

	CHECK_STRING(text, "Uid: 1234 1234 1234 1234 CapPrm: 0000000000000004 CapEff: "
			   "0000000000000004 CapBnd: 0000000000000000 NoNewPrivs: 1 ");
	free(text);
}

static void make_fifo(char *fifo, size_t size, const struct named_guest *named)
{
	snprintf(fifo, size, "%s/fifo", named->home);
	REQUIRE(!mkfifo(fifo, 0600));
	CHECK(!chown(fifo, OWNER, OWNER));
}

/* COMMAND reads $fifo and $other; $output has WANTED. */
static void check_command(const char *command, const char *wanted)
{
	char fifo[96], line[512], output[96];
	struct named_guest named;
	pid_t child, confined;
	int status;
	char *text;

	recorded_guest_begin(&named, "vcpu 0", PERSPECTIVE_GUEST);
	make_fifo(fifo, sizeof(fifo), &named);
	snprintf(output, sizeof(output), "%s/output", named.home);
	snprintf(line, sizeof(line), "fifo=%s other=%s output=%s; %s", fifo, named.path, output,
		 command);
	child = start(line);
	confined = wait_for_confined(child);
	CHECK(confined);
	if (confined)
		check_status(confined);
	free(command_output(&status, "timeout 20 sh -c 'cat %s > %s'", named.path, fifo));
	CHECK_EQUAL(status, 0);
	CHECK(waitpid(child, &status, 0) == child && !status);
	text = command_output(NULL, "cat %s", output);
	CHECK(strstr(text, wanted));
	free(text);
	named_guest_end(&named);
}

TEST(confined_reader, report_reads_with_the_rights_of_the_owner)
{
	NEED_ROOT;
	check_command("exec build/kvmscope report $fifo > $output", "function_0");
}

TEST(confined_reader, export_reads_with_the_rights_of_the_owner)
{
	NEED_ROOT;
	check_command("exec build/kvmscope export -f folded -o $output $fifo", "function_0");
	check_command("exec build/kvmscope export -f html -o $output $fifo", "function_0");
}

TEST(confined_reader, diff_reads_with_the_rights_of_the_owner)
{
	NEED_ROOT;
	check_command("exec build/kvmscope diff $other $fifo > $output", "function_0");
}

/* The process that COMMAND confines crashes. */
static void check_crash(const char *command)
{
	char fifo[96], line[512];
	struct named_guest named;
	pid_t child, confined;
	int status;
	char *text;

	recorded_guest_begin(&named, "vcpu 0", PERSPECTIVE_GUEST);
	make_fifo(fifo, sizeof(fifo), &named);
	snprintf(line, sizeof(line), "cd %s; exec 2> error; fifo=%s; exec $OLDPWD/build/%s",
		 named.home, fifo, command);
	child = start(line);
	confined = wait_for_confined(child);
	CHECK(confined);
	if (confined) {
		check_status(confined);
		kill(confined, SIGSEGV);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	text = command_output(NULL, "cat %s/error", named.home);
	CHECK(strstr(text, "fifo crashed: Segmentation fault"));
	free(text);
	/* Neither the file nor its partial one. */
	text = command_output(NULL, "ls -A %s | grep -c output", named.home);
	CHECK_STRING(text, "0\n");
	free(text);
	named_guest_end(&named);
}

TEST(confined_reader, a_crash_is_an_error_that_names_the_recording)
{
	NEED_ROOT;
	check_crash("kvmscope report $fifo");
	check_crash("kvmscope export -o output.folded $fifo");
	check_crash("kvmscope archive -o output $fifo");
}

TEST(confined_reader, a_killed_command_leaves_no_directory)
{
	struct named_guest named;
	pid_t child, confined;
	char fifo[96], line[512];
	char *text;

	NEED_ROOT;
	recorded_guest_begin(&named, "vcpu 0", PERSPECTIVE_GUEST);
	make_fifo(fifo, sizeof(fifo), &named);
	snprintf(line, sizeof(line), "mkdir %s/tmp; TMPDIR=%s/tmp exec build/kvmscope report %s",
		 named.home, named.home, fifo);
	child = start(line);
	confined = wait_for_confined(child);
	text = command_output(NULL, "ls -d %s/tmp/kvmscope-* | wc -l", named.home);
	CHECK_STRING(text, "1\n");
	free(text);
	kill(child, SIGKILL);
	CHECK(waitpid(child, NULL, 0) == child);
	text = command_output(
		NULL,
		"for i in $(seq 500); do [ -z \"$(ls %s/tmp)\" ] && echo empty && "
		"break; sleep 0.02; done; grep -s State /proc/%d/status | grep -v zombie; echo ended",
		named.home, confined);
	CHECK_STRING(text, "empty\nended\n");
	free(text);
	named_guest_end(&named);
}
