/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope report and export agree with Debian's perf on every sample of the same file. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/e2e/recorded_guest.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"

/* Shows the first lines that differ between two texts. */
static void show_difference(const char *what, const char *ours, const char *theirs)
{
	const char *line = ours, *their_line = theirs;

	while (*ours && *ours == *theirs) {
		if (*ours == '\n') {
			line = ours + 1;
			their_line = theirs + 1;
		}
		ours++;
		theirs++;
	}
	FAIL_TEST("%s: kvmscope prints\n%.*s\nperf prints\n%.*s", what, (int)strcspn(line, "\n"),
		  line, (int)strcspn(their_line, "\n"), their_line);
}

/* Frees both. */
static void check_same(const char *what, char *ours, char *theirs)
{
	CHECK(*ours);
	if (strcmp(ours, theirs) != 0)
		show_difference(what, ours, theirs);
	free(ours);
	free(theirs);
}

/* Our rows with percentages and counts, without thousands separators and brackets of a vCPU. */
#define OURS                                                                                       \
	"grep -v '^#' | sed 's/,//g; s/\\[00\\([0-9]\\)\\]/\\1/; s/^ *//; s/ *$//; s/  */ /g' | sort"
/* perf's rows without the markers for kernel and user. */
#define THEIRS "grep -v '^#' | sed -E 's/\\[[k.]\\] //; /^ *$/d; s/^ *//; s/ *$//; s/ +/ /g' | sort"

static bool have_perf(void)
{
	return command_succeeds("perf --version");
}

TEST(report, agrees_with_perf_on_every_sample)
{
	struct named_guest fixture;

	if (!have_perf())
		SKIP("perf is not installed");
	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	check_same(
		"functions",
		command_output(NULL, "build/kvmscope report -i %s --sort symbol,vcpu | " OURS,
			       fixture.path),
		command_output(
			NULL,
			"perf report -i %s --stdio --no-children -g none -s cpu,sym -F overhead,sample,cpu,sym "
			"2>/dev/null | sed -E 's/^(.*) 00([0-9])/\\1 \\2/' | " THEIRS,
			fixture.path));
	check_same(
		"images",
		command_output(NULL, "build/kvmscope report -i %s --sort image,vcpu | " OURS,
			       fixture.path),
		command_output(
			NULL,
			"perf report -i %s --stdio --no-children -g none -s cpu,dso -F overhead,sample,cpu,dso "
			"2>/dev/null | sed -E 's/^(.*) 00([0-9])/\\1 \\2/' | " THEIRS,
			fixture.path));
	named_guest_end(&fixture);
}

TEST(report, counts_callers_as_perf_does)
{
	struct named_guest fixture;

	if (!have_perf())
		SKIP("perf is not installed");
	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	check_same(
		"callers",
		command_output(NULL,
			       "build/kvmscope report -i %s --children --sort symbol | "
			       "awk '/^#/ { next } { print $1, $2, $NF }' | sort",
			       fixture.path),
		command_output(
			NULL,
			"perf report -i %s --stdio --children -g none -s sym -F overhead_children,overhead,sym "
			"2>/dev/null | " THEIRS,
			fixture.path));
	named_guest_end(&fixture);
}

TEST(report, writes_samples_as_perf_script_does)
{
	struct named_guest fixture;

	if (!have_perf())
		SKIP("perf is not installed");
	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	check_same(
		"script",
		command_output(NULL, "build/kvmscope export --format script -i %s", fixture.path),
		command_output(NULL, "perf script -i %s 2>/dev/null", fixture.path));
	named_guest_end(&fixture);
}

TEST(report, selects_times_as_perf_does)
{
	static const char *const times[] = {
		"10%%/2", "0%%-10%%,55%%-70%%", "99%%-100%%", "%s,", ",%s",
		"%s,%s",  "%s,%s 1000,2000"
	};
	struct named_guest fixture;
	char *middle, *later;

	if (!have_perf())
		SKIP("perf is not installed");
	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	middle = command_output(NULL,
				"perf script --ns -F time -i %s 2>/dev/null | "
				"sed -n '1000{s/[: ]//g;p}' | tr -d '\\n'",
				fixture.path);
	later = command_output(NULL,
			       "perf script --ns -F time -i %s 2>/dev/null | "
			       "sed -n '2000{s/[: ]//g;p}' | tr -d '\\n'",
			       fixture.path);
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		char time[128];

		snprintf(time, sizeof(time), times[i], middle, later);
		check_same(time,
			   command_output(NULL, "build/kvmscope export -f script -i %s --time '%s'",
					  fixture.path, time),
			   command_output(NULL, "perf script -i %s --time '%s' 2>/dev/null",
					  fixture.path, time));
		check_same(
			time,
			command_output(
				NULL,
				"build/kvmscope report -i %s --time '%s' "
				"--sort symbol | grep guest_function | awk '{ print $2, $NF }' | "
				"tr -d , | sort",
				fixture.path, time),
			command_output(
				NULL,
				"perf report -i %s --time '%s' --stdio --no-children "
				"-g none -s sym -F sample,sym 2>/dev/null | grep guest_function | " THEIRS,
				fixture.path, time));
	}
	free(middle);
	free(later);
	middle = command_output(NULL, "build/kvmscope report -i %s --time 10%%/2 | grep Time",
				fixture.path);
	CHECK_STRING(middle, "# Time     only 10%/2\n");
	free(middle);
	named_guest_end(&fixture);
}

#define WITHOUT_STUBS "sed -E 's/ [^ ]*@plt>?\\+0x[0-9a-f]+ / [unknown] /'"

/* A recording by perf of short-lived processes: the same symbols for the same samples. */
TEST(report, reads_recordings_of_perf)
{
	struct named_guest fixture;
	char path[128];

	if (!have_perf())
		SKIP("perf is not installed");
	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	snprintf(path, sizeof(path), "%s/own.data", fixture.home);
	if (setenv("RECORDING", path, 1) ||
	    !command_succeeds(
		    "perf record -o $RECORDING -F 4000 -e cpu-clock -- "
		    "sh -c 'for i in 1 2 3; do find /usr/share/doc -maxdepth 2 | sort | md5sum; done'")) {
		named_guest_end(&fixture);
		SKIP("perf cannot record here");
	}
	/*
	 * perf 6.1 omits some PLT stubs and misidentifies those of libc, because it goes by their
	 * order.
	 */
	check_same("script",
		   command_output(NULL,
				  "build/kvmscope export --format script -i %s | " WITHOUT_STUBS,
				  path),
		   command_output(NULL, "perf script -i %s 2>/dev/null | " WITHOUT_STUBS, path));
	named_guest_end(&fixture);
}

static json_t *json_report(const char *options, const char *recording)
{
	char *text =
		command_output(NULL, "build/kvmscope report --json %s -i %s", options, recording);
	json_t *report = json_loads(text, 0, NULL);

	if (!report)
		FAIL_TEST("no JSON: %.500s", text);
	free(text);
	return report;
}

static json_int_t number_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static json_t *first_event(const json_t *report)
{
	return json_array_get(json_object_get(report, "events"), 0);
}

TEST(report, json_matches_the_file)
{
	struct named_guest fixture;
	json_int_t samples = 0;
	json_t *report, *row;
	size_t index;

	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	report = json_report("", fixture.path);
	CHECK_EQUAL(number_of(first_event(report), "samples"), RECORDED_SAMPLES);
	CHECK_EQUAL(number_of(report, "lost"), 17);
	CHECK(json_is_false(json_object_get(report, "cut_off")));
	CHECK_STRING(json_string_value(json_object_get(report, "release")), "6.1.0-test");
	CHECK_STRING(json_string_value(json_object_get(first_event(report), "event")), "cpu-clock");
	json_array_foreach(json_object_get(first_event(report), "rows"), index, row) samples +=
		number_of(row, "samples");
	CHECK_EQUAL(samples, RECORDED_SAMPLES);
	json_decref(report);

	report = json_report("--vcpu 1", fixture.path);
	CHECK_EQUAL(number_of(first_event(report), "samples"), RECORDED_SAMPLES / 2);
	json_decref(report);

	report = json_report("-n 2", fixture.path);
	CHECK_EQUAL(json_array_size(json_object_get(first_event(report), "rows")), 2);
	CHECK(number_of(first_event(report), "hidden_rows") > 2);
	json_decref(report);
	named_guest_end(&fixture);
}

TEST(report, shows_the_guest_in_the_host_perspective)
{
	struct named_guest fixture;
	char *inside, *outside;

	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	inside = command_output(NULL, "build/kvmscope report -i %s --sort symbol,vcpu | " OURS,
				fixture.path);
	named_guest_end(&fixture);
	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_HOST);
	outside = command_output(NULL, "build/kvmscope report -i %s --sort symbol,vcpu | " OURS,
				 fixture.path);
	CHECK(strstr(outside, "guest_function_0"));
	CHECK(strstr(outside, "module_function_0"));
	check_same("functions", inside, outside);
	named_guest_end(&fixture);
}

TEST(report, shows_no_uncertain_symbols)
{
	struct named_guest fixture;
	json_t *report, *row;
	size_t index;

	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	free(command_output(NULL, "rm -rf %s/.debug", fixture.home));
	report = json_report("", fixture.path);
	json_array_foreach(json_object_get(first_event(report), "rows"), index, row)
		CHECK(json_is_null(json_object_get(row, "function")));
	CHECK(strstr(json_string_value(json_object_get(report, "note")), "--kallsyms"));
	CHECK(strstr(json_string_value(json_object_get(report, "note")), "--buildid-dir"));
	json_decref(report);
	named_guest_end(&fixture);
}

TEST(report, reads_symbols_from_a_user_file)
{
	struct named_guest fixture;
	char *text;

	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	text = command_output(NULL,
			      "rm -rf %s/.debug; echo '%llx T only_one' > %s/kallsyms; "
			      "build/kvmscope report -i %s --kallsyms %s/kallsyms -n 1",
			      fixture.home, FAKE_TEXT, fixture.home, fixture.path, fixture.home);
	CHECK(strstr(text, "only_one"));
	free(text);
	named_guest_end(&fixture);
}

TEST(report, reads_the_file_of_a_killed_recorder)
{
	struct named_guest fixture;
	json_t *report;
	char path[160];

	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	snprintf(path, sizeof(path), "%s/cut.data", fixture.home);
	free(command_output(NULL, "head -c 100000 %s > %s", fixture.path, path));
	report = json_report("", path);
	CHECK(json_is_true(json_object_get(report, "cut_off")));
	CHECK(number_of(first_event(report), "samples") > 100);
	CHECK(number_of(first_event(report), "samples") < RECORDED_SAMPLES);
	json_decref(report);
	named_guest_end(&fixture);
}

TEST(report, reads_from_a_pipe)
{
	struct named_guest fixture;
	char *through_pipe;

	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	through_pipe =
		command_output(NULL, "cat %s | build/kvmscope report -i - | " OURS, fixture.path);
	check_same("functions", through_pipe,
		   command_output(NULL, "build/kvmscope report -i %s | " OURS, fixture.path));
	named_guest_end(&fixture);
}

TEST(report, reads_recordings_of_perf_from_a_pipe)
{
	struct named_guest fixture;
	char *script;

	if (!command_succeeds("perf record -e cpu-clock -o - true"))
		SKIP("perf is not installed or cannot record here");
	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	free(command_output(
		NULL,
		"perf record -F 2000 -e cpu-clock -o - sh -c 'find /usr/share/doc | sort' "
		"2>/dev/null > %s/piped",
		fixture.home));
	script = command_output(NULL,
				"cat %s/piped | build/kvmscope report -i - --sort comm --json | "
				"grep -c '\"comm\": \"\\(find\\|sort\\)\"'",
				fixture.home);
	CHECK_EQUAL(atoi(script), 2);
	free(script);
	script = command_output(
		NULL, "build/kvmscope report -i %s/piped --sort comm | grep 'further event'",
		fixture.home);
	CHECK_STRING(script, "");
	free(script);
	named_guest_end(&fixture);
}

/* OUTPUT is the redirection of standard output in shell syntax. */
static void check_failure_into(const char *output, const char *arguments, int status,
			       const char *message)
{
	int ended;
	char *text = command_output(&ended, "build/kvmscope %s 2>&1 %s", arguments, output);

	CHECK_EQUAL(ended, status);
	if (!strstr(text, message))
		FAIL_TEST("kvmscope %s prints \"%s\", without \"%s\"", arguments, text, message);
	free(text);
}

static void check_failure(const char *arguments, int status, const char *message)
{
	check_failure_into("", arguments, status, message);
}

TEST(report, reports_errors)
{
	check_failure(
		"report -i build/no-such-file", 1,
		"build/no-such-file: No such file or directory; record one with kvmscope run");
	check_failure("report -i Makefile", 1, "Makefile");
	check_failure("report --sort colour", 2, "symbol, image, vcpu, app, comm, pid, tid");
	check_failure("report --vcpu x", 2, "--vcpu x: it must be a number from 0 to");
	check_failure("report --percent-limit 101", 2,
		      "--percent-limit 101: it must be a number from 0 to 100");
	check_failure("report --percent-limit=+5", 2, "--percent-limit +5: it must be");
	check_failure("report --percent-limit=-0", 2, "it must be a number from 0 to 100");
	check_failure("report --percent-limit 0x5", 2, "it must be a number from 0 to 100");
	check_failure("report --percent-limit .", 2, "it must be a number from 0 to 100");
	check_failure("report one.data two.data", 2,
		      "two.data: only one recording can be read, and it is one.data");
	check_failure("report build/no-such-file", 1, "build/no-such-file: No such file");
	check_failure("export build/no-such-file", 1, "build/no-such-file: No such file");
	check_failure("report --symfs build/no-such-directory", 2,
		      "--symfs build/no-such-directory: No such file or directory; it must be");
	check_failure("report --symfs Makefile", 2, "--symfs Makefile: it must be a directory");
	check_failure("report --time 5", 2, "--time 5: it must be START,STOP in seconds");
	check_failure("export --time 10%/11 -f folded", 2, "10%-20% or 10%/2");
	check_failure("report --json -g", 2, "give only one of --json and -g");
	check_failure("report --color neverr", 2, "did you mean never?");
	check_failure("report --sort sybmol", 2, "container; did you mean symbol?");
	check_failure("report -g --chidlren", 2, "unrecognized option '--chidlren'");
	check_failure("report --chidlren", 2, "kvmscope report: did you mean --children?");
	check_failure("export --formt=html", 2, "did you mean --format?");
	check_failure("run --kernl x", 2, "did you mean --kernel?\nTry `kvmscope run --help'");
	check_failure("run --no-such-option", 2,
		      "unrecognized option '--no-such-option'\nTry `kvmscope run --help'");
	check_failure("run --kernel", 2, "requires an argument\nTry `kvmscope run --help'");
	check_failure("attach --backend pref", 2,
		      "it must be one of auto, bpf, perf, ptrace, qmp; did you mean perf?");
	check_failure("repotr", 2, "demo; did you mean report?");
	check_failure("xyz", 2, "command xyz: it must be one of run, top, attach, stat, ctl,");
	check_failure("ctl stats", 2, "pause, resume, freq, bp; did you mean status?");
	check_failure("ctl bp ad", 2, "bp ad: it must be one of list, add, remove");
	check_failure("libvirt xstatus", 2, "uninstall, status; did you mean status?");
	check_failure(
		"export -o build/out.svg", 2,
		"-o build/out.svg: the suffix must be .html, .folded, .pb.gz, .speedscope.json, "
		".firefox.json or .txt");
	check_failure("export --format svg", 2,
		      "one of html, folded, pprof, speedscope, firefox, script, sysroot");
	check_failure("export -f htlm", 2, "did you mean html?");
	check_failure("export --format html -i build/no-such-file -o build/never.html", 1,
		      "build/no-such-file");
	CHECK(access("build/never.html", F_OK) && access("build/never.html.partial", F_OK));
	check_failure("report --help", 0, "Examples:");
	check_failure("export --help", 0, "Examples:");
}

TEST(report, suggests_an_event_of_the_recording)
{
	static const char *const commands[] = { "report", "export -f folded", "export -f script" };
	struct named_guest fixture;
	char arguments[512];

	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		snprintf(arguments, sizeof(arguments), "%s --event cpu-clok %s", commands[i],
			 fixture.path);
		check_failure(arguments, 2, "its events are 0 cpu-clock; did you mean cpu-clock?");
	}
	named_guest_end(&fixture);
}

TEST(export, without_options_writes_a_flame_graph_of_perf_data)
{
	struct named_guest fixture;
	char *text;

	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	text = command_output(NULL,
			      "kvmscope=$PWD/build/kvmscope; cd %s; "
			      "$kvmscope export 2>&1; grep -c '<html' flame.html; "
			      "echo mine > flame.html; $kvmscope export 2>&1; "
			      "grep -c '<html' flame.html; cat flame.html.old",
			      fixture.home);
	CHECK(strstr(text, "writing flame.html"));
	CHECK(strstr(text, "\n1\n"));
	CHECK(strstr(text, "the existing file is now "));
	CHECK(strstr(text, "flame.html.old\n1\nmine\n"));
	free(text);
	named_guest_end(&fixture);
}

TEST(report, every_form_of_a_file_that_is_cut_off_says_so)
{
	static const char *const commands[] = {
		"report",
		"report --json",
		"export --format folded",
		"export --format script",
		"export --format pprof",
		"export --format speedscope",
		"export --format firefox",
		"export --format html",
	};
	struct named_guest fixture;

	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	free(command_output(NULL,
			    "cd %s; head -c $(($(stat -c %%s perf.data) / 2)) perf.data > half; "
			    "head -c 400 perf.data > head; head -c 200 perf.data > start",
			    fixture.home));
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		int status;
		char *text = command_output(&status, "build/kvmscope %s %s/half 2>&1 > %s/out",
					    commands[i], fixture.home, fixture.home);

		CHECK_EQUAL(status, 0);
		if (!strstr(text, "half is cut off"))
			FAIL_TEST("kvmscope %s prints \"%s\"", commands[i], text);
		free(text);
		text = command_output(&status, "build/kvmscope %s %s/head 2>&1", commands[i],
				      fixture.home);
		CHECK_EQUAL(status, 1);
		CHECK(strstr(text, "has no sample yet"));
		free(text);
		text = command_output(&status, "build/kvmscope %s %s/start 2>&1", commands[i],
				      fixture.home);
		CHECK_EQUAL(status, 1);
		CHECK(strstr(text, "start is cut off, or broken: its 200 bytes"));
		free(text);
	}
	named_guest_end(&fixture);
}

static void check_rows(const struct named_guest *fixture, const char *format, int rows,
		       const char *more)
{
	char command[512], *text;

	snprintf(command, sizeof(command), format, fixture->path);
	text = command_output(
		NULL,
		"%s > %s/text; grep -c %% %s/text; sed -nE 's/^# (.*more row.*)/\\1/p' %s/text",
		command, fixture->home, fixture->home, fixture->home);
	snprintf(command, sizeof(command), "%d\n%s", rows, more);
	CHECK_STRING(text, command);
	free(text);
}

/* Out of 48 rows. */
TEST(report, limits_rows_to_the_terminal_height)
{
#define REPORT "build/kvmscope report -i %s -s symbol,tid,vcpu"
#define TERMINAL(command)                                                                          \
	"TERM=dumb script -qec 'stty rows 24; " command "' /dev/null | tr -d '\\r'"
	struct named_guest fixture;

	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	check_rows(&fixture, REPORT, 48, "");
	check_rows(&fixture, REPORT " -n 5", 5, "43 more rows below the limit\n");
	check_rows(&fixture, TERMINAL(REPORT " --no-pager"), 12,
		   "36 more rows than fit here: use -n 48 or a pipe to show them\n");
	check_rows(&fixture, TERMINAL(REPORT " --no-pager -n 48"), 48, "");
	check_rows(&fixture, TERMINAL(REPORT " --no-pager --percent-limit 0.01"), 48, "");
	/* A pager has all of them. */
	check_rows(&fixture, TERMINAL("PAGER=\"tr a-z a-z\" " REPORT), 48, "");
	named_guest_end(&fixture);
#undef TERMINAL
#undef REPORT
}

/* What report prints on a terminal with COLUMNS, to be freed. */
static char *text_on_terminal(const struct named_guest *fixture, int columns)
{
	return command_output(
		NULL,
		"TERM=dumb script -qec 'stty cols %d; build/kvmscope report --no-pager -i %s -g' "
		"/dev/null | tr -d '\\r'",
		columns, fixture->path);
}

static size_t longest_line(const char *text)
{
	size_t longest = 0;

	for (; *text; text += strcspn(text, "\n") + 1)
		if (strcspn(text, "\n") > longest)
			longest = strcspn(text, "\n");
	return longest;
}

TEST(report, limits_lines_to_the_terminal_width)
{
	struct named_guest fixture;
	char *wide, *narrow;

	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	wide = text_on_terminal(&fixture, 200);
	CHECK(strstr(wide, "vCPU share") && longest_line(wide) > 60);
	narrow = text_on_terminal(&fixture, 60);
	CHECK(!strstr(narrow, "vCPU share") && strstr(narrow, "Function") &&
	      strstr(narrow, "Image"));
	CHECK(longest_line(narrow) <= 60);
	free(narrow);
	narrow = text_on_terminal(&fixture, 42);
	CHECK(strstr(narrow, "Function") && strstr(narrow, "Image") && strstr(narrow, "..\n"));
	if (longest_line(narrow) > 42)
		FAIL_TEST("wider than 42 columns:\n%s", narrow);
	free(narrow);
	/* Comments are wrapped, no word is lost. */
	narrow = text_on_terminal(&fixture, 24);
	if (!strstr(narrow, "# Guest    Linux\n#   6.1.0-test x86_64,\n#   guest\n"))
		FAIL_TEST("on 24 columns:\n%s", narrow);
	free(wide);
	free(narrow);
	named_guest_end(&fixture);
}

/* report on a terminal with what PAGER names, and the status; then the file "paged". */
static void check_paged(const struct named_guest *fixture, const char *pager, const char *keys,
			const char *expected)
{
	char *text =
		command_output(NULL,
			       "cd %s; rm -f paged; %s; "
			       "export PAGER TERM=xterm; "
			       "printf '%s' | script -qec 'stty rows 24 cols 80; "
			       "'$OLDPWD'/build/kvmscope report -n 40 -s symbol,tid -g; "
			       "echo \"status $?\"' /dev/null > screen; "
			       "grep -o 'status .\\|cannot be run.*pager' screen | tr -d '\\r'; "
			       "cat paged 2> /dev/null",
			       fixture->home, pager, keys);

	if (strcmp(text, expected) != 0)
		FAIL_TEST("with %s, there is \"%s\" instead of \"%s\"", pager, text, expected);
	free(text);
}

TEST(report, goes_through_the_pager_on_a_terminal)
{
	struct named_guest fixture;

	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	check_paged(&fixture, "PAGER=\"grep -c '^[^#-]*%' > paged; echo \\$LESS >> paged\"", "",
		    "status 0\n40\nFRX\n");
	check_paged(&fixture, "PAGER='head -n 1 > paged; wc -l < paged > x; mv x paged'", "",
		    "status 0\n1\n");
	check_paged(&fixture, "PAGER=no-such-pager", "",
		    "cannot be run: set PAGER to another one, "
		    "or give --no-pager\nstatus 1\n");
	check_paged(&fixture, "PAGER=", "", "status 0\n");
	/* less waits for q, as there is more than a screen. */
	if (command_succeeds("less --version"))
		check_paged(&fixture, "unset PAGER", "q", "status 0\n");
	named_guest_end(&fixture);
}

/* Output as root must not replace /dev/null, nor a link. */
TEST(report, writes_to_a_pipe_and_through_a_link)
{
	struct named_guest fixture;
	char *text;

	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	text = command_output(
		NULL,
		"cd %s && kvmscope=$OLDPWD/build/kvmscope && $kvmscope export -f folded -i %s -o whole && "
		"mkfifo pipe && { cat pipe > piped & } && $kvmscope export -f folded -i %s -o pipe && "
		"wait && test -p pipe && cmp whole piped && "
		"echo old > target && ln -s target link && $kvmscope export -f folded -i %s -o link && "
		"test -h link && cmp whole target && test ! -e link.partial && "
		"ln -s /proc/self/fd/1 standard && "
		"{ echo before && $kvmscope export -f folded -i %s -o standard && echo behind; } > all && "
		"test -h standard && { echo before && cat whole && echo behind; } | cmp - all && echo well",
		fixture.home, fixture.path, fixture.path, fixture.path, fixture.path);
	CHECK_STRING(text, "well\n");
	free(text);
	named_guest_end(&fixture);
}

/* The input is a pipe without a writer, so the export is interrupted halfway. */
static void check_ended_by(const char *home, const char *signal, const char *expected)
{
	char *text = command_output(
		NULL,
		"cd %s && kvmscope=$OLDPWD/build/kvmscope && mkfifo silent && echo old > cut && "
		"{ env --default-signal=%s $kvmscope export -f folded -i silent -o cut & } && "
		"until [ -e cut.partial ] || ! kill -0 $!; do sleep 0.01; done; "
		"kill -%s $!; wait $! 2>/dev/null; echo $?; cat cut; rm silent; ls cut*",
		home, signal, signal);

	CHECK_STRING(text, expected);
	free(text);
}

TEST(report, interrupted_export_leaves_no_files)
{
	struct named_guest fixture;

	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	check_ended_by(fixture.home, "INT", "130\nold\ncut\n");
	check_ended_by(fixture.home, "TERM", "143\nold\ncut\n");
	named_guest_end(&fixture);
}

TEST(report, unwritable_output_is_a_failure)
{
	struct named_guest fixture;
	char command[512];

	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	snprintf(command, sizeof(command), "export -f folded -i %s -o /dev/full", fixture.path);
	check_failure(command, 1, "No space left");
	snprintf(command, sizeof(command), "report -i %s", fixture.path);
	check_failure_into("> /dev/full", command, 1, "No space left");
	check_failure_into("> /dev/full", "ctl list", 1, "standard output: No space left");
	check_failure_into("> /dev/full", "--help", 1, "standard output: No space left");
	named_guest_end(&fixture);
}

TEST(report, folds_stacks_for_flame_graph_tools)
{
	struct named_guest fixture;
	unsigned int samples = 0, count;
	char *text, *rest = NULL;

	recorded_guest_begin(&fixture, "vcpu 0", PERSPECTIVE_GUEST);
	text = command_output(NULL, "build/kvmscope export --format folded -i %s", fixture.path);
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *space = strrchr(line, ' ');

		REQUIRE(space && sscanf(space, " %u", &count) == 1 && count);
		CHECK(!strncmp(line, "vcpu 0;", 7) || !strncmp(line, "vcpu 1;", 7));
		samples += count;
	}
	CHECK_EQUAL(samples, RECORDED_SAMPLES);
	free(text);
	named_guest_end(&fixture);
}
