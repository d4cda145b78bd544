/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/access_row.h"

#include <stdlib.h>

static int compare_addresses(const void *left, const void *right)
{
	const struct access_row *one = left, *other = right;

	if (one->kind != other->kind)
		return one->kind < other->kind ? -1 : 1;
	return one->address < other->address ? -1 : one->address > other->address;
}

static int compare_vcpus(const void *left, const void *right)
{
	const struct access_row *one = left, *other = right;

	if (one->counts.vcpu != other->counts.vcpu)
		return one->counts.vcpu < other->counts.vcpu ? -1 : 1;
	return compare_addresses(left, right);
}

static int compare_times(const void *left, const void *right)
{
	const struct access_row *one = left, *other = right;

	return one->counts.ns != other->counts.ns ? (one->counts.ns < other->counts.ns ? 1 : -1)
						  : compare_addresses(left, right);
}

static void add(struct access_counts *to, const struct access_counts *from)
{
	to->count += from->count;
	to->ns += from->ns;
	to->ns_max = from->ns_max > to->ns_max ? from->ns_max : to->ns_max;
}

void access_rows_merge(struct access_rows *rows, bool by_vcpu)
{
	int (*compare)(const void *, const void *) = by_vcpu ? compare_vcpus : compare_addresses;
	size_t count = 0;

	if (rows->count)
		qsort(rows->rows, rows->count, sizeof(rows->rows[0]), compare);
	for (size_t i = 0; i < rows->count; i++) {
		if (count && !compare(&rows->rows[count - 1], &rows->rows[i]))
			add(&rows->rows[count - 1].counts, &rows->rows[i].counts);
		else
			rows->rows[count++] = rows->rows[i];
	}
	rows->count = count;
}

void access_rows_subtract(struct access_rows *rows, const struct access_rows *earlier)
{
	size_t count = 0, before = 0;

	for (size_t i = 0; i < rows->count; i++) {
		struct access_row row = rows->rows[i];

		while (before < earlier->count && compare_vcpus(&earlier->rows[before], &row) < 0)
			before++;
		if (before < earlier->count && !compare_vcpus(&earlier->rows[before], &row)) {
			row.counts.count -= earlier->rows[before].counts.count;
			row.counts.ns -= earlier->rows[before].counts.ns;
			row.counts.ns_max = 0;
		}
		if (row.counts.count)
			rows->rows[count++] = row;
	}
	rows->count = count;
	rows->lost -= earlier->lost;
}

void access_rows_sort(struct access_row *rows, size_t count)
{
	if (count)
		qsort(rows, count, sizeof(*rows), compare_times);
}

static const struct {
	const char *name, *direction;
} kinds[ACCESS_KINDS] = {
	[ACCESS_MMIO_READ] = { "mmio", "read" },    [ACCESS_MMIO_WRITE] = { "mmio", "write" },
	[ACCESS_PORT_IN] = { "ioport", "in" },      [ACCESS_PORT_OUT] = { "ioport", "out" },
	[ACCESS_MSR_READ] = { "msr", "read" },      [ACCESS_MSR_WRITE] = { "msr", "write" },
	[ACCESS_HYPERCALL] = { "hypercall", NULL },
};

const char *access_kind_name(enum access_kind kind)
{
	return kind < ACCESS_KINDS ? kinds[kind].name : "unknown";
}

const char *access_direction_name(enum access_kind kind)
{
	return kind < ACCESS_KINDS ? kinds[kind].direction : NULL;
}
