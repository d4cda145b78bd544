/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/small_recording.h"
#include "vmm/report/report_rows.h"

struct fixture {
	struct small_recording recording;
	struct profile_options options;
	struct profile *profile;
	struct report *report;
};

static bool fixture_make(struct fixture *fixture, const struct report_options *options)
{
	*fixture = (struct fixture){ .options.vcpu = -1 };
	small_recording_make(&fixture->recording);
	fixture->options.input = fixture->recording.path;
	fixture->options.kallsyms = fixture->recording.kallsyms;
	fixture->options.threads = options->keys & REPORT_TID;
	if (!profile_load(&fixture->profile, &fixture->options) &&
	    !report_build(&fixture->report, fixture->profile, options))
		return true;
	FAIL_TEST("no report");
	return false;
}

static void fixture_free(struct fixture *fixture)
{
	report_free(fixture->report);
	profile_free(fixture->profile);
	small_recording_free(&fixture->recording);
}

TEST(report_rows, count_samples_by_function)
{
	const struct report_options options = { .keys = REPORT_SYMBOL | REPORT_IMAGE };
	struct fixture fixture;
	const struct report_row *row;

	REQUIRE(fixture_make(&fixture, &options));
	REQUIRE_EQUAL(fixture.report->count, 1);
	row = fixture.report->rows[0];
	CHECK_STRING(row->frame->symbol, "leaf");
	CHECK_EQUAL(row->samples, 10);
	CHECK_EQUAL(row->total_samples, 10);
	REQUIRE_EQUAL(row->vcpu_count, 2);
	CHECK_EQUAL(row->vcpus[0].vcpu, 0);
	CHECK_EQUAL(row->vcpus[0].samples, 9);
	CHECK_EQUAL(row->vcpus[1].samples, 1);
	fixture_free(&fixture);
}

TEST(report_rows, count_callers_once_for_each_sample)
{
	const struct report_options options = { .keys = REPORT_SYMBOL, .children = true };
	struct fixture fixture;

	REQUIRE(fixture_make(&fixture, &options));
	REQUIRE_EQUAL(fixture.report->count, 3);
	CHECK_STRING(fixture.report->rows[0]->frame->symbol, "leaf");
	/* Recursive in all six of its samples. */
	CHECK_STRING(fixture.report->rows[1]->frame->symbol, "middle");
	CHECK_EQUAL(fixture.report->rows[1]->total_samples, 6);
	CHECK_EQUAL(fixture.report->rows[1]->samples, 0);
	CHECK_EQUAL(fixture.report->rows[2]->total_samples, 4);
	CHECK_EQUAL(fixture.report->rows[2]->total_weight, 4 * SMALL_PERIOD);
	fixture_free(&fixture);
}

TEST(report_rows, follow_the_keys)
{
	const struct report_options options = { .keys = REPORT_VCPU | REPORT_COMM | REPORT_PID };
	struct fixture fixture;

	REQUIRE(fixture_make(&fixture, &options));
	REQUIRE_EQUAL(fixture.report->count, 2);
	CHECK_EQUAL(fixture.report->rows[0]->vcpu, 0);
	CHECK_EQUAL(fixture.report->rows[0]->samples, 9);
	CHECK_STRING(fixture.report->rows[0]->comm, "vcpu 0");
	CHECK_EQUAL(fixture.report->rows[1]->samples, 1);
	CHECK_EQUAL(fixture.report->rows[1]->pid, 100);
	CHECK(!fixture.report->rows[1]->frame);
	fixture_free(&fixture);
}

/* Without a program, the app is the thread's comm; vCPU threads are one process. */
TEST(report_rows, go_by_program_and_thread)
{
	const struct report_options by_app = { .keys = REPORT_APP | REPORT_IMAGE | REPORT_SYMBOL };
	const struct report_options by_thread = { .keys = REPORT_PID | REPORT_TID };
	struct fixture fixture;

	REQUIRE(fixture_make(&fixture, &by_app));
	REQUIRE_EQUAL(fixture.report->count, 2);
	CHECK_STRING(fixture.report->rows[0]->app, "vcpu 0");
	CHECK_STRING(fixture.report->rows[0]->image, "[kernel.kallsyms]");
	CHECK_STRING(fixture.report->rows[0]->frame->symbol, "leaf");
	CHECK_EQUAL(fixture.report->rows[0]->samples, 9);
	CHECK_STRING(fixture.report->rows[1]->app, "vcpu;1");
	fixture_free(&fixture);
	REQUIRE(fixture_make(&fixture, &by_thread));
	REQUIRE_EQUAL(fixture.report->count, 2);
	CHECK_EQUAL(fixture.report->rows[0]->pid, 100);
	CHECK_EQUAL(fixture.report->rows[0]->tid, 100);
	CHECK_EQUAL(fixture.report->rows[1]->pid, 100);
	CHECK_EQUAL(fixture.report->rows[1]->tid, 101);
	fixture_free(&fixture);
}

TEST(report_rows, show_programs_and_threads_in_both_forms)
{
	const struct report_options options = { .keys = REPORT_APP | REPORT_PID | REPORT_TID,
						.limit = 1 };
	struct fixture fixture;
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	REQUIRE(fixture_make(&fixture, &options));
	CHECK_EQUAL(report_print_text(&fixture.report, 1, to, false), 0);
	CHECK_EQUAL(report_print_json(&fixture.report, 1, to), 0);
	fclose(to);
	CHECK(strstr(text, "# Overhead     Samples  vCPU share      PID      TID  Program\n"
			   "    90.00%           9  0:100%          100      100  vcpu 0\n"));
	CHECK(strstr(text, "\"app\": \"vcpu 0\""));
	CHECK(strstr(text, "\"tid\": 100"));
	free(text);
	fixture_free(&fixture);
}

TEST(report_rows, end_at_the_limits)
{
	const struct report_options few = { .keys = REPORT_SYMBOL, .children = true, .limit = 2 };
	const struct report_options large = { .keys = REPORT_SYMBOL,
					      .children = true,
					      .percent_limit = 50 };
	struct fixture fixture;

	REQUIRE(fixture_make(&fixture, &few));
	CHECK_EQUAL(fixture.report->count, 2);
	CHECK_EQUAL(fixture.report->hidden, 1);
	fixture_free(&fixture);
	REQUIRE(fixture_make(&fixture, &large));
	CHECK_EQUAL(fixture.report->count, 2);
	fixture_free(&fixture);
}

TEST(report_rows, are_printed_after_a_header)
{
	const struct report_options options = { .keys = REPORT_SYMBOL | REPORT_IMAGE };
	struct fixture fixture;
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	REQUIRE(fixture_make(&fixture, &options));
	CHECK_EQUAL(report_print_text(&fixture.report, 1, to, false), 0);
	fclose(to);
	CHECK_STRING(text, "# Guest    Linux 6.1.0 x86_64\n"
			   "# Command  test\n"
			   "# Event    cpu-clock, 1000 Hz\n"
			   "# Samples  10, 0.010 s, 2 vCPUs\n"
			   "#\n"
			   "# Overhead     Samples  vCPU share   Function  Image\n"
			   "   100.00%          10  0:90% 1:10%  leaf      [kernel.kallsyms]\n"
			   "# Lost 3 samples: the recorder could not keep up\n");
	free(text);
	fixture_free(&fixture);
}

/* The text of a report with OPTIONS, which the caller frees. */
static char *text_of(const struct report_options *options)
{
	struct fixture fixture;
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	if (fixture_make(&fixture, options))
		CHECK_EQUAL(report_print_text(&fixture.report, 1, to, false), 0);
	fclose(to);
	fixture_free(&fixture);
	return text;
}

TEST(report_rows, have_a_tree_of_callers)
{
	const struct report_options options = { .keys = REPORT_SYMBOL, .call_trees = true };
	char *text = text_of(&options);

	CHECK_STRING(strstr(text, "# Trees"), "# Trees    callers; branches below 0.5 % are [...]\n"
					      "#\n"
					      "# Overhead     Samples  vCPU share   Function\n"
					      "   100.00%          10  0:90% 1:10%  leaf\n"
					      "            |\n"
					      "            |--60.00%--middle\n"
					      "            |          middle\n"
					      "            |\n"
					      "             --40.00%--top;with/all\n"
					      "\n"
					      "# Lost 3 samples: the recorder could not keep up\n");
	free(text);
}

/* From the outermost call: the recursion of middle is in its tree. */
TEST(report_rows, have_a_tree_of_callees_with_children)
{
	const struct report_options options = { .keys = REPORT_SYMBOL,
						.children = true,
						.call_trees = true };
	char *text = text_of(&options);

	CHECK_STRING(strstr(text, "# Children"),
		     "# Children       Self     Samples  vCPU share   Function\n"
		     "   100.00%    100.00%          10  0:90% 1:10%  leaf\n"
		     "    60.00%      0.00%           6  0:100%       middle\n"
		     "            |\n"
		     "            ---middle\n"
		     "               leaf\n"
		     "\n"
		     "    40.00%      0.00%           4  0:75% 1:25%  top;with/all\n"
		     "            |\n"
		     "            ---leaf\n"
		     "\n"
		     "# Lost 3 samples: the recorder could not keep up\n");
	free(text);
}

/* A row without a function shows the whole chain; small branches are added up. */
TEST(report_rows, have_trees_down_to_the_percent_limit)
{
	const struct report_options options = { .keys = REPORT_PID,
						.call_trees = true,
						.percent_limit = 50 };
	char *text = text_of(&options);

	CHECK(strstr(text, "  100\n"
			   "            |\n"
			   "            ---leaf\n"
			   "               |\n"
			   "                --60.00%--middle\n"
			   "                          middle\n"
			   "\n"));
	CHECK(!strstr(text, "top"));
	free(text);
}

TEST(report_rows, show_a_vcpu_that_cannot_be_read_as_a_count)
{
	const struct report_options options = { .keys = REPORT_VCPU };
	char *text = text_of(&options);

	CHECK(strstr(text, "# Overhead     Samples  vCPU\n"
			   "    90.00%           9 [000]\n"
			   "    10.00%           1 [001]\n"));
	free(text);
}

TEST(report_rows, fit_a_narrow_terminal)
{
	const struct report_options options = {
		.keys = REPORT_APP | REPORT_COMM | REPORT_SYMBOL | REPORT_IMAGE, .columns = 56
	};
	char *text = text_of(&options);

	/* The share goes first, then the space of numbers; then the widest column is cut. */
	CHECK_STRING(strstr(text, "# Overhead"),
		     "# Overhead Samples  Program  Command  Function  Image\n"
		     "    90.00%       9  vcpu 0   vcpu 0   leaf      [kerne..\n"
		     "    10.00%       1  vcpu;1   vcpu;1   leaf      [kerne..\n"
		     "# Lost 3 samples: the recorder could not keep up\n");
	free(text);
}
