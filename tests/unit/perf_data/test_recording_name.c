/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a recording of kvmscoped by an earlier name. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/small_recording.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/perf_data/recording_name.h"

static void name_of(const char *stem, enum recording_state state, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s%s", stem, recording_name_ending(state));
}

static void rename_to(const char *from, const char *stem, enum recording_state state)
{
	char to[PATH_MAX];

	name_of(stem, state, to);
	CHECK_EQUAL(rename(from, to), 0);
}

static bool is_read(const char *path)
{
	struct perf_data_reader *reader;
	int error = perf_data_reader_open(&reader, path);

	if (error)
		return false;
	error = perf_data_reader_run(reader, &(struct perf_data_events){ 0 });
	perf_data_reader_close(reader);
	return !error;
}

/* The file STEM in STATE, opened by its name in ASKED: found unless that state comes later. */
static void check_found(const char *stem, enum recording_state state, enum recording_state asked)
{
	char path[PATH_MAX], now[PATH_MAX], found[PATH_MAX];
	struct stat status;

	name_of(stem, asked, path);
	name_of(stem, state, now);
	CHECK_EQUAL(is_read(path), asked <= state);
	CHECK_EQUAL(recording_name_find(path, found, &status), asked <= state ? 0 : -ENOENT);
	if (asked <= state)
		CHECK_STRING(found, now);
}

TEST(recording_name, renamed_file_is_found_by_each_earlier_name)
{
	struct small_recording recording;
	char now[PATH_MAX];

	small_recording_make(&recording);
	snprintf(now, sizeof(now), "%s", recording.path);
	for (int state = RECORDING_PARTIAL; state <= RECORDING_COMPLETE; state++) {
		rename_to(now, recording.path, (enum recording_state)state);
		name_of(recording.path, (enum recording_state)state, now);
		for (int asked = RECORDING_PARTIAL; asked <= RECORDING_COMPLETE; asked++)
			check_found(recording.path, (enum recording_state)state,
				    (enum recording_state)asked);
	}
	unlink(now);
	check_found(recording.path, RECORDING_PARTIAL, RECORDING_COMPLETE); /* removed */
	small_recording_free(&recording);
}

TEST(recording_name, other_files_have_one_name)
{
	struct small_recording recording;
	char path[PATH_MAX];

	small_recording_make(&recording);
	snprintf(path, sizeof(path), "%s.partial", recording.path); /* ".data.partial" */
	CHECK_EQUAL(recording_name_open(path), -1);
	CHECK_EQUAL(errno, ENOENT);
	CHECK(!is_read(path));
	small_recording_free(&recording);
}

/* Fewer in the second run, with sanitizers. */
#ifdef __SANITIZE_ADDRESS__
#define RENAMES 40
#else
#define RENAMES 200
#endif

/* Renames like kvmscoped, at any moment of the reader. */
static _Noreturn void rename_both(const char *stem)
{
	char partial[PATH_MAX], new[PATH_MAX], complete[PATH_MAX];

	name_of(stem, RECORDING_PARTIAL, partial);
	name_of(stem, RECORDING_NEW, new);
	name_of(stem, RECORDING_COMPLETE, complete);
	_exit(rename(partial, new) || rename(new, complete));
}

TEST(recording_name, concurrent_renames_are_not_missed)
{
	struct small_recording recording;
	char partial[PATH_MAX], complete[PATH_MAX], found[PATH_MAX];
	struct stat status;

	small_recording_make(&recording);
	name_of(recording.path, RECORDING_PARTIAL, partial);
	name_of(recording.path, RECORDING_COMPLETE, complete);
	rename_to(recording.path, recording.path, RECORDING_PARTIAL);
	for (int round = 0; round < RENAMES; round++) {
		pid_t child = fork();
		int result = 0, missed = 0;

		if (!child)
			rename_both(recording.path);
		while (!waitpid(child, &result, WNOHANG))
			missed += !is_read(partial) || recording_name_find(partial, found, &status);
		CHECK_EQUAL(missed, 0);
		CHECK_EQUAL(result, 0);
		CHECK_EQUAL(rename(complete, partial), 0);
	}
	unlink(partial);
	small_recording_free(&recording);
}
