// SPDX-License-Identifier: Apache-2.0
#include "vmm/cli/run_watch_control.h"

#include <errno.h>
#include <stdio.h>

#include "shared/error.h"

static const char *kind_name(enum breakpoint_kind kind)
{
	static const char *const names[] = { [BREAKPOINT_EXECUTE] = "x",
					     [BREAKPOINT_WRITE] = "w",
					     [BREAKPOINT_IO] = "io",
					     [BREAKPOINT_ACCESS] = "rw" };

	return names[kind];
}

/* Addresses are strings: JSON has no unsigned 64-bit numbers. */
static void tell_breakpoint(json_t *slot, const struct breakpoint *breakpoint)
{
	char address[24];

	snprintf(address, sizeof(address), "0x%llx", (unsigned long long)breakpoint->address);
	json_object_set_new(slot, "address", json_string(address));
	json_object_set_new(slot, "kind", json_string(kind_name(breakpoint->kind)));
	json_object_set_new(slot, "length", json_integer(breakpoint->length));
}

static json_t *tell_slot(const struct watch_slot *slot)
{
	static const char *const owners[] = {
		[WATCH_OWNER_NONE] = "free", [WATCH_OWNER_GUEST] = "guest", [WATCH_OWNER_WATCH] = "watch"
	};
	json_t *told = json_object();

	json_object_set_new(told, "owner", json_string(owners[slot->owner]));
	if (slot->owner == WATCH_OWNER_WATCH)
		json_object_set_new(told, "watch", json_integer(slot->watch));
	if (slot->owner != WATCH_OWNER_NONE)
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
	return told;
}

static int do_bp_list(void *context, json_t *arguments, json_t *result)
{
	struct run_watch *watch = context;
	int error = control_no_arguments(arguments);
	json_t *names = json_array(), *vcpus = json_array();

	for (unsigned int i = 0; watch && i < watch_count(run_watch_watches(watch)); i++)
		json_array_append_new(names, json_string(run_watch_name(watch, i)));
	for (unsigned int i = 0; watch && i < run_watch_vcpus(watch); i++)
		json_array_append_new(vcpus, tell_vcpu(watch, i));
	json_object_set_new(result, "watches", names);
	json_object_set_new(result, "vcpus", vcpus);
	if (!error && !watch)
		error = error_set(-ENOTSUP,
				  "this run has no --watch: the guest has its debug registers to itself");
	return error;
}

void run_watch_control_add(struct control *control, struct run_watch *watch)
{
	control_add(control, "bp-list", do_bp_list, watch);
}
