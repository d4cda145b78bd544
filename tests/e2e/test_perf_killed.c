/* SPDX-License-Identifier: Apache-2.0 */
/* Killed writers: the remaining file is complete for us and for perf. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/perf_home.h"
#include "tests/e2e/perf_recording.h"
#include "tests/unit/shim/test.h"

static void kill_writer(const struct recording *recording, unsigned int delay)
{
	int pipe_ends[2], status;
	pid_t child;
	char byte;

	REQUIRE_EQUAL(pipe(pipe_ends), 0);
	child = recording_in_child(recording, pipe_ends[1]);
	CHECK_EQUAL(read(pipe_ends[0], &byte, 1), 1);
	usleep(delay);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	CHECK(WIFSIGNALED(status) || !WEXITSTATUS(status));
	close(pipe_ends[0]);
	close(pipe_ends[1]);
}

/* After the kill the file has a whole number of flushed blocks, for us and for perf. */
static void check_killed(const struct recording *recording, unsigned int delay, bool with_perf)
{
	unsigned int samples;
	bool cut_off;

	kill_writer(recording, delay);
	samples = recording_read(recording, &cut_off);
	CHECK(cut_off);
	if (with_perf) {
		char *lines = perf_output(
			"perf script -i %s -F time --kallsyms /dev/null 2>/dev/null | wc -l",
			recording->path);

		CHECK_EQUAL(atoi(lines), samples);
		free(lines);
	}
}

static void check_kills(unsigned int compression)
{
	char home[64], path[128];

	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	for (unsigned int i = 0; i < 100; i++)
		check_killed(&(struct recording){ .path = path,
						  .samples = 20000,
						  .compression = compression,
						  .text = FAKE_TEXT },
			     i * 97 % 5000, i % 10 == 0 && perf_runs());
	perf_home_leave(home);
}

TEST(perf_data, killed_writer_leaves_whole_blocks)
{
	check_kills(0);
}

TEST(perf_data, killed_compressing_writer_leaves_whole_blocks)
{
	check_kills(3);
}
