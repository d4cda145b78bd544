/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_control.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/run_watch_control.h"
#include "vmm/control/control_server.h"
#include "vmm/control/run_directory.h"

struct run_control {
	const struct run_options *options;
	struct run_profile *profile; /* NULL without one */
	struct control_socket socket;
	struct control *control;
	uint64_t started; /* ns of CLOCK_MONOTONIC */
};

static int need_profile(const struct run_control *self)
{
	return self->profile ? 0
			     : error_set(-ENOTSUP,
					 "this run has --no-profile: there is nothing to sample");
}

/* The answer of the three commands that change the rate. */
static void add_rate(const struct run_control *self, json_t *result)
{
	bool paused;
	unsigned int frequency = run_profile_frequency(self->profile, &paused);

	json_object_set_new(result, "state", json_string(paused ? "paused" : "sampling"));
	json_object_set_new(result, "frequency", json_integer(frequency));
}

static int set_pause(const struct run_control *self, const json_t *arguments, bool paused,
		     json_t *result)
{
	int error = control_no_arguments(arguments);

	if (!error)
		error = need_profile(self);
	if (!error)
		error = run_profile_pause(self->profile, paused);
	if (!error)
		add_rate(self, result);
	return error;
}

static int do_pause(void *context, json_t *arguments, json_t *result)
{
	return set_pause(context, arguments, true, result);
}

static int do_resume(void *context, json_t *arguments, json_t *result)
{
	return set_pause(context, arguments, false, result);
}

static int do_freq(void *context, json_t *arguments, json_t *result)
{
	const struct run_control *self = context;
	json_int_t frequency;
	int error = need_profile(self);

	if (error)
		return error;
	if (json_unpack_ex(arguments, NULL, 0, "{s:I !}", "frequency", &frequency))
		return error_set(-EINVAL,
				 "freq takes one argument, \"frequency\", an integer in Hz");
	if (frequency < 1 || frequency > RECORD_FREQUENCY_MAX)
		return error_set(
			-EINVAL,
			"the sampling frequency must be 1 to %u Hz, not %" JSON_INTEGER_FORMAT,
			RECORD_FREQUENCY_MAX, frequency);
	error = run_profile_set_frequency(self->profile, (unsigned int)frequency);
	if (!error)
		add_rate(self, result);
	return error;
}

/* The kernel's release and paths may not be UTF-8. */
static json_t *string_or_null(const char *text)
{
	json_t *string = text ? json_string(text) : NULL;

	return string ? string : json_null();
}

static json_t *profile_status(const struct run_control *self)
{
	const struct run_options *options = self->options;
	struct collector_statistics statistics;
	struct flight_requests *flight;
	json_t *profile;

	if (!self->profile)
		return json_null();
	flight = run_profile_flight(self->profile);
	run_profile_statistics(self->profile, &statistics);
	profile = json_pack(
		"{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "clock",
		options->clock == RUN_CLOCK_WALL ? "wall" : "cpu", "output",
		string_or_null(options->record.output), "samples", (json_int_t)statistics.samples,
		"lost", (json_int_t)statistics.lost, "bytes", (json_int_t)statistics.bytes,
		"sampled_ns", (json_int_t)statistics.weight, "cost_ns", (json_int_t)statistics.cost,
		"flight_files", flight ? json_integer(flight_requests_files(flight)) : json_null(),
		"guest_release", string_or_null(*statistics.release ? statistics.release : NULL));
	add_rate(self, profile);
	return profile;
}

static int do_status(void *context, json_t *arguments, json_t *result)
{
	const struct run_control *self = context;
	const struct run_options *options = self->options;
	int error = control_no_arguments(arguments);
	json_t *status;

	if (error)
		return error;
	status = json_pack("{s:i, s:o, s:s, s:f, s:o, s:i, s:I, s:o}", "pid", (int)getpid(), "name",
			   string_or_null(options->name), "kvmscope", KVMSCOPE_VERSION, "seconds",
			   (double)(clock_ns(CLOCK_MONOTONIC) - self->started) / 1e9, "kernel",
			   string_or_null(options->boot.kernel), "vcpus", (int)options->cpus,
			   "memory", (json_int_t)options->memory_size, "profile",
			   profile_status(self));
	json_object_update(result, status);
	json_decref(status);
	return 0;
}

static void add_commands(struct run_control *self)
{
	control_add(self->control, "status", do_status, self);
	control_add(self->control, "pause", do_pause, self);
	control_add(self->control, "resume", do_resume, self);
	control_add(self->control, "freq", do_freq, self);
	run_watch_add_commands(self->control,
			       self->profile ? run_profile_watch(self->profile) : NULL);
	run_flight_add_commands(self->control,
				self->profile ? run_profile_flight(self->profile) : NULL);
}

static int open_socket(struct run_control *self)
{
	const struct run_options *options = self->options;

	return options->control_path ? control_socket_open_at(&self->socket, options->control_path)
				     : control_socket_open(&self->socket, options->name);
}

static int start(struct run_control *self)
{
	int error = control_create(&self->control);

	if (error)
		return error;
	add_commands(self);
	return control_start(self->control, self->socket.fd);
}

int run_control_open(struct run_control **control, const struct run_options *options,
		     struct run_profile *profile)
{
	struct run_control *self;
	int error;

	*control = NULL;
	if (!options->control)
		return 0;
	self = calloc(1, sizeof(*self));
	if (!self)
		return error_set(-ENOMEM, "no memory for the control socket");
	*self = (struct run_control){ .options = options, .profile = profile, .socket.fd = -1 };
	self->started = clock_ns(CLOCK_MONOTONIC);
	error = open_socket(self);
	if (error && !options->control_path && !options->name) {
		log_warning(
			"kvmscope ctl cannot reach this run: %s; --control PATH puts its socket elsewhere",
			error_message());
		free(self);
		return 0;
	}
	if (!error)
		error = start(self);
	if (error) {
		run_control_close(self);
		return error;
	}
	log_debug("control socket: %s", self->socket.path);
	*control = self;
	return 0;
}

void run_control_close(struct run_control *control)
{
	if (!control)
		return;
	control_destroy(control->control);
	control_socket_close(&control->socket);
	free(control);
}
