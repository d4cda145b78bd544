/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/small_recording.h"
#include "vmm/report/firefox.h"

/* Each column of a table has as many rows as the table. */
static void check_tables(json_t *thread)
{
	const char *name, *column;
	json_t *table, *values;

	json_object_foreach(thread, name, table)
	{
		if (!json_is_object(table))
			continue;
		json_object_foreach(
			table, column,
			values) if (json_is_array(values) &&
				    (json_int_t)json_array_size(values) !=
					    json_integer_value(json_object_get(table, "length")))
			FAIL_TEST("%s.%s has a wrong length", name, column);
	}
}

static const char *string_at(json_t *profile, json_t *number)
{
	json_t *strings = json_object_get(json_object_get(profile, "shared"), "stringArray");

	return json_string_value(json_array_get(strings, (size_t)json_integer_value(number)));
}

static json_t *cell(json_t *thread, const char *table, const char *column, json_t *row)
{
	return json_array_get(json_object_get(json_object_get(thread, table), column),
			      (size_t)json_integer_value(row));
}

/* The names of a sample's frames, the innermost first. */
static void stack_text(json_t *profile, json_t *thread, size_t sample, char *text)
{
	json_t *row = json_integer((json_int_t)sample),
	       *node = cell(thread, "samples", "stack", row);

	for (; json_is_integer(node); node = cell(thread, "stackTable", "prefix", node)) {
		json_t *frame = cell(thread, "stackTable", "frame", node);
		json_t *function = cell(thread, "frameTable", "func", frame);

		text += sprintf(text, "%s<",
				string_at(profile, cell(thread, "funcTable", "name", function)));
	}
	json_decref(row);
}

TEST(firefox, writes_one_thread_for_each_vcpu)
{
	char *text = NULL, stack[128] = "";
	json_t *profile, *threads, *thread, *sum;
	size_t size, i;
	double weight = 0;

	CHECK_EQUAL(small_recording_export(firefox_write, open_memstream(&text, &size)), 0);
	profile = json_loads(text, 0, NULL);
	REQUIRE(profile);
	threads = json_object_get(profile, "threads");
	CHECK_EQUAL(json_array_size(threads), 2);
	json_array_foreach(threads, i, thread) check_tables(thread);
	thread = json_array_get(threads, 0);
	json_array_foreach(json_object_get(json_object_get(thread, "samples"), "weight"), i, sum)
		weight += json_real_value(sum);
	CHECK(weight > 8.999 && weight < 9.001); /* ms */
	stack_text(profile, thread, 0, stack);
	CHECK_STRING(stack, "leaf<middle<middle<vcpu 0<");
	stack[0] = '\0';
	stack_text(profile, json_array_get(threads, 1), 0, stack);
	CHECK_STRING(stack, "leaf<top;with/all<vcpu;1<");
	json_decref(profile);
	free(text);
}

TEST(firefox, reports_write_errors)
{
	CHECK_EQUAL(small_recording_export(firefox_write, fopen("/dev/full", "w")), -EIO);
}
