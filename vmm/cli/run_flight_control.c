/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_flight_control.h"

#include <errno.h>

static int need_flight(const struct flight_requests *flight)
{
	return flight ? 0
		      : error_set(-ENOTSUP,
				  "this run has no flight recorder: start it with --flight, "
				  "as in kvmscope run --flight 30s");
}

/* Null, and what is missing, are the run's own choice. */
static int read_arguments(json_t *arguments, const char **path, uint64_t *after)
{
	json_t *file = NULL, *seconds = NULL;

	if (json_unpack_ex(arguments, NULL, 0, "{s?o, s?o !}", "file", &file, "after", &seconds))
		return error_set(-EINVAL, "dump takes \"file\" and \"after\", and nothing else");
	if (file && !json_is_null(file) &&
	    (!json_is_string(file) || *json_string_value(file) != '/'))
		return error_set(-EINVAL, "dump: \"file\" must be an absolute path");
	if (seconds && !json_is_null(seconds) &&
	    (!json_is_number(seconds) || json_number_value(seconds) < 0 ||
	     json_number_value(seconds) > 1e6))
		return error_set(-EINVAL, "dump: \"after\" must be a number of seconds");
	*path = json_string_value(file);
	*after =
		json_is_number(seconds) ? (uint64_t)(json_number_value(seconds) * 1e9) : UINT64_MAX;
	return 0;
}

static int do_dump(void *context, json_t *arguments, json_t *result)
{
	uint64_t after = UINT64_MAX, number;
	const char *path = NULL;
	int error = need_flight(context);

	if (!error)
		error = read_arguments(arguments, &path, &after);
	if (!error)
		error = flight_requests_ask(context, path, after, &number);
	if (!error)
		json_object_set_new(result, "number", json_integer((json_int_t)number));
	return error;
}

static int do_dump_result(void *context, json_t *arguments, json_t *result)
{
	struct flight_request_result found;
	json_int_t number;
	int error = need_flight(context);

	if (error)
		return error;
	if (json_unpack_ex(arguments, NULL, 0, "{s:I !}", "number", &number))
		return error_set(-EINVAL,
				 "dump-result takes one argument, \"number\", as dump gave it");
	error = flight_requests_result(context, (uint64_t)number, &found);
	if (error && error != -EINPROGRESS)
		return error;
	json_object_set_new(result, "complete", json_boolean(!error));
	if (error)
		return 0;
	json_object_set_new(result, "file", json_string(found.path));
	json_object_set_new(result, "samples", json_integer((json_int_t)found.samples));
	json_object_set_new(result, "bytes", json_integer((json_int_t)found.bytes));
	return 0;
}

void run_flight_control_add(struct control *control, struct flight_requests *flight)
{
	control_add(control, "dump", do_dump, flight);
	control_add(control, "dump-result", do_dump_result, flight);
}
