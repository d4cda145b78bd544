/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/report/report_rows.h"

#define VCPU_LINES 8 /* in the header; more are in --json */

uint64_t report_wall_time(const struct perf_data_summary *summary, uint64_t time)
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
		fputs("everything before ", to);
	print_trigger(first, to);
	if (seconds(first->time, flight->to) >= 0.05)
		fprintf(to, " and %.1f s after", seconds(first->time, flight->to));
	print_moment(report_wall_time(summary, first->time), to);
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
		fprintf(to, "#          %" PRIu64 " more trigger%s of this run without a file\n",
			flight->missed, flight->missed == 1 ? "" : "s");
}

static bool has_state(const struct perf_data_times *times, const char *name)
{
	for (uint32_t i = 0; i < times->states; i++)
		if (!strcmp(times->names[i], name))
			return true;
	return false;
}

/* In percent of their sum. "guest_user_estimated" becomes "guest user (estimated)". */
static void print_states(const struct perf_data_times *times, const uint64_t *ns, FILE *to)
{
	double wall = 0;

	for (uint32_t i = 0; i < times->states; i++)
		wall += (double)ns[i];
	fprintf(to, "%.1f s:", wall / 1e9);
	for (uint32_t i = 0; i < times->states; i++) {
		const char *name = times->names[i];
		size_t length = strcspn(name, "_");

		fprintf(to, "%s %.1f %% %.*s", i ? "," : "",
			wall > 0 ? (double)ns[i] / wall * 100 : 0.0, (int)length, name);
		if (!strcmp(name + length, "_user_estimated"))
			fputs(" user (estimated)", to);
		else if (!strcmp(name + length, "_kernel_estimated"))
			fputs(" kernel (estimated)", to);
	}
	fputc('\n', to);
}

/* Where the wall time went, in the whole recording. */
static void print_times(const struct perf_data_times *times, FILE *to)
{
	if (!times->states)
		return;
	fputs("# Wall     ", to);
	print_states(times, times->sum, to);
	for (uint32_t i = 0; i < times->vcpus && times->vcpus > 1 && times->vcpus <= VCPU_LINES;
	     i++) {
		fprintf(to, "#   vCPU %" PRIu64 " ", times->rows[i].vcpu);
		print_states(times, times->rows[i].ns, to);
	}
	if (has_state(times, "running") && !has_state(times, "kvm"))
		fputs("#   running: guest, KVM and VMM (divided by kvmscope stat and run --stat)\n",
		      to);
}

/* COLUMNS is the width of the terminal, which a command line would fill; 0: unlimited. */
static void print_about(const struct profile *profile, unsigned int columns, FILE *to)
{
	const struct perf_data_summary *summary = profile_summary(profile);

	if (*summary->release)
		fprintf(to, "# Guest    Linux %s%s%s%s%s\n", summary->release,
			*summary->arch ? " " : "", summary->arch, *summary->hostname ? ", " : "",
			summary->hostname);
	if (*summary->command_line) {
		fputs("# Command  ", to);
		report_print_cut(summary->command_line, columns > 11 ? columns - 11 : columns, to);
		fputc('\n', to);
	}
	if (*profile_times(profile))
		fprintf(to, "# Time     only %s\n", profile_times(profile));
	print_times(&summary->times, to);
	report_flight_text(summary, to);
}

/* A watch that was not in a register all the time missed hits. */
static void print_count(const struct profile_event *event, FILE *to)
{
	const struct perf_data_count *count = &event->count;
	char scaled[32];

	if (!count->enabled || count->running >= count->enabled)
		return;
	fprintf(to,
		"# Watched  %.1f %% of the time, %.3f s of %.3f s on all vCPUs: about %s hits in total\n",
		100.0 * (double)count->running / (double)count->enabled,
		(double)count->running / 1e9, (double)count->enabled / 1e9,
		report_grouped(scaled, report_scaled_hits(event)));
}

/* A source that samples rarely, such as QEMU's monitor, may not reach the requested frequency, and
 * kvmscope ctl can change it. */
static void print_frequency(const struct profile_event *event, FILE *to)
{
	if (!event->frequency)
		return;
	fprintf(to, ", %llu Hz", (unsigned long long)event->frequency);
	if (event->frequency_changed && event->weight)
		fprintf(to, " requested, %.1f on average",
			(double)event->samples * 1e9 / (double)event->weight);
}

/* What the trees below the rows show. */
static void print_call_trees(const struct report *report, FILE *to)
{
	if (report->options.call_trees)
		fprintf(to, "# Trees    %s; branches below %g %% are [...]\n",
			report->options.children ? "callees" : "callers",
			report_tree_limit(&report->options));
}

static void print_event(const struct report *report, FILE *to)
{
	const struct profile_event *event = report_event(report);
	unsigned int cpus = profile_summary(report->profile)->cpus;
	char text[32];

	fprintf(to, "# Event    %s", event->name);
	print_frequency(event, to);
	fprintf(to, "\n# Samples  %s", report_grouped(text, event->samples));
	if (event->unit == PROFILE_NANOSECONDS)
		fprintf(to, ", %.3f s", (double)event->weight / 1e9);
	else if (event->unit == PROFILE_HITS)
		fprintf(to, ", %s hits", report_grouped(text, event->weight));
	if (cpus)
		fprintf(to, ", %u vCPU%s", cpus, cpus == 1 ? "" : "s");
	fputc('\n', to);
	print_count(event, to);
	print_call_trees(report, to);
	fputs("#\n", to);
}

static int print_report(const struct report *report, FILE *to, bool color)
{
	char text[32];
	int error;

	print_event(report, to);
	error = report_print_rows(report, to, color);
	if (report->hidden)
		fprintf(to, "# %s more row%s ", report_grouped(text, report->hidden),
			report->hidden == 1 ? "" : "s");
	if (report->hidden && report->options.screen)
		fprintf(to, "than fit here: use -n %zu or a pipe to show them\n",
			report->count + report->hidden);
	else if (report->hidden)
		fputs("below the limit\n", to);
	return error;
}

/* Lost samples have their own line, which perf's files have too. */
static void print_kinds_of_loss(const struct losses *losses, FILE *to)
{
	char text[32];

	for (int i = 0; i < LOSS_COUNT; i++)
		if (i != LOSS_RING_FULL && losses->counts[i])
			fprintf(to, "# %s %s (%s)\n", report_grouped(text, losses->counts[i]),
				loss_description((enum loss)i), loss_name((enum loss)i));
}

static void print_unknown_inlines(const struct profile *profile, FILE *to)
{
	size_t images, unknown;

	profile_inlines(profile, &images, &unknown);
	if (unknown)
		fprintf(to,
			"# No DWARF for %zu of %zu images: functions inlined there are not shown\n",
			unknown, images);
}

/* Prints problems only. */
static void print_losses(const struct profile *profile, FILE *to)
{
	const struct perf_data_summary *summary = profile_summary(profile);
	char text[32];

	if (profile_lost(profile))
		fprintf(to, "# Lost %s sample%s: the recorder could not keep up\n",
			report_grouped(text, profile_lost(profile)),
			profile_lost(profile) == 1 ? "" : "s");
	print_kinds_of_loss(&summary->losses, to);
	if (summary->skipped)
		fprintf(to, "# Skipped %s record%s of unknown kinds\n",
			report_grouped(text, summary->skipped), summary->skipped == 1 ? "" : "s");
	if (summary->cut_off)
		fprintf(to,
			"# Not closed: still being recorded, or truncated; this is what was written\n");
	print_unknown_inlines(profile, to);
	if (*profile_note(profile))
		fprintf(to, "# No kernel symbols: %s\n", profile_note(profile));
}

static int print_all(struct report *const *reports, size_t count, FILE *to, bool color)
{
	const struct profile *profile = reports[0]->profile;
	int error = 0;

	print_about(profile, reports[0]->options.columns, to);
	for (size_t i = 0; i < count && !error; i++) {
		if (i)
			fputc('\n', to);
		error = print_report(reports[i], to, color);
	}
	if (!error)
		print_losses(profile, to);
	return error;
}

/* Comments continue in further lines where they are wider than the terminal. Rows fit it. */
static void print_wrapped(const char *line, size_t columns, FILE *to)
{
	const char *indent = "";
	size_t room = columns, cut;

	while (*line == '#' || *indent) {
		for (cut = strlen(line) > room ? room : 0; cut && line[cut] != ' ';)
			cut--;
		if (cut < 2)
			break;
		fprintf(to, "%s%.*s\n", indent, (int)cut, line);
		line += cut + 1;
		indent = "#   ";
		room = columns - strlen(indent);
	}
	fprintf(to, "%s%s\n", indent, line);
}

static int print_narrow(struct report *const *reports, size_t count, FILE *to, bool color)
{
	char *text = NULL, *rest, *line;
	size_t size;
	FILE *all = open_memstream(&text, &size);
	int error;

	if (!all)
		return error_set(-ENOMEM, "no memory for the report");
	error = print_all(reports, count, all, color);
	if (fclose(all) && !error)
		error = error_set(-ENOMEM, "no memory for the report");
	for (rest = text; !error && *rest && (line = strsep(&rest, "\n"));)
		print_wrapped(line, reports[0]->options.columns, to);
	free(text);
	return error;
}

int report_print_text(struct report *const *reports, size_t count, FILE *to, bool color)
{
	enum { NARROWEST = 20 };
	int error = reports[0]->options.columns < NARROWEST
			    ? print_all(reports, count, to, color)
			    : print_narrow(reports, count, to, color);

	if (error)
		return error;
	if (fflush(to) || ferror(to))
		return error_set(errno == EPIPE ? -EPIPE : -EIO, "cannot write the report: %s",
				 strerror(errno));
	return 0;
}
