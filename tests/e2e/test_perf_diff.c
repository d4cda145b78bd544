/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope diff prints what perf diff prints of the same files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/browser.h"
#include "tests/e2e/named_guest.h"
#include "tests/e2e/perf_home.h"
#include "tests/e2e/perf_recording.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"

/* 100 samples in each function of the kernel from FIRST on, and STEP more in each next one. */
static void write_file(const struct named_guest *named, const char *name, unsigned int first,
		       unsigned int step)
{
	char path[256];
	struct recording recording = { .path = path };
	struct sample *sample = malloc(sample_size(SAMPLE_CALLCHAIN_MAX));
	struct perf_data_writer *writer;
	unsigned int number = 0;

	snprintf(path, sizeof(path), "%s/%s", named->home, name);
	recording_rewind();
	REQUIRE_EQUAL(recording_open(&writer, &recording), 0);
	recording_map_guest(writer, &named->guest, false);
	recording_name_vcpus(writer);
	for (unsigned int i = first; i < first + 6; i++)
		for (unsigned int j = 0; j < 100 + step * i; j++) {
			recording_sample_begin(sample, number++, 2);
			sample->period = 1000000;
			sample->kernel_depth = 1;
			sample->callchain[0] = FAKE_TEXT + i * FAKE_FUNCTION_SIZE + 4;
			sample->rip = sample->callchain[0];
			CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
		}
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
	free(sample);
}

static char *rows_of(const struct named_guest *named, const char *command)
{
	int status;
	char *text = command_output(&status,
				    "kvmscope=$PWD/build/kvmscope; cd %s; { %s; } 2> err | "
				    "grep -v '^#' | sed 's/ *$//'",
				    named->home, command);

	CHECK_EQUAL(status, 0);
	return text;
}

static void begin(struct named_guest *named)
{
	named_guest_begin(named, 0x17, 0);
	named_guest_cache(named, false);
	write_file(named, "perf.data.old", 0, 7);
	write_file(named, "perf.data", 1, 20);
}

TEST(diff, agrees_with_perf_diff)
{
	struct named_guest named;
	char *ours, *perfs, *heading;

	NEED_PERF;
	begin(&named);
	/* perf diff leaves the difference of a function that is gone empty. */
	ours = rows_of(&named, "$kvmscope diff | sed 's/-14.18%/       /' | sort");
	perfs = rows_of(&named, "perf diff | sort");
	CHECK_STRING(ours, perfs);
	CHECK(strstr(ours, "    17.16%     -1.48%  [kernel.kallsyms]  [k] guest_function_3\n"));
	heading = command_output(NULL,
				 "cd %s; perf diff 2> err | sed -n 2,5p > perfs; "
				 "%s/build/kvmscope diff | sed -n 2,5p | diff -b - perfs",
				 named.home, getenv("PWD"));
	CHECK_STRING(heading, "");
	free(heading);
	free(ours);
	free(perfs);
	named_guest_end(&named);
}

TEST(diff, sorts_by_the_difference_or_the_baseline)
{
	struct named_guest named;
	char *text;

	begin(&named);
	text = rows_of(&named, "$kvmscope diff perf.data.old perf.data | head -8");
	CHECK_STRING(text, "              +21.57%  [kernel.kallsyms]  [k] guest_function_6\n"
			   "    14.18%    -14.18%  [kernel.kallsyms]  [k] guest_function_0\n"
			   "    15.18%     -3.41%  [kernel.kallsyms]  [k] guest_function_1\n");
	free(text);
	text = rows_of(&named, "$kvmscope diff --order baseline perf.data | head -6");
	CHECK_STRING(text, "    19.15%     +0.46%  [kernel.kallsyms]  [k] guest_function_5\n");
	free(text);
	named_guest_end(&named);
}

/* 100 and 121 of 705 samples before, 160 and 220 of 1020 after. */
TEST(diff, writes_folded_stacks_of_both)
{
	struct named_guest named;
	char *text;

	begin(&named);
	text = rows_of(&named, "$kvmscope diff -f folded | grep -e _0 -e _3 -e _6");
	CHECK_STRING(text, "vcpu 0;guest_function_0 72 0\n"
			   "vcpu 0;guest_function_3 87 80\n"
			   "vcpu 0;guest_function_6 0 110\n"
			   "vcpu 1;guest_function_0 72 0\n"
			   "vcpu 1;guest_function_3 88 80\n"
			   "vcpu 1;guest_function_6 0 110\n");
	free(text);
	named_guest_end(&named);
}

/* What is new is red, what is gone blue, and the table has the differences of the text. */
TEST(diff, writes_a_page_in_colours_of_the_difference)
{
	static const char *const parts[] = {
		"Samples before</dt><dd>705</dd>",
		"name=\"guest_function_6\"",
		"<title>guest_function_6 - 0% before, 10.8% after, +10.78%</title>",
		"fill=\"hsl(5 85% 60%)\"",
		"<title>guest_function_0 - 7.1% before, 0% after, \342\210\2227.09%</title>",
		"fill=\"hsl(215 85% 60%)\"",
		"<td class=\"number\">+21.57%</td>",
		"<td class=\"number\">\342\210\22214.18%</td>",
	};
	struct named_guest named;
	struct browser_page opened;

	NEED_BROWSER;
	begin(&named);
	free(rows_of(&named, "$kvmscope diff -f html > diff.html"));
	browser_show(&opened, named.home, "diff.html");
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		browser_check_shows(opened.page, parts[i]);
	browser_page_free(&opened);
	named_guest_end(&named);
}

/* Recordings of two machines come with their symbols. */
TEST(diff, reads_the_archive_of_each_recording)
{
	struct named_guest named;
	char *text;

	begin(&named);
	text = rows_of(&named,
		       "$kvmscope archive -i perf.data.old; $kvmscope archive; rm -r .debug; "
		       "export TMPDIR=$PWD/tmp; mkdir tmp; $kvmscope diff | head -6; "
		       "ls tmp; rm perf.data.old.tar.gz; $kvmscope diff");
	CHECK_STRING(text, "              +21.57%  [kernel.kallsyms]  [k] guest_function_6\n"
			   "   100.00%   -100.00%  [kernel.kallsyms]  [k] [unknown]\n"
			   "              +21.57%  [kernel.kallsyms]  [k] guest_function_6\n"
			   "              +19.61%  [kernel.kallsyms]  [k] guest_function_5\n"
			   "              +17.65%  [kernel.kallsyms]  [k] guest_function_4\n"
			   "              +15.69%  [kernel.kallsyms]  [k] guest_function_3\n"
			   "              +13.73%  [kernel.kallsyms]  [k] guest_function_2\n"
			   "              +11.76%  [kernel.kallsyms]  [k] guest_function_1\n");
	free(text);
	named_guest_end(&named);
}

TEST(diff, reports_a_recording_that_is_missing)
{
	int status;
	char *text = command_output(&status, "build/kvmscope diff build/none build/other 2>&1");

	CHECK_EQUAL(status, 1);
	CHECK(strstr(text, "build/none"));
	free(text);
	text = command_output(&status, "build/kvmscope diff a b c 2>&1");
	CHECK_EQUAL(status, 2);
	CHECK(strstr(text, "c: only two recordings can be compared"));
	free(text);
}
