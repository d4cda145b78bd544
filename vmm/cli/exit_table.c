/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/exit_table.h"

#include <stdio.h>
#include <stdlib.h>

#include "vmm/cli/access_table.h"
#include "vmm/cli/screen.h"
#include "vmm/cli/wall_times.h"

static int compare_times(const void *left, const void *right)
{
	const struct exit_row *one = left, *other = right;

	return one->counts.ns != other->counts.ns
		       ? (one->counts.ns < other->counts.ns ? 1 : -1)
		       : (one->reason < other->reason ? -1 : one->reason > other->reason);
}

void exit_rows_sort(struct exit_row *rows, size_t count)
{
	if (count)
		qsort(rows, count, sizeof(*rows), compare_times);
}

static void print_row(const struct exit_table *table, const struct exit_row *row, FILE *to)
{
	char name[EXIT_NAME_SIZE], mean[16], half[16], most[16], longest[16] = "";
	const struct exit_counts *counts = &row->counts;

	if (counts->ns_max)
		duration_text((double)counts->ns_max, longest);
	fprintf(to, "%-24s %11llu %11.1f %8.2f %9s %9s %9s %9s\n",
		exit_reason_name(counts->isa, row->reason, name), (unsigned long long)counts->count,
		(double)counts->count / table->seconds, (double)counts->ns / table->wall * 100,
		duration_text((double)counts->ns / (double)counts->count, mean),
		duration_text((double)exit_row_percentile(row, 0.5), half),
		duration_text((double)exit_row_percentile(row, 0.99), most), longest);
}

void exit_table_print(const struct exit_table *table, FILE *to)
{
	struct exit_row total = { 0 };

	if (table->of_vcpu)
		fprintf(to, "vCPU %u:\n", table->times.vcpu);
	wall_times_print(&table->times, table->detail, table->wall, to);
	fprintf(to, "\n");
	if (table->detail != VCPU_TIMES_ALL)
		return; /* exits are not counted */
	fprintf(to, "%-24s %11s %11s %8s %9s %9s %9s %9s\n", "exit reason", "exits", "exits/s",
		"time %", "mean", "p50", "p99", "max");
	for (size_t i = 0; i < table->count; i++) {
		print_row(table, &table->rows[i], to);
		exit_row_add(&total, &table->rows[i]);
	}
	fprintf(to, "%-24s %11llu %11.1f %8.2f\n\n", "all", (unsigned long long)total.counts.count,
		(double)total.counts.count / table->seconds,
		(double)total.counts.ns / table->wall * 100);
	if (table->with_accesses)
		access_table_print(table->accesses, table->access_count, table->seconds,
				   table->wall, to);
}

static json_t *row_json(const struct exit_table *table, const struct exit_row *row)
{
	const struct exit_counts *counts = &row->counts;
	char name[EXIT_NAME_SIZE];
	json_t *json = json_pack("{s:s, s:I, s:I, s:f, s:I, s:I}", "reason",
				 exit_reason_name(counts->isa, row->reason, name), "exits",
				 (json_int_t)counts->count, "ns", (json_int_t)counts->ns, "percent",
				 (double)counts->ns / table->wall * 100, "p50_ns",
				 (json_int_t)exit_row_percentile(row, 0.5), "p99_ns",
				 (json_int_t)exit_row_percentile(row, 0.99));

	if (counts->ns_max)
		json_object_set_new(json, "max_ns", json_integer((json_int_t)counts->ns_max));
	return json;
}

json_t *exit_table_json(const struct exit_table *table)
{
	json_t *json = json_pack("{s:f, s:f, s:o}", "seconds", table->seconds, "end", table->end,
				 "times", wall_times_json(&table->times, table->detail)),
	       *exits;

	if (table->of_vcpu)
		json_object_set_new(json, "vcpu", json_integer(table->times.vcpu));
	if (table->missing[0])
		json_object_set_new(json, "missing", json_string(table->missing));
	if (table->detail != VCPU_TIMES_ALL)
		return json;
	exits = json_array();
	for (size_t i = 0; i < table->count; i++)
		json_array_append_new(exits, row_json(table, &table->rows[i]));
	json_object_set_new(json, "exits", exits);
	if (table->with_accesses)
		json_object_set_new(json, "accesses",
				    access_table_json(table->accesses, table->access_count));
	return json;
}
