/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversion of pprof to OTLP. protoc decodes it by our definition, by the published one of
 * Debian's package opentelemetry-proto (in sid only), and without one: the numbers of fields in
 * this file are those of the published definition.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/pprof_text.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/small_recording.h"
#include "vmm/report/otlp.h"
#include "vmm/report/pprof.h"

#define BY_DEFINITION "--decode=otlp.ExportProfilesServiceRequest -I vmm/report otlp.proto"

#define PUBLISHED "build/cache/otlp@sid/files/usr/include"
#define SERVICE   "opentelemetry/proto/collector/profiles/v1development/profiles_service.proto"
#define BY_PUBLISHED_DEFINITION                                                                    \
	"--decode=opentelemetry.proto.collector.profiles.v1development."                           \
	"ExportProfilesServiceRequest -I " PUBLISHED " " SERVICE

static const struct otlp_source source = {
	.domain = "web", .host = "h1", .vcpu = 3, .id = "0123456789abcde"
};

static int export_pprof(const struct profile *profile, FILE *to)
{
	return pprof_write(profile, NULL, to);
}

struct converted {
	char *pprof;
	size_t pprof_size;
	uint8_t *request;
	size_t size;
};

static void convert(struct converted *converted)
{
	FILE *to = open_memstream(&converted->pprof, &converted->pprof_size);

	CHECK_EQUAL(small_recording_export(export_pprof, to), 0);
	CHECK_EQUAL(otlp_from_pprof(converted->pprof, converted->pprof_size, &source,
				    &converted->request, &converted->size),
		    0);
}

static void free_converted(struct converted *converted)
{
	free(converted->pprof);
	free(converted->request);
}

/* The request as protoc's text. */
static char *decode(const struct converted *converted, const char *how)
{
	char path[] = "/tmp/kvmscope-otlp-XXXXXX", command[512], *text = NULL;
	int fd = mkstemp(path);
	size_t size = 0;
	FILE *protoc;

	CHECK_EQUAL(write(fd, converted->request, converted->size), converted->size);
	close(fd);
	snprintf(command, sizeof(command), "protoc %s < %s", how, path);
	protoc = popen(command, "r");
	CHECK(getdelim(&text, &size, '\0', protoc) > 0);
	CHECK_EQUAL(pclose(protoc), 0);
	unlink(path);
	return text;
}

static void check_has(const char *text, const char *wanted)
{
	if (!strstr(text, wanted))
		FAIL_TEST("\"%s\" is not in:\n%s", wanted, text);
}

TEST(otlp, has_what_the_pprof_has)
{
	struct converted converted;
	char *text;

	convert(&converted);
	text = decode(&converted, BY_DEFINITION);
	/* A profile of counts and one of time. */
	CHECK_EQUAL(pprof_text_count(text, "sample_type {"), 2);
	CHECK_EQUAL(pprof_text_count(text, "samples {"), 2 * 3);
	check_has(text, "values: 6\n");
	check_has(text, "values: 6000000\n");
	check_has(text, "values: 3000000\n");
	check_has(text, "values: 1000000\n");
	check_has(text, "key: \"service.name\"\n      value {\n        string_value: \"web\"");
	check_has(text, "key: \"host.name\"\n      value {\n        string_value: \"h1\"");
	check_has(text, "key: \"kvmscope.vcpu\"\n      value {\n        int_value: 3");
	check_has(text, "profile_id: \"0123456789abcde");
	/* Three frames in two stacks, and the empty first entries. */
	CHECK_EQUAL(pprof_text_count(text, "function_table {"), 1 + 3);
	CHECK_EQUAL(pprof_text_count(text, "location_table {"), 1 + 3);
	CHECK_EQUAL(pprof_text_count(text, "mapping_table {"), 1 + 1);
	CHECK_EQUAL(pprof_text_count(text, "stack_table {"), 1 + 2);
	CHECK_EQUAL(pprof_text_count(text, "link_table {\n  }"), 1);
	check_has(text, "  mapping_table {\n  }");
	check_has(text, "  location_table {\n  }");
	check_has(text, "  function_table {\n  }");
	check_has(text, "  attribute_table {\n  }");
	check_has(text, "  stack_table {\n  }");
	check_has(text, "string_table: \"middle\"");
	check_has(text, "string_table: \"cpu.logical_number\"");
	free(text);
	free_converted(&converted);
}

/* Fields that a definition does not have would be printed by their numbers. */
TEST(otlp, is_the_same_by_the_published_definition)
{
	struct converted converted;
	char *own, *published;

	if (!command_succeeds("timeout 120 tests/rig/fetch-packages otlp@sid opentelemetry-proto "
			      "> /dev/null && test -r " PUBLISHED "/" SERVICE))
		SKIP("Debian's opentelemetry-proto (sid) could not be fetched");
	convert(&converted);
	own = decode(&converted, BY_DEFINITION);
	published = decode(&converted, BY_PUBLISHED_DEFINITION);
	CHECK_STRING(published, own);
	free(own);
	free(published);
	free_converted(&converted);
}

/* Nested numbers as --decode_raw prints them. */
TEST(otlp, has_the_published_field_numbers)
{
	struct converted converted;
	char *text;

	convert(&converted);
	text = decode(&converted, "--decode_raw");
	check_has(text, "1 {\n  1 {\n    1 {\n      1: \"service.name\"\n"
			"      2 {\n        1: \"web\"\n      }\n    }\n");
	check_has(text, "      2 {\n        3: 3\n      }\n");                 /* int_value */
	check_has(text, "  2 {\n    1 {\n      1: \"kvmscope\"\n      2: \""); /* scope */
	check_has(text, "    2 {\n      1 {\n        1: ");                    /* sample_type */
	check_has(text, "      7: \"0123456789abcde");                         /* profile_id */
	check_has(text, "\n2 {\n");                                            /* dictionary */
	check_has(text, "  5: \"middle\"\n");                                  /* string_table */
	check_has(text, "  4: \"\"\n");                                        /* link_table[0] */
	check_has(text, "  6: \"\"\n"); /* attribute_table[0] */
	check_has(text, "  7: \"\"\n"); /* stack_table[0] */
	free(text);
	free_converted(&converted);
}

TEST(otlp, refuses_what_is_no_profile)
{
	struct converted converted;
	uint8_t *request;
	size_t size;

	convert(&converted);
	for (size_t cut = 0; cut < converted.pprof_size; cut += 7) {
		CHECK_EQUAL(otlp_from_pprof(converted.pprof, cut, &source, &request, &size),
			    -EINVAL);
		CHECK(!request);
	}
	CHECK(strstr(error_message(), "damaged"));
	free_converted(&converted);
}

TEST(otlp, reads_what_the_store_rejected)
{
	/* partial_success (1): rejected_profiles (1) 2, error_message (2) "full\n" */
	static const uint8_t answer[] = { 0x0a, 9, 0x08, 2, 0x12, 5, 'f', 'u', 'l', 'l', '\n' };
	static const uint8_t warning[] = { 0x0a, 4, 0x12, 2, 'h', 'm' };
	char why[16];

	CHECK_EQUAL(otlp_rejected(answer, sizeof(answer), why, sizeof(why)), 2);
	CHECK(!strncmp(why, "full", 4) && !strchr(why, '\n'));
	CHECK_EQUAL(otlp_rejected(warning, sizeof(warning), why, sizeof(why)), 0);
	CHECK_EQUAL(otlp_rejected("", 0, why, sizeof(why)), 0);
	CHECK_EQUAL(otlp_rejected("<html>", 6, why, sizeof(why)), 0);
}
