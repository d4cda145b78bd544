/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/exit_row.h"

#include <asm/kvm.h>
#include <asm/svm.h>
#include <asm/vmx.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define ISA_VMX 1 /* arch/x86/kvm/trace.h, KVM_ISA_VMX */
#define ISA_SVM 2

void exit_row_add(struct exit_row *row, const struct exit_row *more)
{
	struct exit_counts *to = &row->counts;
	const struct exit_counts *from = &more->counts;

	to->count += from->count;
	to->ns += from->ns;
	to->ns_max = from->ns_max > to->ns_max ? from->ns_max : to->ns_max;
	for (unsigned int i = 0; i < EXIT_BUCKETS; i++)
		to->buckets[i] += from->buckets[i];
}

void exit_row_subtract(struct exit_row *row, const struct exit_row *earlier)
{
	row->counts.count -= earlier->counts.count;
	row->counts.ns -= earlier->counts.ns;
	row->counts.ns_max = 0;
	for (unsigned int i = 0; i < EXIT_BUCKETS; i++)
		row->counts.buckets[i] -= earlier->counts.buckets[i];
}

/* The largest time of bucket INDEX, as bucket_of() in bpf/exit_program.c counts them. */
static uint64_t bucket_end(unsigned int index)
{
	return index < 8 ? index : ((8ull + index % 8 + 1) << (index / 8 - 1)) - 1;
}

uint64_t exit_row_percentile(const struct exit_row *row, double share)
{
	uint64_t total = 0, seen = 0;

	for (unsigned int i = 0; i < EXIT_BUCKETS; i++)
		total += row->counts.buckets[i];
	for (unsigned int i = 0; total && i < EXIT_BUCKETS; i++) {
		seen += row->counts.buckets[i];
		if ((double)seen >= share * (double)total)
			return row->counts.ns_max && bucket_end(i) > row->counts.ns_max
				       ? row->counts.ns_max
				       : bucket_end(i);
	}
	return 0;
}

/* <asm/svm.h> uses it, and no header for user space has it: SDM vol. 3A 6.15. */
#ifndef XM_VECTOR
#define XM_VECTOR 19
#endif

static const struct reason {
	uint32_t number;
	const char *name;
} vmx_reasons[] = { VMX_EXIT_REASONS }, svm_reasons[] = { SVM_EXIT_REASONS };

static const char *find_reason(const struct reason *reasons, size_t count, uint32_t number)
{
	for (size_t i = 0; i < count; i++)
		if (reasons[i].number == number)
			return reasons[i].name;
	return NULL;
}

const char *exit_reason_name(uint32_t isa, uint32_t reason, char name[EXIT_NAME_SIZE])
{
	const char *found = NULL, *failed = "";

	if (isa == ISA_VMX) {
		found = find_reason(vmx_reasons, sizeof(vmx_reasons) / sizeof(vmx_reasons[0]),
				    reason & 0xffff);
		failed = reason & VMX_EXIT_REASONS_FAILED_VMENTRY ? " FAILED_VMENTRY" : "";
	} else if (isa == ISA_SVM) {
		found = find_reason(svm_reasons, sizeof(svm_reasons) / sizeof(svm_reasons[0]),
				    reason);
	}
	if (found)
		snprintf(name, EXIT_NAME_SIZE, "%s%s", found, failed);
	else
		snprintf(name, EXIT_NAME_SIZE, "reason 0x%x", reason);
	return name;
}

static int compare_reasons(const void *left, const void *right)
{
	const struct exit_row *one = left, *other = right;

	return one->reason < other->reason ? -1 : one->reason > other->reason;
}

static int compare_vcpus(const void *left, const void *right)
{
	const struct exit_row *one = left, *other = right;

	return one->counts.vcpu != other->counts.vcpu
		       ? (one->counts.vcpu < other->counts.vcpu ? -1 : 1)
		       : compare_reasons(left, right);
}

void exit_rows_merge(struct exit_rows *exits, bool by_vcpu)
{
	size_t count = 0;

	if (exits->count)
		qsort(exits->rows, exits->count, sizeof(exits->rows[0]),
		      by_vcpu ? compare_vcpus : compare_reasons);
	for (size_t i = 0; i < exits->count; i++) {
		struct exit_row *last = count ? &exits->rows[count - 1] : NULL;

		if (last && last->reason == exits->rows[i].reason &&
		    (!by_vcpu || last->counts.vcpu == exits->rows[i].counts.vcpu))
			exit_row_add(last, &exits->rows[i]);
		else
			exits->rows[count++] = exits->rows[i];
	}
	exits->count = count;
}

void exit_rows_subtract(struct exit_rows *exits, const struct exit_rows *earlier)
{
	size_t count = 0, before = 0;

	for (size_t i = 0; i < exits->count; i++) {
		struct exit_row row = exits->rows[i];

		while (before < earlier->count && compare_vcpus(&earlier->rows[before], &row) < 0)
			before++;
		if (before < earlier->count && !compare_vcpus(&earlier->rows[before], &row))
			exit_row_subtract(&row, &earlier->rows[before]);
		if (row.counts.count)
			exits->rows[count++] = row;
	}
	exits->count = count;
}
