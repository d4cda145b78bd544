/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/report_rows.h"

#include <inttypes.h>
#include <time.h>

#include "shared/clock_ns.h"

/*
 * Converts TIME from the samples' clock to CLOCK_REALTIME, ns; 0 if the file does not relate them.
 */
static uint64_t wall_time(const struct perf_data_summary *summary, uint64_t time)
{
	return summary->wall_time ? summary->wall_time + (time - summary->clock_time) : 0;
}

static double seconds(uint64_t from, uint64_t to)
{
	return to > from ? (double)(to - from) / NS_PER_S : 0;
}

static void print_trigger(const struct perf_data_flight_trigger *trigger, FILE *to)
{
	fputs(trigger->kind, to);
	if (*trigger->detail)
		fprintf(to, " \"%s\"", trigger->detail);
}

static void print_moment(uint64_t wall, FILE *to)
{
	time_t whole = (time_t)(wall / NS_PER_S);
	struct tm calendar;
	char text[32];

	if (!wall || !localtime_r(&whole, &calendar))
		return;
	strftime(text, sizeof(text), "%F %T", &calendar);
	fprintf(to, ", %s.%03u", text, (unsigned int)(wall % NS_PER_S / NS_PER_MS));
}

/* "30.0 s before guest reset and 5.0 s after, 2026-11-22 10:11:12.131" */
static void print_window(const struct perf_data_summary *summary, FILE *to)
{
	const struct perf_data_flight *flight = &summary->flight;
	const struct perf_data_flight_trigger *first = &flight->triggers[0];

	fprintf(to, "# Flight   ");
	if (flight->from)
		fprintf(to, "%.1f s before ", seconds(flight->from, first->time));
	else
		fputs("what there was before ", to);
	print_trigger(first, to);
	if (seconds(first->time, flight->to) >= 0.05)
		fprintf(to, " and %.1f s after", seconds(first->time, flight->to));
	print_moment(wall_time(summary, first->time), to);
	fputc('\n', to);
}

void report_flight_text(const struct perf_data_summary *summary, FILE *to)
{
	const struct perf_data_flight *flight = &summary->flight;
	uint64_t first = flight->triggers[0].time;

	if (!flight->count)
		return;
	print_window(summary, to);
	for (uint32_t i = 1; i < flight->count; i++) {
		fprintf(to, "#          then, %.3f s later, ",
			seconds(first, flight->triggers[i].time));
		print_trigger(&flight->triggers[i], to);
		fputc('\n', to);
	}
	if (flight->from && flight->complete > flight->from)
		fprintf(to,
			"#          complete from %.1f s before it on: the rings held no more\n",
			seconds(flight->complete, first));
	if (flight->missed)
		fprintf(to,
			"#          there is no file for %" PRIu64 " more trigger%s of this run\n",
			flight->missed, flight->missed == 1 ? "" : "s");
}

static json_t *number(uint64_t value)
{
	return json_integer((json_int_t)value);
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
						number(wall_time(summary, trigger->time))));
	}
	return json_pack("{s:o, s:o, s:o, s:o, s:o}", "from", number(flight->from), "to",
			 number(flight->to), "complete", number(flight->complete), "missed",
			 number(flight->missed), "triggers", triggers);
}
