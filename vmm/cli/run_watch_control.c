// SPDX-License-Identifier: Apache-2.0
#include "vmm/cli/run_watch_control.h"

#include <errno.h>
#include <stdio.h>

#include "shared/error.h"
#include "vmm/cli/run_watch_find.h"
#include "vmm/guest/guest_registers.h"

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

static void tell_breakpoint(json_t *slot, const struct breakpoint *breakpoint)
{
	set_hexadecimal(slot, "address", breakpoint->address);
	json_object_set_new(slot, "kind", json_string(kind_name(breakpoint->kind)));
	json_object_set_new(slot, "length", json_integer(breakpoint->length));
}

static json_t *tell_slot(const struct watch_slot *slot)
{
	static const char *const owners[] = {
		[WATCH_OWNER_NONE] = "free",
		[WATCH_OWNER_GUEST] = "guest",
		[WATCH_OWNER_WATCH] = "watch",
		[WATCH_OWNER_UNKNOWN] = "unknown",
	};
	json_t *told = json_object();

	json_object_set_new(told, "owner", json_string(owners[slot->owner]));
	if (slot->owner == WATCH_OWNER_WATCH) {
		json_object_set_new(told, "watch", json_integer(slot->watch));
		json_object_set_new(told, "guest_lost", json_boolean(slot->guest_lost));
	}
	if (slot->owner == WATCH_OWNER_WATCH || slot->owner == WATCH_OWNER_GUEST)
		tell_breakpoint(told, &slot->breakpoint);
	return told;
}

static void tell_times(struct watches *watches, unsigned int number, int vcpu, json_t *to)
{
	struct watch_statistics statistics;

	watch_statistics(watches, number, vcpu, &statistics);
	json_object_set_new(to, "hits", json_integer((json_int_t)statistics.hits));
	json_object_set_new(to, "enabled_ns", json_integer((json_int_t)statistics.times.enabled));
	json_object_set_new(to, "running_ns", json_integer((json_int_t)statistics.times.running));
	json_object_set_new(to, "throttled", json_integer((json_int_t)statistics.throttled));
	json_object_set_new(to, "suspended", json_integer((json_int_t)statistics.suspended));
	json_object_set_new(to, "disarmed", json_integer((json_int_t)statistics.disarmed));
}

/* A process of the guest by the names that a watch can be bound to it by. */
static json_t *tell_task(struct run_watch *watch, unsigned int vcpu)
{
	struct guest_registers registers;
	struct guest_task task;
	json_t *told, *comm;

	if (!run_watch_ran(watch, vcpu, &registers, &task))
		return json_null();
	told = json_object();
	comm = json_string(task.comm);
	json_object_set_new(told, "pid", json_integer(task.pid));
	json_object_set_new(told, "comm",
			    comm ? comm : json_string("?")); /* the guest's bytes may be no UTF-8 */
	set_hexadecimal(told, "cr3", registers.paging.cr3 & CR3_ADDRESS);
	return told;
}

static json_t *tell_vcpu(struct run_watch *watch, unsigned int vcpu)
{
	struct watches *watches = run_watch_watches(watch);
	json_t *told = json_object(), *slots = json_array(), *counts = json_array();
	struct watch_slot slot[DEBUG_SLOTS];

	watch_slots(watches, vcpu, slot);
	for (unsigned int i = 0; i < DEBUG_SLOTS; i++)
		json_array_append_new(slots, tell_slot(&slot[i]));
	for (unsigned int i = 0; i < watch_count(watches); i++) {
		json_t *count = json_object();

		tell_times(watches, i, (int)vcpu, count);
		json_array_append_new(counts, count);
	}
	json_object_set_new(told, "slots", slots);
	json_object_set_new(told, "watches", counts);
	json_object_set_new(told, "task", tell_task(watch, vcpu));
	return told;
}

static int check_profile(const struct run_watch *watch)
{
	return watch ? 0
		     : error_set(
			       -ENOTSUP,
			       "this run has --no-profile: the guest has its debug registers to itself");
}

static json_t *tell_state(enum run_watch_state state)
{
	static const char *const names[] = { [RUN_WATCH_WAITING] = "waiting",
					     [RUN_WATCH_WATCHING] = "watching",
					     [RUN_WATCH_REMOVED] = "removed" };

	return json_string(names[state]);
}

static json_t *tell_all(struct run_watch *watch, unsigned int number,
			const struct run_watch_description *description)
{
	json_t *told = json_object();

	json_object_set_new(told, "number", json_integer(number));
	json_object_set_new(told, "name", json_string(description->name));
	json_object_set_new(told, "state", tell_state(description->state));
	json_object_set_new(told, "pinned", json_boolean(description->spec.pinned));
	json_object_set_new(told, "vcpu",
			    description->spec.vcpu < 0 ? json_null()
						       : json_integer(description->spec.vcpu));
	tell_times(run_watch_watches(watch), number, ARBITER_ALL_VCPUS, told);
	return told;
}

static int do_bp_list(void *context, json_t *arguments, json_t *result)
{
	struct run_watch *watch = context;
	int error = control_no_arguments(arguments);
	json_t *names, *all, *vcpus;
	struct run_watch_description description;

	if (!error)
		error = check_profile(watch);
	if (error)
		return error;
	names = json_array();
	all = json_array();
	vcpus = json_array();
	for (unsigned int i = 0; run_watch_describe(watch, i, &description); i++) {
		json_array_append_new(names, json_string(description.name));
		json_array_append_new(all, tell_all(watch, i, &description));
	}
	for (unsigned int i = 0; i < run_watch_vcpus(watch); i++)
		json_array_append_new(vcpus, tell_vcpu(watch, i));
	json_object_set_new(result, "watches", names);
	json_object_set_new(result, "all", all);
	json_object_set_new(result, "vcpus", vcpus);
	json_object_set_new(result, "guest_lost",
			    json_integer((json_int_t)watches_guest_lost(run_watch_watches(watch))));
	return 0;
}

/* What both that change something answer. */
static void tell_watch(struct run_watch *watch, unsigned int number, json_t *result)
{
	struct run_watch_description description;
	json_t *told;

	if (!run_watch_describe(watch, number, &description))
		return;
	told = tell_all(watch, number, &description);
	json_object_update(result, told);
	json_decref(told);
}

static int do_bp_add(void *context, json_t *arguments, json_t *result)
{
	struct run_watch *watch = context;
	struct watch_spec spec;
	const char *text;
	int number = check_profile(watch);

	if (number)
		return number;
	if (json_unpack_ex(arguments, NULL, 0, "{s:s !}", "watch", &text))
		return error_set(-EINVAL,
				 "bp-add takes one argument, \"watch\", a string as of --watch");
	number = watch_spec_parse(&spec, text);
	if (!number && spec.vcpu >= (int)run_watch_vcpus(watch))
		number = error_set(-EINVAL, "there is no vCPU %d: they are numbered from 0 to %u",
				   spec.vcpu, run_watch_vcpus(watch) - 1);
	if (!number)
		number = run_watch_add(watch, &spec);
	if (number < 0)
		return number;
	tell_watch(watch, (unsigned int)number, result);
	return 0;
}

static int do_bp_remove(void *context, json_t *arguments, json_t *result)
{
	struct run_watch *watch = context;
	const char *text;
	int number = check_profile(watch);

	if (number)
		return number;
	if (json_unpack_ex(arguments, NULL, 0, "{s:s !}", "watch", &text))
		return error_set(
			-EINVAL,
			"bp-remove takes one argument, \"watch\", a string: its number, the name of "
			"its event, or what was given to add it");
	number = run_watch_find(watch, text);
	if (number >= 0) {
		int error = run_watch_remove(watch, (unsigned int)number);

		if (error)
			return error;
		tell_watch(watch, (unsigned int)number, result);
	}
	return number < 0 ? number : 0;
}

void run_watch_control_add(struct control *control, struct run_watch *watch)
{
	control_add(control, "bp-list", do_bp_list, watch);
	control_add(control, "bp-add", do_bp_add, watch);
	control_add(control, "bp-remove", do_bp_remove, watch);
}
