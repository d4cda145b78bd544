/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/report/report_rows.h"

static json_t *number(uint64_t value)
{
	return json_integer((json_int_t)value);
}

/* All kinds, so that scripts need not check for their presence. */
static json_t *losses_of(const struct profile *profile)
{
	const struct losses *losses = &profile_summary(profile)->losses;
	json_t *object = json_object();

	for (int i = 0; i < LOSS_COUNT; i++)
		json_object_set_new(
			object, loss_name((enum loss)i),
			number(i == LOSS_RING_FULL ? profile_lost(profile) : losses->counts[i]));
	return object;
}

json_t *report_flight_json(const struct perf_data_summary *summary)
{
	const struct perf_data_flight *flight = &summary->flight;
	json_t *triggers;

	if (!flight->count)
		return json_null();
	triggers = json_array();
	for (uint32_t i = 0; i < flight->count; i++) {
		const struct perf_data_flight_trigger *trigger = &flight->triggers[i];

		json_array_append_new(triggers,
				      json_pack("{s:s, s:s, s:o, s:o}", "kind", trigger->kind,
						"detail", trigger->detail, "time",
						number(trigger->time), "wall_time",
						number(report_wall_time(summary, trigger->time))));
	}
	return json_pack("{s:o, s:o, s:o, s:o, s:o}", "from", number(flight->from), "to",
			 number(flight->to), "complete", number(flight->complete), "missed",
			 number(flight->missed), "triggers", triggers);
}

static json_t *states_of(const struct perf_data_times *times, const uint64_t *ns)
{
	json_t *states = json_object();
	char name[40];

	for (uint32_t i = 0; i < times->states; i++) {
		snprintf(name, sizeof(name), "%s_ns", times->names[i]);
		json_object_set_new(states, name, number(ns[i]));
	}
	return states;
}

static json_t *wall_times(const struct perf_data_times *times)
{
	json_t *all = json_null(), *vcpus, *vcpu;

	if (!times->states)
		return all;
	all = states_of(times, times->sum);
	vcpus = json_array();
	for (uint32_t i = 0; i < times->vcpus; i++) {
		vcpu = states_of(times, times->rows[i].ns);
		json_object_set_new(vcpu, "vcpu", number(times->rows[i].vcpu));
		json_array_append_new(vcpus, vcpu);
	}
	json_object_set_new(all, "vcpus", vcpus);
	return all;
}

static json_t *header(const struct profile *profile)
{
	const struct perf_data_summary *summary = profile_summary(profile);

	return json_pack("{s:s, s:s, s:s, s:s, s:i, s:o, s:o, s:o, s:b, s:s, s:o, s:o}", "release",
			 summary->release, "arch", summary->arch, "hostname", summary->hostname,
			 "command", summary->command_line, "vcpus", (int)summary->cpus, "lost",
			 number(profile_lost(profile)), "losses", losses_of(profile),
			 "skipped_records", number(summary->skipped), "cut_off", summary->cut_off,
			 "note", profile_note(profile), "flight", report_flight_json(summary),
			 "wall_time", wall_times(&summary->times));
}

/* How long a watch was enabled and in a register; null if unknown. */
static json_t *count_of(const struct profile_event *event)
{
	const struct perf_data_count *count = &event->count;

	if (!count->enabled)
		return json_null();
	return json_pack("{s:o, s:o, s:o, s:o}", "hits", number(count->value), "scaled_hits",
			 number(report_scaled_hits(event)), "enabled_ns", number(count->enabled),
			 "running_ns", number(count->running));
}

static const char *kind_of(const struct report_row *row)
{
	if (row->frame && profile_frame_is_module(row->frame))
		return "module";
	return row->kernel ? "kernel" : "user";
}

static json_t *vcpus_of(const struct report_row *row)
{
	json_t *vcpus = json_array();

	for (size_t i = 0; i < row->vcpu_count; i++)
		json_array_append_new(vcpus, json_pack("{s:o, s:o, s:o}", "vcpu",
						       number(row->vcpus[i].vcpu), "samples",
						       number(row->vcpus[i].samples), "weight",
						       number(row->vcpus[i].weight)));
	return vcpus;
}

static void set_function(json_t *object, const struct report_row *row)
{
	char address[24];

	snprintf(address, sizeof(address), "0x%016" PRIx64, row->frame->address);
	json_object_set_new(object, "function",
			    row->frame->function ? json_string(row->frame->function) : json_null());
	json_object_set_new(object, "address", json_string(address));
	json_object_set_new(object, "kind", json_string(kind_of(row)));
	json_object_set_new(object, "inlined", json_boolean(row->frame->inlined));
}

static json_t *text_or_null(const char *text)
{
	return *text ? json_string(text) : json_null();
}

static json_t *row_of(const struct report *report, const struct report_row *row)
{
	unsigned int keys = report->options.keys;
	json_t *object = json_object();

	json_object_set_new(object, "percent", json_real(report_percent(report, row->weight)));
	json_object_set_new(object, "samples", number(row->samples));
	json_object_set_new(object, "weight", number(row->weight));
	if (report->options.children) {
		json_object_set_new(object, "total_percent",
				    json_real(report_percent(report, row->total_weight)));
		json_object_set_new(object, "total_samples", number(row->total_samples));
		json_object_set_new(object, "total_weight", number(row->total_weight));
	}
	if (keys & REPORT_SYMBOL)
		set_function(object, row);
	if (row->image)
		json_object_set_new(object, "image", json_string(row->image));
	if (keys & REPORT_VCPU)
		json_object_set_new(object, "vcpu", number(row->vcpu));
	else
		json_object_set_new(object, "vcpus", vcpus_of(row));
	if (keys & REPORT_CGROUP)
		json_object_set_new(object, "cgroup", text_or_null(row->cgroup));
	if (keys & REPORT_CONTAINER)
		json_object_set_new(object, "container", text_or_null(row->container));
	if (keys & REPORT_APP)
		json_object_set_new(object, "app", json_string(row->app));
	if (keys & REPORT_COMM)
		json_object_set_new(object, "comm", json_string(row->comm));
	if (keys & REPORT_PID)
		json_object_set_new(object, "pid", json_integer((int32_t)row->pid));
	if (keys & REPORT_TID)
		json_object_set_new(object, "tid", json_integer((int32_t)row->tid));
	return object;
}

static json_t *event_of(const struct report *report)
{
	const struct profile_event *event = report_event(report);
	json_t *rows = json_array();

	for (size_t i = 0; i < report->count; i++)
		json_array_append_new(rows, row_of(report, report->rows[i]));
	return json_pack("{s:s, s:o, s:o, s:b, s:o, s:o, s:s, s:o, s:o, s:o}", "event", event->name,
			 "number", number(report->options.event), "frequency",
			 number(event->frequency), "frequency_changed", event->frequency_changed,
			 "samples", number(event->samples), "weight", number(event->weight),
			 "weight_unit", profile_unit_name(event->unit), "count", count_of(event),
			 "hidden_rows", number(report->hidden), "rows", rows);
}

int report_print_json(struct report *const *reports, size_t count, FILE *to)
{
	json_t *object = header(reports[0]->profile), *events = json_array();
	int error = 0;

	for (size_t i = 0; i < count && !error; i++)
		error = json_array_append_new(events, event_of(reports[i]));
	if (!object || error || json_object_set_new(object, "events", events))
		error = error_set(-ENOMEM, "no memory for the report");
	else if (json_dumpf(object, to, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) ||
		 fputc('\n', to) == EOF || fflush(to))
		error = error_set(-EIO, "cannot write the report: %s", strerror(errno));
	json_decref(object);
	return error;
}
