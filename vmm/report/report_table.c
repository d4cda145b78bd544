/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a report as a table that fits the terminal. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "vmm/report/report_rows.h"

#define NAME_WIDTH_MAX 56 /* into a pipe: longer names shift the next columns */
#define NAME_WIDTH_MIN 8  /* on a narrow terminal */
#define SHARE_SIZE     48

/* Columns of text, in their order. */
static const struct column {
	unsigned int key;
	const char *heading;
	size_t text; /* offset in struct report_row; of the function: FRAME */
} columns[] = {
	{ REPORT_CGROUP, "Cgroup", offsetof(struct report_row, cgroup) },
	{ REPORT_CONTAINER, "Container", offsetof(struct report_row, container) },
	{ REPORT_APP, "Program", offsetof(struct report_row, app) },
	{ REPORT_COMM, "Command", offsetof(struct report_row, comm) },
	{ REPORT_SYMBOL, "Function", offsetof(struct report_row, frame) },
	{ REPORT_IMAGE, "Image", offsetof(struct report_row, image) },
};

#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

/* Widths of columns; 0: hidden. */
struct table {
	const struct report *report;
	FILE *to;
	bool color;
	int samples, share, texts[COLUMNS];
};

const char *report_grouped(char *text, uint64_t value)
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

const char *report_frame_name(char *address, const struct profile_frame *frame)
{
	if (frame->symbol)
		return frame->symbol;
	snprintf(address, 24, "0x%016" PRIx64, frame->address);
	return address;
}

/* The first WIDTH bytes of TEXT at most, without the rest of a character of UTF-8. */
static size_t cut_length(const char *text, size_t width)
{
	while (width && ((unsigned char)text[width] & 0xc0) == 0x80)
		width--;
	return width;
}

void report_print_cut(const char *text, size_t width, FILE *to)
{
	if (!width || strlen(text) <= width)
		fputs(text, to);
	else
		fprintf(to, "%.*s..", (int)cut_length(text, width > 2 ? width - 2 : 0), text);
}

/* ADDRESS has 24 bytes. */
static const char *text_of(const struct report_row *row, size_t column, char *address)
{
	const char *text;

	if (columns[column].key == REPORT_SYMBOL)
		return report_frame_name(address, row->frame);
	text = *(const char *const *)((const char *)row + columns[column].text);
	return *text ? text : "-";
}

static const char *vcpu_number(char *text, uint32_t vcpu)
{
	if (vcpu == UINT32_MAX)
		return "-";
	snprintf(text, 12, "%" PRIu32, vcpu);
	return text;
}

/* The distribution over vCPUs: "0:100%", "0:61% 3:39%", "0:40% 1:21% +6". */
static const char *vcpu_share(char *text, const struct report_row *row)
{
	char number[12];
	int used = 0;

	*text = '\0';
	if (row->vcpu_count == 1 && row->vcpus[0].vcpu == UINT32_MAX)
		return "-";
	for (size_t i = 0; i < row->vcpu_count && i < 2; i++)
		used += snprintf(text + used, SHARE_SIZE - (size_t)used, "%s%s:%.0f%%",
				 i ? " " : "", vcpu_number(number, row->vcpus[i].vcpu),
				 row->total_weight ? 100.0 * (double)row->vcpus[i].weight /
							     (double)row->total_weight
						   : 0);
	if (row->vcpu_count > 2)
		snprintf(text + used, SHARE_SIZE - (size_t)used, " +%zu", row->vcpu_count - 2);
	return text;
}

/* "[003]", as perf script prints a CPU, cannot be read as a count. */
static const char *vcpu_name(char *text, uint32_t vcpu)
{
	if (vcpu == UINT32_MAX)
		return "-";
	snprintf(text, SHARE_SIZE, "[%03" PRIu32 "]", vcpu);
	return text;
}

static void widen(const struct table *table, int *width, const char *text)
{
	size_t limit = table->report->options.columns, length = strlen(text);

	if (!limit)
		limit = NAME_WIDTH_MAX;
	if (length > limit)
		length = limit;
	if ((int)length > *width)
		*width = (int)length;
}

static void measure(struct table *table)
{
	unsigned int keys = table->report->options.keys;
	char text[SHARE_SIZE];

	table->share = keys & REPORT_VCPU ? 0 : (int)strlen("vCPU share");
	for (size_t i = 0; i < COLUMNS; i++)
		table->texts[i] = keys & columns[i].key ? (int)strlen(columns[i].heading) : 0;
	for (size_t i = 0; i < table->report->count; i++) {
		const struct report_row *row = table->report->rows[i];

		if (table->share)
			widen(table, &table->share, vcpu_share(text, row));
		for (size_t j = 0; j < COLUMNS; j++)
			if (table->texts[j])
				widen(table, &table->texts[j], text_of(row, j, text));
	}
}

static int width_of(const struct table *table)
{
	unsigned int keys = table->report->options.keys;
	int width = table->samples + (table->report->options.children ? 22 : 11);

	width += (keys & REPORT_VCPU ? 6 : 0) + (keys & REPORT_PID ? 9 : 0) +
		 (keys & REPORT_TID ? 9 : 0) + (table->share ? 2 + table->share : 0);
	for (size_t i = 0; i < COLUMNS; i++)
		width += table->texts[i] ? 2 + table->texts[i] : 0;
	return width;
}

/* Of the column of samples at least. */
static int samples_width(const struct report *report)
{
	size_t width = strlen("Samples"), length;
	char text[32];

	for (size_t i = 0; i < report->count; i++) {
		length = strlen(report_grouped(text, report->rows[i]->total_samples));
		width = length > width ? length : width;
	}
	return (int)width;
}

static int *widest_text(struct table *table)
{
	int *widest = &table->texts[0];

	for (size_t i = 1; i < COLUMNS; i++)
		if (table->texts[i] > *widest)
			widest = &table->texts[i];
	return widest;
}

/* On a narrow terminal, hides the vCPU share, which --sort vcpu shows, then narrows numbers and the
 * widest columns. */
static void fit_terminal(struct table *table)
{
	int available = (int)table->report->options.columns, *widest;

	if (!available)
		return;
	/* Names of 32 bytes are worth more than the share. */
	if (width_of(table) > available &&
	    available < width_of(table) - *widest_text(table) + 4 * NAME_WIDTH_MIN)
		table->share = 0;
	if (width_of(table) > available)
		table->samples = samples_width(table->report);
	while (width_of(table) > available) {
		widest = widest_text(table);
		if (*widest <= NAME_WIDTH_MIN)
			return;
		--*widest;
	}
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

/* A cell of COLUMN; the last one of a line has no spaces after it. */
static void print_text(const struct table *table, size_t column, const char *text)
{
	int width = table->texts[column];
	bool last = true;

	for (size_t i = column + 1; i < COLUMNS; i++)
		last = last && !table->texts[i];
	fputs("  ", table->to);
	if (table->report->options.columns)
		report_print_cut(text, (size_t)width, table->to);
	else
		fputs(text, table->to);
	for (int length = (int)strlen(text); !last && length < width; length++)
		fputc(' ', table->to);
}

static void print_heading(const struct table *table)
{
	unsigned int keys = table->report->options.keys;

	fprintf(table->to, "%s", table->color ? "\033[1m" : "");
	if (table->report->options.children)
		fprintf(table->to, "# %8s %10s", "Children", "Self");
	else
		fprintf(table->to, "# %8s", "Overhead");
	fprintf(table->to, " %*s", table->samples, "Samples");
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
			print_text(table, i, columns[i].heading);
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
	fprintf(table->to, " %*s", table->samples, report_grouped(text, row->total_samples));
	if (keys & REPORT_VCPU)
		fprintf(table->to, " %5s", vcpu_name(text, row->vcpu));
	if (table->share)
		fprintf(table->to, "  %-*s", table->share, vcpu_share(text, row));
	if (keys & REPORT_PID)
		fprintf(table->to, " %8d", (int32_t)row->pid);
	if (keys & REPORT_TID)
		fprintf(table->to, " %8d", (int32_t)row->tid);
	for (size_t i = 0; i < COLUMNS; i++)
		if (table->texts[i])
			print_text(table, i, text_of(row, i, text));
	fputc('\n', table->to);
}

int report_print_rows(const struct report *report, FILE *to, bool color)
{
	struct table table = { .report = report, .to = to, .color = color, .samples = 11 };
	int error = 0;

	measure(&table);
	fit_terminal(&table);
	print_heading(&table);
	/* A pager may be closed long before the last call tree. */
	for (size_t i = 0; i < report->count && !error && !ferror(to); i++) {
		print_row(&table, report->rows[i]);
		error = report_print_call_tree(report, report->rows[i], to);
	}
	return error;
}
