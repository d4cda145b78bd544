/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "tests/unit/shim/test.h"
#include "vmm/attach/exit_counter.h"

#define VMX 1
#define SVM 2

/* As bpf/exit_program.c counts. */
static void add_exit(struct exit_row *row, uint64_t ns)
{
	unsigned int bit = 63 - (unsigned int)__builtin_clzll(ns | 1);

	row->counts.count++;
	row->counts.ns += ns;
	if (ns > row->counts.ns_max)
		row->counts.ns_max = ns;
	row->counts.buckets[ns < 8 ? ns : (bit - 2) * 8 + (ns >> (bit - 3) & 7)]++;
}

TEST(exit_counter, percentiles_are_at_most_an_eighth_too_large)
{
	for (uint64_t ns = 1; ns < 1ull << 60; ns += ns / 13 + 1) {
		struct exit_row row = { 0 };
		uint64_t found;

		for (int i = 0; i < 9; i++)
			add_exit(&row, ns);
		add_exit(&row, ns * 4);
		found = exit_row_percentile(&row, 0.9);
		CHECK(found >= ns && found <= ns + ns / 8);
		CHECK_EQUAL(exit_row_percentile(&row, 1), ns * 4);
	}
}

TEST(exit_counter, without_exits_there_is_no_percentile)
{
	const struct exit_row row = { 0 };

	CHECK_EQUAL(exit_row_percentile(&row, 0.5), 0);
}

TEST(exit_counter, an_interval_has_the_exits_since_its_beginning)
{
	struct exit_row row = { 0 }, earlier;

	add_exit(&row, 1000000);
	earlier = row;
	add_exit(&row, 100);
	add_exit(&row, 100);
	exit_row_subtract(&row, &earlier);
	CHECK_EQUAL(row.counts.count, 2);
	CHECK_EQUAL(row.counts.ns, 200);
	CHECK_EQUAL(row.counts.ns_max, 0);
	CHECK(exit_row_percentile(&row, 1) < 113);
}

TEST(exit_counter, rows_of_vcpus_are_added)
{
	struct exit_row sum = { 0 }, more = { 0 };

	add_exit(&sum, 50);
	add_exit(&more, 7000);
	exit_row_add(&sum, &more);
	CHECK_EQUAL(sum.counts.count, 2);
	CHECK_EQUAL(sum.counts.ns, 7050);
	CHECK_EQUAL(sum.counts.ns_max, 7000);
	CHECK_EQUAL(exit_row_percentile(&sum, 1), 7000);
}

TEST(exit_counter, reasons_have_the_kernel_names)
{
	char name[EXIT_NAME_SIZE];

	CHECK_STRING(exit_reason_name(VMX, 48, name), "EPT_VIOLATION");
	CHECK_STRING(exit_reason_name(VMX, 33 | 1u << 31, name), "INVALID_STATE FAILED_VMENTRY");
	CHECK_STRING(exit_reason_name(SVM, 0x400, name), "npf");
	CHECK_STRING(exit_reason_name(SVM, 0x40 + 14, name), "PF excp");
	CHECK_STRING(exit_reason_name(SVM, 0x3ff, name), "reason 0x3ff");
	CHECK_STRING(exit_reason_name(3, 48, name), "reason 0x30");
}
