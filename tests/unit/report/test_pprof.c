/* SPDX-License-Identifier: Apache-2.0 */
/* The pprof format, decoded by protoc with pprof's own definition. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/pprof_rules.h"
#include "tests/unit/pprof_text.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/small_recording.h"
#include "vmm/report/pprof.h"

/* The small recording as protoc's text. */
static char *decoded_with(const struct pprof_options *wanted)
{
	struct small_recording recording;
	struct profile_options options = { .vcpu = -1 };
	char path[] = "/tmp/kvmscope-pprof-XXXXXX", *text;
	struct profile *profile;
	FILE *to = fdopen(mkstemp(path), "w");

	small_recording_make(&recording);
	options.input = recording.path;
	options.kallsyms = recording.kallsyms;
	CHECK_EQUAL(profile_load(&profile, &options), 0);
	CHECK_EQUAL(pprof_write(profile, wanted, to), 0);
	fclose(to);
	profile_free(profile);
	small_recording_free(&recording);

	text = pprof_text(path);
	unlink(path);
	return text;
}

static char *decoded(void)
{
	return decoded_with(NULL);
}

TEST(pprof, conforms_to_pprof_proto)
{
	char *text = decoded(), wanted[128];

	CHECK_EQUAL(pprof_text_index(text, ""), 0);
	CHECK_EQUAL(pprof_text_count(text, "sample_type {"), 2);
	snprintf(wanted, sizeof(wanted), "sample_type {\n  type: %d\n  unit: %d\n}",
		 pprof_text_index(text, "cpu"), pprof_text_index(text, "nanoseconds"));
	CHECK(strstr(text, wanted));

	/* leaf < middle < middle, leaf < top, and that on the other vCPU. */
	CHECK_EQUAL(pprof_text_count(text, "sample {"), 3);
	CHECK(strstr(text, "  value: 6\n  value: 6000000\n"));
	CHECK(strstr(text, "  value: 3\n  value: 3000000\n"));
	CHECK(strstr(text, "  value: 1\n  value: 1000000\n"));
	for (int vcpu = 0; vcpu < 2; vcpu++) {
		snprintf(wanted, sizeof(wanted), "key: %d\n    str: %d\n",
			 pprof_text_index(text, "vcpu"), pprof_text_index(text, vcpu ? "1" : "0"));
		CHECK_EQUAL(pprof_text_count(text, wanted), vcpu ? 1 : 2);
	}

	CHECK_EQUAL(pprof_text_count(text, "function {"), 3);
	CHECK_EQUAL(pprof_text_count(text, "location {"), 3);
	CHECK_EQUAL(pprof_text_count(text, "address: "), 0);
	snprintf(wanted, sizeof(wanted), "name: %d\n", pprof_text_index(text, "middle"));
	CHECK_EQUAL(pprof_text_count(text, wanted), 2); /* name and system_name */
	CHECK_EQUAL(pprof_text_count(text, "mapping {"), 1);
	free(text);
}

TEST(pprof, reports_write_errors)
{
	struct small_recording recording;
	struct profile_options options = { .vcpu = -1 };
	struct profile *profile;
	FILE *to = fopen("/dev/full", "w");

	small_recording_make(&recording);
	options.input = recording.path;
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	CHECK_EQUAL(pprof_write(profile, NULL, to), -ENOSPC);
	fclose(to);
	profile_free(profile);
	small_recording_free(&recording);
}

/* For a store that makes a series of each set of labels. */
TEST(pprof, of_one_vcpu_has_tasks_as_roots)
{
	const struct pprof_options options = { .one_vcpu = true,
					       .vcpu = 1,
					       .for_store = true,
					       .from = 5000000000,
					       .until = 7000000000 };
	char *text = decoded_with(&options), wanted[128];
	int id;

	CHECK_EQUAL(pprof_text_count(text, "sample {"), 1);
	CHECK_EQUAL(pprof_text_count(text, "label {"), 0);
	CHECK(strstr(text, "  value: 1\n  value: 1000000\n"));
	CHECK(strstr(text, "\ntime_nanos: 5000000000\nduration_nanos: 2000000000\n"));
	CHECK_EQUAL(pprof_text_count(text, "location {"), 3);
	CHECK_EQUAL(pprof_text_count(text, "function {"), 3);
	snprintf(wanted, sizeof(wanted), "  name: %d\n", pprof_text_index(text, "vcpu;1"));
	CHECK_EQUAL(pprof_text_count(text, wanted), 1);
	/* leaf, top, and the task as the outermost frame. */
	CHECK(sscanf(strstr(text, wanted) - strlen("  id: 3\n"), "  id: %d", &id) == 1);
	snprintf(wanted, sizeof(wanted), "  location_id: %d\n  value: 1\n", id);
	CHECK_EQUAL(pprof_text_count(text, wanted), 1);
	free(text);
}

/* The small recording as Pyroscope gets it, unsymbolized. */
static const char *broken_unnamed(const struct pprof_options *wanted, size_t missing)
{
	struct profile_options options = { .vcpu = -1 };
	struct small_recording recording;
	struct profile *profile;
	const char *broken;
	char *bytes = NULL;
	size_t size = 0;
	FILE *to = open_memstream(&bytes, &size);

	small_recording_make(&recording);
	options.input = recording.path;
	CHECK_EQUAL(profile_load(&profile, &options), 0);
	CHECK_EQUAL(pprof_write(profile, wanted, to), 0);
	fclose(to);
	broken = pprof_rules_broken(bytes, size - missing, 5, 7);
	profile_free(profile);
	small_recording_free(&recording);
	free(bytes);
	return broken;
}

/* Pyroscope drops locations without a function and counts them for the caller. */
TEST(pprof, names_unsymbolized_frames_by_their_image_for_a_store)
{
	const struct pprof_options store = { .for_store = true,
					     .from = 5000000000,
					     .until = 7000000000 };
	const struct pprof_options other = { .from = 5000000000, .until = 7000000000 };

	CHECK_STRING(broken_unnamed(&store, 0) ?: "", "");
	CHECK_STRING(broken_unnamed(&other, 0) ?: "",
		     "a location has no function: its samples are its caller's");
	CHECK_STRING(broken_unnamed(&store, 1) ?: "",
		     "it is no gzipped pprof, or one of more than 4 MiB");
	CHECK_STRING(broken_unnamed(NULL, 0) ?: "", "it was not begun when the request says");
}
