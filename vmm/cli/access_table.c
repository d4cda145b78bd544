/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/access_table.h"

#include <inttypes.h>
#include <stdio.h>

const char *duration_text(double ns, char text[16])
{
	if (ns < 999.5)
		snprintf(text, 16, "%.0f ns", ns);
	else if (ns < 999.5e3)
		snprintf(text, 16, "%.*f us", ns < 9.995e3 ? 2 : ns < 99.95e3 ? 1 : 0, ns / 1e3);
	else if (ns < 999.5e6)
		snprintf(text, 16, "%.*f ms", ns < 9.995e6 ? 2 : ns < 99.95e6 ? 1 : 0, ns / 1e6);
	else
		snprintf(text, 16, "%.2f s", ns / 1e9);
	return text;
}

static void print_row(const struct access_row *row, double seconds, double wall, FILE *to)
{
	const struct access_counts *counts = &row->counts;
	const char *direction = access_direction_name(row->kind);
	char name[32], mean[16], longest[16] = "";

	snprintf(name, sizeof(name), "%s%s%s", access_kind_name(row->kind), direction ? " " : "",
		 direction ? direction : "");
	if (counts->ns_max)
		duration_text((double)counts->ns_max, longest);
	fprintf(to, "%-12s %#18" PRIx64 " %11llu %11.1f %8.2f %9s %9s\n", name, row->address,
		(unsigned long long)counts->count, (double)counts->count / seconds,
		(double)counts->ns / wall * 100,
		duration_text((double)counts->ns / (double)counts->count, mean), longest);
}

void access_table_print(const struct access_row *rows, size_t count, double seconds, double wall,
			FILE *to)
{
	fprintf(to, "%-12s %18s %11s %11s %8s %9s %9s\n", "access", "address", "count", "count/s",
		"time %", "mean", "max");
	for (size_t i = 0; i < count; i++)
		print_row(&rows[i], seconds, wall, to);
	fprintf(to, "\n");
}

json_t *access_table_json(const struct access_row *rows, size_t count)
{
	json_t *array = json_array();

	for (size_t i = 0; i < count; i++) {
		const struct access_counts *counts = &rows[i].counts;
		const char *direction = access_direction_name(rows[i].kind);
		json_t *json =
			json_pack("{s:s, s:I, s:I, s:I}", "kind", access_kind_name(rows[i].kind),
				  "address", (json_int_t)rows[i].address, "count",
				  (json_int_t)counts->count, "ns", (json_int_t)counts->ns);

		if (direction)
			json_object_set_new(json, "direction", json_string(direction));
		if (counts->ns_max)
			json_object_set_new(json, "max_ns",
					    json_integer((json_int_t)counts->ns_max));
		json_array_append_new(array, json);
	}
	return array;
}
