/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope ctl with a fake kvmscoped, which answers at the worst possible moment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/small_recording.h"
#include "vmm/control/control_server.h"
#include "vmm/control/run_directory.h"
#include "vmm/perf_data/recording_name.h"

struct fake_daemon {
	char directory[64], partial[128], new[128];
	struct control_socket socket;
	struct control *control;
};

static int do_status(void *context, json_t *arguments, json_t *result)
{
	json_object_set_new(result, "readable_samples", json_integer(10));
	json_object_set_new(result, "pid", json_integer(getpid()));
	return 0;
}

/* The recording expires while it is being reported. */
static int do_dump(void *context, json_t *arguments, json_t *result)
{
	const struct fake_daemon *daemon = context;

	json_object_set_new(result, "number", json_integer(0));
	json_object_set_new(result, "complete", json_true());
	json_object_set_new(result, "file", json_string(daemon->partial));
	return rename(daemon->partial, daemon->new);
}

/* With a recording that is being written. */
static void start(struct fake_daemon *daemon)
{
	struct small_recording recording;
	char path[128], command[256];

	*daemon = (struct fake_daemon){ .directory = "/tmp/kvmscope-ctl-XXXXXX" };
	REQUIRE(mkdtemp(daemon->directory) != NULL);
	snprintf(daemon->partial, sizeof(daemon->partial), "%s/20261122T105600.123Z%s",
		 daemon->directory, recording_name_ending(RECORDING_PARTIAL));
	snprintf(daemon->new, sizeof(daemon->new), "%s/20261122T105600.123Z%s", daemon->directory,
		 recording_name_ending(RECORDING_NEW));
	small_recording_make(&recording);
	snprintf(command, sizeof(command), "cp %s %s", recording.path, daemon->partial);
	CHECK_EQUAL(system(command), 0); /* NOLINT(cert-env33-c): the test's own command */
	small_recording_free(&recording);
	snprintf(path, sizeof(path), "%s/kvmscoped.sock", daemon->directory);
	REQUIRE_EQUAL(control_socket_open_at(&daemon->socket, path), 0);
	REQUIRE_EQUAL(control_create(&daemon->control), 0);
	control_add(daemon->control, "domain-status", do_status, daemon);
	control_add(daemon->control, "domain-dump", do_dump, daemon);
	REQUIRE_EQUAL(control_start(daemon->control, daemon->socket.fd), 0);
}

static void end(struct fake_daemon *daemon)
{
	char command[128];

	control_destroy(daemon->control);
	control_socket_close(&daemon->socket);
	snprintf(command, sizeof(command), "rm -rf %s", daemon->directory);
	CHECK_EQUAL(system(command), 0); /* NOLINT(cert-env33-c): the test's own command */
}

TEST(ctl_domains, a_recording_renamed_meanwhile_is_printed_with_its_new_name)
{
	struct fake_daemon daemon;
	struct program program;
	char arguments[256], printed[160];

	start(&daemon);
	snprintf(arguments, sizeof(arguments), "ctl --socket %s/kvmscoped.sock dump web",
		 daemon.directory);
	snprintf(printed, sizeof(printed), "%s\n", daemon.new);
	program_run(&program, arguments);
	CHECK_EQUAL(program.status, 0);
	CHECK_STRING(program.text, printed);
	end(&daemon);
}

/* As in kvmscope report -i "$(kvmscope ctl dump web)": the reported name is used later. */
TEST(ctl_domains, a_renamed_recording_is_found_by_its_previous_name)
{
	struct fake_daemon daemon;
	struct program program;
	char arguments[256];

	start(&daemon);
	CHECK_EQUAL(rename(daemon.partial, daemon.new), 0);
	snprintf(arguments, sizeof(arguments), "report -i %s", daemon.partial);
	program_run(&program, arguments);
	CHECK_EQUAL(program.status, 0);
	if (!strstr(program.text, "# Samples  10,"))
		FAIL_TEST("no samples in: %s", program.text);
	end(&daemon);
}
