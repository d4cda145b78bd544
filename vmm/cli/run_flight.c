/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_flight.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "shared/error.h"
#include "shared/ring.h"
#include "vmm/cli/confine.h"

static int size_of_memory(const struct run_options *options, size_t *size)
{
	uint64_t each = options->flight_size / options->cpus;

	if (each < RING_SIZE_MIN)
		return error_set(-EINVAL, "--flight: %u vCPUs need at least %luK", options->cpus,
				 options->cpus * (RING_SIZE_MIN >> 10));
	for (*size = RING_SIZE_MIN; *size * 2 <= each && *size < RING_SIZE_MAX;)
		*size *= 2;
	return 0;
}

int run_flight_ring_size(const struct run_options *options, size_t *size)
{
	return options->flight_size ? size_of_memory(options, size)
				    : flight_ring_size(options->flight_time + options->flight_after,
						       options->record.frequency,
						       options->record.callchains, size);
}

int run_flight_create(struct flight_requests **flight, const struct run_options *options)
{
	return flight_requests_create(flight, &(struct flight_requests_options){
						      .before = options->flight_time,
						      .after = options->flight_after,
						      .by_guest_max = options->flight_max,
					      });
}

/* The detail is the first line of TEXT. */
static void fire_line(struct flight_requests *flight, enum trigger_kind kind, const char *text)
{
	char line[TRIGGER_DETAIL_SIZE];

	text += strspn(text, " \n");
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(text, "\n"), text);
	trigger_fire(flight_requests_trigger(flight), kind, line);
}

void run_flight_guest_ended(struct flight_requests *flight, const struct machine_result *result,
			    bool timed_out)
{
	switch (result->end) {
	case VCPU_END_RESET:
		trigger_fire(flight_requests_trigger(flight), TRIGGER_RESET, "");
		break;
	case VCPU_END_SHUTDOWN:
		/* The second line has what the kind does not say: where it was. */
		fire_line(flight, TRIGGER_TRIPLE_FAULT,
			  result->message + strcspn(result->message, "\n"));
		break;
	case VCPU_END_INTERNAL_ERROR:
	case VCPU_END_HOST_ERROR:
		fire_line(flight, TRIGGER_KVM_ERROR, result->message);
		break;
	case VCPU_END_STOPPED:
		if (timed_out)
			trigger_fire(flight_requests_trigger(flight), TRIGGER_TIMEOUT, "");
		break;
	case VCPU_END_POWER_OFF:
	case VCPU_END_DEBUG_EXIT:
		break;
	}
}

static int need_flight(const struct flight_requests *flight)
{
	return flight ? 0
		      : error_set(-ENOTSUP,
				  "this run has no flight recorder: start it with --flight, "
				  "as in kvmscope run --flight 30s");
}

/* A missing member and null leave the choice to the run. */
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
	if (!error && path)
		error = confine_check_output(path);
	if (!error)
		error = flight_requests_add(context, path, after, &number);
	if (!error)
		json_object_set_new(result, "number", json_integer((json_int_t)number));
	return error;
}

static int do_dump_result(void *context, json_t *arguments, json_t *result)
{
	json_int_t number;
	int error = need_flight(context);

	if (error)
		return error;
	if (json_unpack_ex(arguments, NULL, 0, "{s:I !}", "number", &number))
		return error_set(-EINVAL,
				 "dump-result takes one argument, \"number\", as dump returned it");
	return flight_requests_result(context, (uint64_t)number, result);
}

void run_flight_add_commands(struct control *control, struct flight_requests *flight)
{
	control_add(control, "dump", do_dump, flight);
	control_add(control, "dump-result", do_dump_result, flight);
}
