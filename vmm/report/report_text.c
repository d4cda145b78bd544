/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/report/report_rows.h"

#define NAME_WIDTH_MAX 56 /* longer names shift the next columns */
#define NAME_WIDTH_MIN 16 /* of the function column on a narrow terminal */
#define SHARE_SIZE     48

/* Columns of text, in their order. */
static const struct column {
	unsigned int key;
	const char *heading;
	size_t text; /* offset in struct report_row */
} columns[] = {
	{ REPORT_CGROUP, "Cgroup", offsetof(struct report_row, cgroup) },
	{ REPORT_CONTAINER, "Container", offsetof(struct report_row, container) },
	{ REPORT_APP, "Program", offsetof(struct report_row, app) },
	{ REPORT_COMM, "Command", offsetof(struct report_row, comm) },
};

#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

/* Widths of columns; 0: hidden. */
struct table {
	const struct report *report;
	FILE *to;
	bool color;
	int share, texts[COLUMNS], function, image;
};

static const char *text_of(const struct report_row *row, size_t column)
{
	return *(const char *const *)((const char *)row + columns[column].text);
}

/* 1234567 as "1,234,567" into TEXT of 32 bytes. */
static const char *grouped(char *text, uint64_t value)
{
	char digits[24];
	int length = snprintf(digits, sizeof(digits), "%" PRIu64, value), at = 0;

	for (int i = 0; i < length; i++) {
		if (i && (length - i) % 3 == 0)
			text[at++] = ',';
		text[at++] = digits[i];
	}
	text[at] = '\0';
	return text;
}

/* The distribution over vCPUs: "0", "0:61% 3:39%", "0:40% 1:21% +6". */
static const char *vcpu_share(char *text, const struct report_row *row)
{
	int used = 0;

	*text = '\0';
	if (row->vcpu_count == 1) {
		snprintf(text, SHARE_SIZE, row->vcpus[0].vcpu == UINT32_MAX ? "-" : "%u",
			 row->vcpus[0].vcpu);
		return text;
	}
	for (size_t i = 0; i < row->vcpu_count && i < 2; i++)
		used += snprintf(text + used, SHARE_SIZE - (size_t)used, "%s%u:%.0f%%",
				 i ? " " : "", row->vcpus[i].vcpu,
				 row->total_weight ? 100.0 * (double)row->vcpus[i].weight /
							     (double)row->total_weight
						   : 0);
	if (row->vcpu_count > 2)
		snprintf(text + used, SHARE_SIZE - (size_t)used, " +%zu", row->vcpu_count - 2);
	return text;
}

static const char *function_name(char *address, size_t size, const struct report_row *row)
{
	if (row->frame->symbol)
		return row->frame->symbol;
	snprintf(address, size, "0x%016" PRIx64, row->frame->address);
	return address;
}

static void widen(int *width, const char *text)
{
	size_t length = strlen(text);
	int needed = length < NAME_WIDTH_MAX ? (int)length : NAME_WIDTH_MAX;

	if (needed > *width)
		*width = needed;
}

static void measure(struct table *table)
{
	unsigned int keys = table->report->options.keys;
	char text[SHARE_SIZE];

	table->function = keys & REPORT_SYMBOL ? (int)strlen("Function") : 0;
	table->image = keys & REPORT_IMAGE ? (int)strlen("Image") : 0;
	table->share = keys & REPORT_VCPU ? 0 : (int)strlen("vCPU share");
	for (size_t i = 0; i < COLUMNS; i++)
		table->texts[i] = keys & columns[i].key ? (int)strlen(columns[i].heading) : 0;
	for (size_t i = 0; i < table->report->count; i++) {
		const struct report_row *row = table->report->rows[i];

		if (table->function)
			widen(&table->function, function_name(text, sizeof(text), row));
		if (table->image)
			widen(&table->image, row->image);
		if (table->share)
			widen(&table->share, vcpu_share(text, row));
		for (size_t j = 0; j < COLUMNS; j++)
			if (table->texts[j])
				widen(&table->texts[j], text_of(row, j));
	}
}

static int width_with(int width, int column)
{
	return column ? width + 2 + column : width;
}

static int width_of(const struct table *table)
{
	unsigned int keys = table->report->options.keys;
	int width = table->report->options.children ? 33 : 22;

	width += (keys & REPORT_VCPU ? 6 : 0) + (keys & REPORT_PID ? 9 : 0) +
		 (keys & REPORT_TID ? 9 : 0);
	for (size_t i = 0; i < COLUMNS; i++)
		width = width_with(width, table->texts[i]);
	return width_with(width_with(width_with(width, table->share), table->function),
			  table->image);
}

/* On a narrow terminal, hides the vCPU share, which --sort vcpu shows, then narrows the function
 * column: only lines with long function names are wrapped. */
static void fit_terminal(struct table *table)
{
	int available = (int)table->report->options.columns, function;

	if (available && width_of(table) > available)
		table->share = 0;
	function = table->function - (width_of(table) - available);
	if (available && table->image && function < table->function &&
	    table->function > NAME_WIDTH_MIN)
		table->function = function > NAME_WIDTH_MIN ? function : NAME_WIDTH_MIN;
}

static const char *color_of(const struct table *table, double percent)
{
	if (!table->color)
		return "";
	return percent >= 5 ? "\033[31m" : percent >= 0.5 ? "\033[32m" : "";
}

static void print_percent(const struct table *table, uint64_t weight)
{
	double percent = report_percent(table->report, weight);
	const char *color = color_of(table, percent);

	fprintf(table->to, "%s%9.2f%%%s", color, percent, *color ? "\033[0m" : "");
}

static void print_heading(const struct table *table)
{
	unsigned int keys = table->report->options.keys;

	fprintf(table->to, "%s", table->color ? "\033[1m" : "");
	if (table->report->options.children)
		fprintf(table->to, "# %8s %10s", "Children", "Self");
	else
		fprintf(table->to, "# %8s", "Overhead");
	fprintf(table->to, " %11s", "Samples");
	if (keys & REPORT_VCPU)
		fprintf(table->to, " %5s", "vCPU");
	if (table->share)
		fprintf(table->to, "  %-*s", table->share, "vCPU share");
	if (keys & REPORT_PID)
		fprintf(table->to, " %8s", "PID");
	if (keys & REPORT_TID)
		fprintf(table->to, " %8s", "TID");
	for (size_t i = 0; i < COLUMNS; i++)
		if (table->texts[i])
			fprintf(table->to, "  %-*s", table->texts[i], columns[i].heading);
	if (table->function)
		fprintf(table->to, "  %-*s", table->image ? table->function : 0, "Function");
	if (table->image)
		fprintf(table->to, "  %s", "Image");
	fprintf(table->to, "%s\n", table->color ? "\033[0m" : "");
}

static void print_row(const struct table *table, const struct report_row *row)
{
	unsigned int keys = table->report->options.keys;
	char text[SHARE_SIZE];

	print_percent(table, row->total_weight);
	if (table->report->options.children) {
		fputc(' ', table->to);
		print_percent(table, row->weight);
	}
	fprintf(table->to, " %11s", grouped(text, row->total_samples));
	if (keys & REPORT_VCPU)
		fprintf(table->to, " %5d", (int32_t)row->vcpu);
	if (table->share)
		fprintf(table->to, "  %-*s", table->share, vcpu_share(text, row));
	if (keys & REPORT_PID)
		fprintf(table->to, " %8d", (int32_t)row->pid);
	if (keys & REPORT_TID)
		fprintf(table->to, " %8d", (int32_t)row->tid);
	for (size_t i = 0; i < COLUMNS; i++)
		if (table->texts[i])
			fprintf(table->to, "  %-*s", table->texts[i],
				*text_of(row, i) ? text_of(row, i) : "-");
	if (table->function)
		fprintf(table->to, "  %-*s", table->image ? table->function : 0,
			function_name(text, sizeof(text), row));
	if (table->image)
		fprintf(table->to, "  %s", row->image);
	fputc('\n', table->to);
}

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

static void print_about(const struct profile *profile, FILE *to)
{
	const struct perf_data_summary *summary = profile_summary(profile);

	if (*summary->release)
		fprintf(to, "# Guest    Linux %s%s%s%s%s\n", summary->release,
			*summary->arch ? " " : "", summary->arch, *summary->hostname ? ", " : "",
			summary->hostname);
	if (*summary->command_line)
		fprintf(to, "# Command  %s\n", summary->command_line);
	report_flight_text(summary, to);
}

/* A watch that was not in a register all the time missed hits. */
static void print_count(const struct table *table, const struct profile_event *event)
{
	const struct perf_data_count *count = &event->count;
	char scaled[32];

	if (!count->enabled || count->running >= count->enabled)
		return;
	fprintf(table->to,
		"# Watched  %.1f %% of the time, %.3f s of %.3f s on all vCPUs: about %s hits in total\n",
		100.0 * (double)count->running / (double)count->enabled,
		(double)count->running / 1e9, (double)count->enabled / 1e9,
		grouped(scaled, report_scaled_hits(event)));
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

static void print_event(const struct table *table)
{
	const struct profile_event *event = report_event(table->report);
	unsigned int cpus = profile_summary(table->report->profile)->cpus;
	char text[32];

	fprintf(table->to, "# Event    %s", event->name);
	print_frequency(event, table->to);
	fprintf(table->to, "\n# Samples  %s", grouped(text, event->samples));
	if (event->unit == PROFILE_NANOSECONDS)
		fprintf(table->to, ", %.3f s", (double)event->weight / 1e9);
	else if (event->unit == PROFILE_HITS)
		fprintf(table->to, ", %s hits", grouped(text, event->weight));
	if (cpus)
		fprintf(table->to, ", %u vCPU%s", cpus, cpus == 1 ? "" : "s");
	fputc('\n', table->to);
	print_count(table, event);
	fputs("#\n", table->to);
}

static void print_table(const struct report *report, FILE *to, bool color)
{
	struct table table = { .report = report, .to = to, .color = color };
	char text[32];

	measure(&table);
	fit_terminal(&table);
	print_event(&table);
	print_heading(&table);
	for (size_t i = 0; i < report->count; i++)
		print_row(&table, report->rows[i]);
	if (report->hidden)
		fprintf(to, "# %s more row%s ", grouped(text, report->hidden),
			report->hidden == 1 ? "" : "s");
	if (report->hidden && report->options.screen)
		fprintf(to, "than fit here: use -n %zu or a pipe to show them\n",
			report->count + report->hidden);
	else if (report->hidden)
		fputs("below the limit\n", to);
}

/* Lost samples have their own line, which perf's files have too. */
static void print_kinds_of_loss(const struct losses *losses, FILE *to)
{
	char text[32];

	for (int i = 0; i < LOSS_COUNT; i++)
		if (i != LOSS_RING_FULL && losses->counts[i])
			fprintf(to, "# %s %s (%s)\n", grouped(text, losses->counts[i]),
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
			grouped(text, profile_lost(profile)),
			profile_lost(profile) == 1 ? "" : "s");
	print_kinds_of_loss(&summary->losses, to);
	if (summary->skipped)
		fprintf(to, "# Skipped %s record%s of unknown kinds\n",
			grouped(text, summary->skipped), summary->skipped == 1 ? "" : "s");
	if (summary->cut_off)
		fprintf(to,
			"# Not closed: still being recorded, or truncated; this is what was written\n");
	print_unknown_inlines(profile, to);
	if (*profile_note(profile))
		fprintf(to, "# No kernel symbols: %s\n", profile_note(profile));
}

int report_print_text(struct report *const *reports, size_t count, FILE *to, bool color)
{
	const struct profile *profile = reports[0]->profile;

	print_about(profile, to);
	for (size_t i = 0; i < count; i++) {
		if (i)
			fputc('\n', to);
		print_table(reports[i], to, color);
	}
	print_losses(profile, to);
	if (fflush(to) || ferror(to))
		return error_set(errno == EPIPE ? -EPIPE : -EIO, "cannot write the report: %s",
				 strerror(errno));
	return 0;
}
