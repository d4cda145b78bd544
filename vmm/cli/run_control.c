/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_control.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/control/control_server.h"
#include "vmm/control/run_directory.h"
#include "vmm/guest/guest_registers.h"
#include "vmm/guest/linux/task.h"

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

/* The debug registers. */

static const char *kind_name(enum breakpoint_kind kind)
{
	static const char *const names[] = { [BREAKPOINT_EXECUTE] = "x",
					     [BREAKPOINT_WRITE] = "w",
					     [BREAKPOINT_IO] = "io",
					     [BREAKPOINT_ACCESS] = "rw" };

	return names[kind];
}

/* Addresses are strings: JSON has no unsigned 64-bit numbers. */
static void set_hexadecimal(json_t *object, const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "0x%llx", (unsigned long long)value);
	json_object_set_new(object, name, json_string(text));
}

static void describe_breakpoint(json_t *slot, const struct breakpoint *breakpoint)
{
	set_hexadecimal(slot, "address", breakpoint->address);
	json_object_set_new(slot, "kind", json_string(kind_name(breakpoint->kind)));
	json_object_set_new(slot, "length", json_integer(breakpoint->length));
}

static json_t *describe_slot(const struct watch_slot *slot)
{
	static const char *const owners[] = {
		[WATCH_OWNER_NONE] = "free",
		[WATCH_OWNER_GUEST] = "guest",
		[WATCH_OWNER_WATCH] = "watch",
		[WATCH_OWNER_UNKNOWN] = "unknown",
	};
	json_t *object = json_object();

	json_object_set_new(object, "owner", json_string(owners[slot->owner]));
	if (slot->owner == WATCH_OWNER_WATCH) {
		json_object_set_new(object, "watch", json_integer(slot->watch));
		json_object_set_new(object, "guest_lost", json_boolean(slot->guest_lost));
	}
	if (slot->owner == WATCH_OWNER_WATCH || slot->owner == WATCH_OWNER_GUEST)
		describe_breakpoint(object, &slot->breakpoint);
	return object;
}

static json_t *times_of(struct watches *watches, unsigned int number, int vcpu)
{
	struct watch_statistics statistics;

	watch_statistics(watches, number, vcpu, &statistics);
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "hits", (json_int_t)statistics.hits,
			 "enabled_ns", (json_int_t)statistics.times.enabled, "running_ns",
			 (json_int_t)statistics.times.running, "throttled",
			 (json_int_t)statistics.throttled, "suspended",
			 (json_int_t)statistics.suspended, "disarmed",
			 (json_int_t)statistics.disarmed);
}

/* A process of the guest, by everything that a watch can be bound to. */
static json_t *describe_task(struct run_watch *watch, unsigned int vcpu)
{
	struct guest_registers registers;
	struct guest_task task;
	json_t *object, *comm;

	if (!run_watch_ran(watch, vcpu, &registers, &task))
		return json_null();
	object = json_object();
	comm = json_string(task.comm);
	json_object_set_new(object, "pid", json_integer(task.pid));
	json_object_set_new(object, "comm",
			    comm ? comm
				 : json_string("?")); /* the guest's bytes may not be UTF-8 */
	set_hexadecimal(object, "cr3", registers.paging.cr3 & CR3_ADDRESS);
	return object;
}

static json_t *describe_vcpu(struct run_watch *watch, unsigned int vcpu)
{
	struct watches *watches = run_watch_watches(watch);
	json_t *slots = json_array(), *counts = json_array();
	struct watch_slot slot[DEBUG_SLOTS];

	watch_slots(watches, vcpu, slot);
	for (unsigned int i = 0; i < DEBUG_SLOTS; i++)
		json_array_append_new(slots, describe_slot(&slot[i]));
	for (unsigned int i = 0; i < watch_count(watches); i++)
		json_array_append_new(counts, times_of(watches, i, (int)vcpu));
	return json_pack("{s:o, s:o, s:o}", "slots", slots, "watches", counts, "task",
			 describe_task(watch, vcpu));
}

static int need_watch(const struct run_watch *watch)
{
	return watch ? 0
		     : error_set(
			       -ENOTSUP,
			       "this run has --no-profile: only the guest uses its debug registers");
}

static json_t *describe_watch(struct run_watch *watch, unsigned int number,
			      const struct run_watch_description *description)
{
	static const char *const states[] = { [RUN_WATCH_WAITING] = "waiting",
					      [RUN_WATCH_WATCHING] = "watching",
					      [RUN_WATCH_REMOVED] = "removed" };
	const struct watch_spec *spec = &description->spec;
	json_t *object = times_of(run_watch_watches(watch), number, ARBITER_ALL_VCPUS);

	json_object_set_new(object, "number", json_integer(number));
	json_object_set_new(object, "name", json_string(description->name));
	json_object_set_new(object, "state", json_string(states[description->state]));
	json_object_set_new(object, "pinned", json_boolean(spec->pinned));
	json_object_set_new(object, "vcpu",
			    spec->vcpu < 0 ? json_null() : json_integer(spec->vcpu));
	return object;
}

static int do_bp_list(void *context, json_t *arguments, json_t *result)
{
	struct run_watch *watch = context;
	int error = control_no_arguments(arguments);
	json_t *names, *all, *vcpus;
	struct run_watch_description description;

	if (!error)
		error = need_watch(watch);
	if (error)
		return error;
	names = json_array();
	all = json_array();
	vcpus = json_array();
	for (unsigned int i = 0; run_watch_describe(watch, i, &description); i++) {
		json_array_append_new(names, json_string(description.name));
		json_array_append_new(all, describe_watch(watch, i, &description));
	}
	for (unsigned int i = 0; i < run_watch_vcpus(watch); i++)
		json_array_append_new(vcpus, describe_vcpu(watch, i));
	json_object_set_new(result, "watches", names);
	json_object_set_new(result, "all", all);
	json_object_set_new(result, "vcpus", vcpus);
	json_object_set_new(result, "guest_lost",
			    json_integer((json_int_t)watches_guest_lost(run_watch_watches(watch))));
	return 0;
}

/* The answer of the two commands that change something. */
static void add_watch(struct run_watch *watch, unsigned int number, json_t *result)
{
	struct run_watch_description description;
	json_t *object;

	if (!run_watch_describe(watch, number, &description))
		return;
	object = describe_watch(watch, number, &description);
	json_object_update(result, object);
	json_decref(object);
}

static int do_bp_add(void *context, json_t *arguments, json_t *result)
{
	struct run_watch *watch = context;
	struct watch_spec spec;
	const char *text;
	int number = need_watch(watch);

	if (number)
		return number;
	if (json_unpack_ex(arguments, NULL, 0, "{s:s !}", "watch", &text))
		return error_set(-EINVAL,
				 "bp-add takes one argument, \"watch\", a string as for --watch");
	number = watch_spec_parse(&spec, text);
	if (!number && spec.vcpu >= (int)run_watch_vcpus(watch))
		number = error_set(-EINVAL, "there is no vCPU %d: vCPUs are numbered from 0 to %u",
				   spec.vcpu, run_watch_vcpus(watch) - 1);
	if (!number)
		number = run_watch_add(watch, &spec);
	if (number < 0)
		return number;
	add_watch(watch, (unsigned int)number, result);
	return 0;
}

/* How the user selected a watch. */
struct selection {
	const char *name; /* of its event; NULL: by SPEC */
	struct watch_spec spec;
	bool exactly; /* options included, not the address only */
};

static bool same_address(const struct watch_spec *a, const struct watch_spec *b)
{
	return !strcmp(a->symbol, b->symbol) && a->offset == b->offset && a->kind == b->kind &&
	       a->length == b->length;
}

static bool same_options(const struct watch_spec *a, const struct watch_spec *b)
{
	return a->vcpu == b->vcpu && a->pinned == b->pinned && a->cr3 == b->cr3 &&
	       a->pid == b->pid && !strcmp(a->comm, b->comm) && a->period == b->period &&
	       a->limit == b->limit;
}

static bool is_selected(const struct run_watch_description *watch,
			const struct selection *selection)
{
	if (watch->state == RUN_WATCH_REMOVED)
		return false;
	if (selection->name)
		return !strcmp(watch->name, selection->name);
	return same_address(&watch->spec, &selection->spec) &&
	       (!selection->exactly || same_options(&watch->spec, &selection->spec));
}

/* Returns the number of selected watches; *NUMBER is the last one. */
static int count_selected(struct run_watch *watch, const struct selection *selection, int *number)
{
	struct run_watch_description description;
	int count = 0;

	for (unsigned int i = 0; run_watch_describe(watch, i, &description); i++) {
		if (!is_selected(&description, selection))
			continue;
		*number = (int)i;
		count++;
	}
	return count;
}

static int count_by_spec(struct run_watch *watch, const char *text, int *number)
{
	struct selection selection = { .name = NULL };
	int count, exact;

	if (watch_spec_parse(&selection.spec, text))
		return -EINVAL;
	count = count_selected(watch, &selection, number);
	selection.exactly = true;
	exact = count > 1 ? count_selected(watch, &selection, number) : 0;
	return exact ? exact : count;
}

int run_watch_find(struct run_watch *watch, const char *text)
{
	unsigned long decimal;
	int number = 0, count;
	char *end;

	decimal = strtoul(text, &end, 10);
	if (isdigit((unsigned char)*text) && !*end)
		return decimal < WATCHES_MAX ? (int)decimal : WATCHES_MAX;
	count = count_selected(watch, &(struct selection){ .name = text }, &number);
	if (!count)
		count = count_by_spec(watch, text, &number);
	if (count < 0 || count == 1)
		return count < 0 ? count : number;
	if (count)
		return error_set(-EINVAL, "%d watches are %s: give the number from bp list", count,
				 text);
	return error_set(-ENOENT, "there is no watch %s; bp list shows them", text);
}

static int do_bp_remove(void *context, json_t *arguments, json_t *result)
{
	struct run_watch *watch = context;
	const char *text;
	int number = need_watch(watch);

	if (number)
		return number;
	if (json_unpack_ex(arguments, NULL, 0, "{s:s !}", "watch", &text))
		return error_set(
			-EINVAL,
			"bp-remove takes one argument, \"watch\", a string: its number, the name of "
			"its event, or the argument of bp-add");
	number = run_watch_find(watch, text);
	if (number >= 0) {
		int error = run_watch_remove(watch, (unsigned int)number);

		if (error)
			return error;
		add_watch(watch, (unsigned int)number, result);
	}
	return number < 0 ? number : 0;
}

static void add_commands(struct run_control *self)
{
	struct run_watch *watch = self->profile ? run_profile_watch(self->profile) : NULL;

	control_add(self->control, "status", do_status, self);
	control_add(self->control, "pause", do_pause, self);
	control_add(self->control, "resume", do_resume, self);
	control_add(self->control, "freq", do_freq, self);
	control_add(self->control, "bp-list", do_bp_list, watch);
	control_add(self->control, "bp-add", do_bp_add, watch);
	control_add(self->control, "bp-remove", do_bp_remove, watch);
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
