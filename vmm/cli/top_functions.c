/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/top_functions.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/read_file.h"
#include "vmm/cli/confined_reader.h"
#include "vmm/report/report_rows.h"

#define FUNCTIONS_MAX 500
/* Functions with call chains: the hottest ones. */
#define CALLERS_MAX  100
#define CALLERS_SIZE 8192 /* bytes of a function's call tree */

struct reading {
	json_t *object;
	struct profile_arguments arguments;
	double seconds;
	int fd;
};

int top_json_send(const json_t *object, int fd)
{
	char *text = json_dumps(object, JSON_COMPACT);
	int error = text ? write_descriptor(fd, text, strlen(text)) : -ENOMEM;

	free(text);
	if (!error)
		error = write_descriptor(fd, "\n", 1);
	return error ? error_set(error, "cannot send the functions: %s", strerror(-error)) : 0;
}

/* NULL: none are known. */
static json_t *callers_json(const struct report *report, const struct report_row *row)
{
	json_t *json = NULL;
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	if (!to)
		return NULL;
	report_print_call_tree(report, row, to);
	if (!fclose(to) && size)
		json = json_stringn(text, size < CALLERS_SIZE ? size : CALLERS_SIZE);
	free(text);
	return json;
}

static bool is_host(const struct report_row *row)
{
	return !strcmp(row->image, PROFILE_HOST_IMAGE);
}

static json_t *row_json(const struct reading *reading, const struct report *report,
			const struct report_row *row, bool with_callers)
{
	char address[24];
	json_t *json = json_pack("{s:f, s:I, s:s, s:s, s:s, s:b}", "cpu_percent",
				 (double)row->weight / 1e7 / reading->seconds, "samples",
				 (json_int_t)row->samples, "function",
				 report_frame_name(address, row->frame), "image", row->image,
				 "process", row->comm, "kernel", row->kernel);
	json_t *callers = with_callers ? callers_json(report, row) : NULL;

	if (callers)
		json_object_set_new(json, "callers", callers);
	return json;
}

static void add_functions(const struct reading *reading, const struct report *report)
{
	json_t *rows = json_array();
	uint64_t host = 0;

	for (size_t i = 0; i < report->count; i++) {
		const struct report_row *row = report->rows[i];
		size_t added = json_array_size(rows);

		if (is_host(row))
			host += row->samples;
		else if (added < FUNCTIONS_MAX)
			json_array_append_new(rows,
					      row_json(reading, report, row, added < CALLERS_MAX));
	}
	json_object_set_new(reading->object, "samples",
			    json_integer((json_int_t)profile_samples(report->profile)));
	json_object_set_new(reading->object, "host_samples", json_integer((json_int_t)host));
	json_object_set_new(reading->object, "lost_samples",
			    json_integer((json_int_t)profile_lost(report->profile)));
	json_object_set_new(reading->object, "functions", rows);
}

static int read_and_send(void *context)
{
	const struct reading *reading = context;
	const struct report_options options = {
		.keys = REPORT_SYMBOL | REPORT_IMAGE | REPORT_COMM,
		.call_trees = true,
	};
	struct profile *profile;
	struct report *report;
	int error = profile_load(&profile, &reading->arguments.options);

	if (error)
		return error;
	error = report_build(&report, profile, &options);
	if (!error) {
		add_functions(reading, report);
		error = top_json_send(reading->object, reading->fd);
		report_free(report);
	}
	profile_free(profile);
	return error;
}

int top_functions_send(json_t *object, const char *path, const char *vmlinux, double seconds,
		       int fd)
{
	struct reading reading = { .object = object, .seconds = seconds, .fd = fd };
	int error;

	profile_arguments_options(&reading.arguments);
	reading.arguments.options.input = path;
	reading.arguments.options.vmlinux = vmlinux;
	error = confined_read(&reading.arguments, NULL, NULL, &fd, read_and_send, &reading);
	profile_arguments_free(&reading.arguments);
	return error;
}
