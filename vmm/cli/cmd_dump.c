/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope dump: has the flight recorder of a run write what it holds. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/parse_number.h"
#include "vmm/cli/command.h"
#include "vmm/cli/run_selector.h"
#include "vmm/control/client.h"

#define ASK_INTERVAL_US 20000

struct arguments {
	struct run_selector run;
	const char *output;
	uint64_t after; /* ns; UINT64_MAX: as the run has it */
	bool json;
};

enum key { KEY_AFTER = 256, KEY_JSON };

static const struct argp_option options[] = {
	{ "output", 'o', "FILE", 0, "Write this file (the run's next: perf.data, perf.data.1, ...)",
	  0 },
	{ "after", KEY_AFTER, "TIME", 0,
	  "Wait for this much more before writing: 5s, 500ms (the run's own --after)", 0 },
	{ "json", KEY_JSON, NULL, 0, "What was written, as JSON", 0 },
	{ 0 },
};

static const char summary[] =
	"Has a run of kvmscope with --flight write the samples that it holds in memory, and prints the file's "
	"name when it is complete. The guest and its sampling go on meanwhile."
	"\v"
	"Examples:\n"
	"  kvmscope dump\n"
	"      of the only run: perf.data where that was started\n"
	"  kvmscope dump --name web --after 5s\n"
	"      what led here, and what comes in the next five seconds\n"
	"  kvmscope report -i \"$(kvmscope dump)\"\n"
	"\n"
	"Exit status: 0; 1 there is no such run, it has no flight recorder, or the file\n"
	"can not be written; 2 wrong usage.\n";

static error_t parse(int key, char *value, struct argp_state *state)
{
	struct arguments *arguments = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &arguments->run;
		return 0;
	case 'o':
		arguments->output = value;
		return 0;
	case KEY_AFTER:
		if (parse_duration(value, &arguments->after))
			argp_error(state, "--after %s: it must be a time like 5s or 500ms", value);
		return 0;
	case KEY_JSON:
		arguments->json = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(
			state,
			"'%s' is not an option: a run is named by --name, a domain's recorder by kvmscope ctl dump",
			value);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* The run may be at home in another directory. */
static int absolute(const char *path, char whole[PATH_MAX])
{
	char directory[PATH_MAX] = "";

	if (*path != '/' && !getcwd(directory, sizeof(directory)))
		return error_set(-errno, "can not tell which directory this is: %s",
				 strerror(errno));
	if (snprintf(whole, PATH_MAX, "%s%s%s", directory, *directory ? "/" : "", path) >= PATH_MAX)
		return error_set(-ENAMETOOLONG, "%s is too long a name", path);
	return 0;
}

static int ask(const struct arguments *arguments, int run, json_t **asked)
{
	json_t *wanted = json_object();
	char whole[PATH_MAX];
	int error = arguments->output ? absolute(arguments->output, whole) : 0;

	if (!error && arguments->output && json_object_set_new(wanted, "file", json_string(whole)))
		error = error_set(-EINVAL, "%s is no UTF-8, which the run's protocol needs", whole);
	if (arguments->after != UINT64_MAX)
		json_object_set_new(wanted, "after", json_real((double)arguments->after / 1e9));
	if (!error)
		error = control_call(run, "dump", wanted, asked);
	json_decref(wanted);
	return error;
}

/* Asks until it is written: a recording with --after takes its time. */
static int wait_for(int run, json_t *asked, json_t **result)
{
	int error;

	while (!(error = control_call(run, "dump-result", asked, result)) &&
	       !json_is_true(json_object_get(*result, "complete"))) {
		json_decref(*result);
		*result = NULL;
		usleep(ASK_INTERVAL_US);
	}
	return error;
}

static void print(const struct arguments *arguments, const json_t *result)
{
	const char *file = json_string_value(json_object_get(result, "file"));

	if (arguments->json)
		json_dumpf(result, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
	else
		fputs(file ? file : "", stdout);
	putchar('\n');
}

static int dump(const struct arguments *arguments)
{
	int run = run_selector_connect(&arguments->run), error = run < 0 ? run : 0;
	json_t *asked = NULL, *result = NULL;

	if (!error)
		error = ask(arguments, run, &asked);
	if (!error)
		error = wait_for(run, asked, &result);
	if (run >= 0)
		close(run);
	if (!error)
		print(arguments, result);
	json_decref(asked);
	json_decref(result);
	return error ? command_failed() : EXIT_OK;
}

int command_dump(int argc, char **argv)
{
	static const struct argp_child children[] = { { &run_selector_argp, 0, "Which run:", 1 },
						      { 0 } };
	static const struct argp argp = {
		.options = options, .parser = parse, .doc = summary, .children = children
	};
	struct arguments arguments = { .after = UINT64_MAX };
	char name[] = "kvmscope dump";

	argv[0] = name;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &arguments);
	return dump(&arguments);
}
