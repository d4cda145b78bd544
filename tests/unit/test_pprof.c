// SPDX-License-Identifier: Apache-2.0
/* The pprof form, decoded by pprof's own definition of it and protoc. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/small_recording.h"
#include "vmm/profile/pprof.h"

#define DEFINITION "/usr/share/gocode/src/github.com/google/pprof/proto"

static char *read_stream(FILE *from)
{
	char *text = NULL;
	size_t size = 0;

	if (getdelim(&text, &size, '\0', from) < 0) {
		free(text);
		text = strdup("");
	}
	return text;
}

/* What protoc makes of the small recording: its text form. */
static char *decoded(void)
{
	struct small_recording recording;
	struct profile_options options = { .vcpu = -1 };
	char path[] = "/tmp/kvmscope-pprof-XXXXXX", command[512], *text;
	struct profile *profile;
	FILE *to = fdopen(mkstemp(path), "w"), *protoc;

	small_recording_make(&recording);
	options.input = recording.path;
	options.kallsyms = recording.kallsyms;
	CHECK_EQUAL(profile_load(&profile, &options), 0);
	CHECK_EQUAL(pprof_write(profile, to), 0);
	fclose(to);
	profile_free(profile);
	small_recording_free(&recording);

	snprintf(command, sizeof(command),
		 "gzip -dc %s | protoc --decode=perftools.profiles.Profile -I " DEFINITION " profile.proto",
		 path);
	protoc = popen(command, "r");
	text = read_stream(protoc);
	CHECK_EQUAL(pclose(protoc), 0);
	unlink(path);
	return text;
}

static size_t count_of(const char *text, const char *what)
{
	size_t count = 0;

	for (; (text = strstr(text, what)); text += strlen(what))
		count++;
	return count;
}

/* The place of STRING in the decoded string table, -1 without. */
static int place_of(const char *text, const char *string)
{
	char line[128];
	int place = 0;

	snprintf(line, sizeof(line), "string_table: \"%s\"\n", string);
	for (; (text = strstr(text, "string_table: ")); text++, place++)
		if (!strncmp(text, line, strlen(line)))
			return place;
	return -1;
}

TEST(pprof, is_what_pprof_s_definition_reads)
{
	char *text = decoded(), wanted[128];

	CHECK_EQUAL(place_of(text, ""), 0);
	CHECK_EQUAL(count_of(text, "sample_type {"), 2);
	snprintf(wanted, sizeof(wanted), "sample_type {\n  type: %d\n  unit: %d\n}", place_of(text, "cpu"),
		 place_of(text, "nanoseconds"));
	CHECK(strstr(text, wanted));

	/* leaf < middle < middle, leaf < top, and that on the other vCPU. */
	CHECK_EQUAL(count_of(text, "sample {"), 3);
	CHECK(strstr(text, "  value: 6\n  value: 6000000\n"));
	CHECK(strstr(text, "  value: 3\n  value: 3000000\n"));
	CHECK(strstr(text, "  value: 1\n  value: 1000000\n"));
	snprintf(wanted, sizeof(wanted), "key: %d\n    num: 1\n", place_of(text, "vcpu"));
	CHECK_EQUAL(count_of(text, wanted), 1);

	CHECK_EQUAL(count_of(text, "function {"), 3);
	CHECK_EQUAL(count_of(text, "location {"), 3);
	CHECK_EQUAL(count_of(text, "address: "), 0);
	snprintf(wanted, sizeof(wanted), "name: %d\n", place_of(text, "middle"));
	CHECK_EQUAL(count_of(text, wanted), 2); /* name and system_name */
	CHECK_EQUAL(count_of(text, "mapping {"), 1);
	free(text);
}

TEST(pprof, says_that_it_can_not_be_written)
{
	struct small_recording recording;
	struct profile_options options = { .vcpu = -1 };
	struct profile *profile;
	FILE *to = fopen("/dev/full", "w");

	small_recording_make(&recording);
	options.input = recording.path;
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	CHECK_EQUAL(pprof_write(profile, to), -ENOSPC);
	fclose(to);
	profile_free(profile);
	small_recording_free(&recording);
}
