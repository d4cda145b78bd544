/* SPDX-License-Identifier: Apache-2.0 */
/* A recording and its archive, on a machine that has neither the guest nor its symbols. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/perf_home.h"
#include "tests/e2e/recorded_guest.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"

static char *report_of(const struct named_guest *named)
{
	return command_output(NULL, "TMPDIR=%s build/kvmscope report %s 2>&1", named->home,
			      named->path);
}

/* The recorded guest with an archive beside the recording; the build-id cache is gone. */
static void travel(struct named_guest *named, char **before)
{
	int status;
	char *text;

	recorded_guest_begin(named, "vcpu 0", PERSPECTIVE_GUEST);
	named_guest_cache(named, true);
	*before = report_of(named);
	CHECK(strstr(*before, "guest_function_0 "));
	CHECK(strstr(*before, "module_function_0 "));
	text = command_output(&status, "build/kvmscope archive %s 2>&1", named->path);
	CHECK_EQUAL(status, 0);
	CHECK(strstr(text, "the symbols of 1 image, "));
	free(text);
	free(command_output(&status, "rm -r %s/.debug", named->home));
	CHECK_EQUAL(status, 0);
}

TEST(archive, report_reads_it_beside_the_recording)
{
	struct named_guest named;
	char *before, *after;
	int status;

	travel(&named, &before);
	after = report_of(&named);
	CHECK_STRING(after, before);
	free(after);
	after = command_output(&status, "build/kvmscope export -f folded %s | grep -c function_",
			       named.path);
	CHECK(atoi(after) > 10);
	free(after);
	/* What was unpacked is removed. */
	after = command_output(NULL, "ls %s", named.home);
	CHECK_STRING(after, "perf.data\nperf.data.tar.gz\n");
	free(after);
	free(before);
	named_guest_end(&named);
}

TEST(archive, of_another_recording_is_ignored_with_a_warning)
{
	struct named_guest named;
	char *before, *after;

	travel(&named, &before);
	free(command_output(NULL, "echo >> %s", named.path));
	after = report_of(&named);
	CHECK(strstr(after, "perf.data.tar.gz is of another recording"));
	CHECK(!strstr(after, "guest_function_0 "));
	free(after);
	free(before);
	named_guest_end(&named);
}

TEST(archive, perf_reads_it_once_it_is_unpacked)
{
	struct named_guest named;
	char *before, *text;
	int status;

	NEED_PERF;
	travel(&named, &before);
	text = command_output(&status,
			      "cd %s && mkdir .debug && tar -xf perf.data.tar.gz -C .debug && "
			      "perf script -F ip,sym && perf annotate --stdio guest_function_0",
			      named.home);
	CHECK_EQUAL(status, 0);
	CHECK(strstr(text, "guest_function_1\n"));
	CHECK(strstr(text, "module_function_1\n"));
	CHECK(strstr(text, "ret"));
	free(text);
	free(before);
	named_guest_end(&named);
}

TEST(archive, what_has_no_symbols_is_reported)
{
	struct named_guest named;
	char *before, *text;
	int status;

	travel(&named, &before);
	text = command_output(&status, "build/kvmscope archive -o %s/other %s 2>&1", named.home,
			      named.path);
	CHECK_EQUAL(status, 0);
	CHECK(strstr(text, "1 of 1 images have no symbols here"));
	free(text);
	free(command_output(&status, "build/kvmscope archive - < %s 2>&1", named.path));
	CHECK_EQUAL(status, 1);
	free(before);
	named_guest_end(&named);
}

TEST(archive, is_ignored_with_a_warning_if_it_cannot_be_unpacked)
{
	struct named_guest named;
	char *before, *text;

	travel(&named, &before);
	text = command_output(NULL, "TMPDIR=$(printf '/%%5000d' 0) build/kvmscope report %s 2>&1",
			      named.path);
	CHECK(strstr(text, "TMPDIR is too long; using the build-id cache"));
	CHECK(!strstr(text, "guest_function_0 "));
	free(text);
	free(before);
	named_guest_end(&named);
}
