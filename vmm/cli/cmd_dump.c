/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope dump: makes the flight recorder of a run write its samples. */
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/cli/command.h"
#include "vmm/cli/run_selector.h"
#include "vmm/cli/screen.h"
#include "vmm/control/control_client.h"

#define POLL_INTERVAL_US 20000

struct arguments {
	struct run_selector run;
	const char *output;
	uint64_t after; /* ns; UINT64_MAX: as the run has it */
	bool json;
};

#define AT(field) .offset = offsetof(struct arguments, field)

static const struct option_row rows[] = {
	{ "output", "FILE", "Write FILE (the run's next one)", OPTION_TEXT, AT(output),
	  .letter = 'o' },
	{ "after", "TIME", "Keep sampling: 5s, 500ms (the run's --after)", OPTION_TIME, AT(after) },
	{ "json", NULL, "Print the result as JSON", OPTION_SET, AT(json) },
	{ 0 },
};

static const char summary[] =
	"Make a kvmscope run --flight write the samples that it holds in memory, and print the file's "
	"name when it is complete. The guest and its sampling continue."
	"\v"
	"Examples:\n"
	"  kvmscope dump\n"
	"      with one run: perf.data where that was started\n"
	"  kvmscope dump --name web --after 5s\n"
	"      the time before, and the next five seconds\n"
	"  kvmscope report -i \"$(kvmscope dump)\"\n"
	"\n"
	"Exit status: 0; 1 there is no such run, it has no flight recorder, or the file\n"
	"cannot be written; 2 wrong usage.\n";

/* The run may have another working directory. */
static int absolute(const char *path, char whole[PATH_MAX])
{
	char directory[PATH_MAX] = "";

	if (*path != '/' && !getcwd(directory, sizeof(directory)))
		return error_set(-errno, "cannot determine the working directory: %s",
				 strerror(errno));
	if (snprintf(whole, PATH_MAX, "%s%s%s", directory, *directory ? "/" : "", path) >= PATH_MAX)
		return error_set(-ENAMETOOLONG, "the path %s is too long", path);
	return 0;
}

static int request_dump(const struct arguments *arguments, int run, json_t **request)
{
	json_t *parameters = json_object();
	char whole[PATH_MAX];
	int error = arguments->output ? absolute(arguments->output, whole) : 0;

	if (!error && arguments->output &&
	    json_object_set_new(parameters, "file", json_string(whole)))
		error = error_set(-EINVAL, "%s is not UTF-8, which the run's protocol needs",
				  whole);
	if (arguments->after != UINT64_MAX)
		json_object_set_new(parameters, "after", json_real((double)arguments->after / 1e9));
	if (!error)
		error = control_call(run, "dump", parameters, request);
	json_decref(parameters);
	return error;
}

/* Polls until the file is written: with --after that takes a while. */
static int wait_for(int run, json_t *request, json_t **result)
{
	int error;

	while (!(error = control_call(run, "dump-result", request, result)) &&
	       !json_is_true(json_object_get(*result, "complete"))) {
		json_decref(*result);
		*result = NULL;
		usleep(POLL_INTERVAL_US);
	}
	return error;
}

static void print(const struct arguments *arguments, const json_t *result)
{
	if (arguments->json)
		screen_print_json(result);
	else
		printf("%s\n", answer_text(result, "file"));
}

static int dump(const struct arguments *arguments)
{
	int run = run_selector_connect(&arguments->run), error = run < 0 ? run : 0;
	json_t *request = NULL, *result = NULL;

	if (!error)
		error = request_dump(arguments, run, &request);
	if (!error)
		error = wait_for(run, request, &result);
	if (run >= 0)
		close(run);
	if (!error)
		print(arguments, result);
	json_decref(request);
	json_decref(result);
	return error ? command_failed() : EXIT_OK;
}

int command_dump(int argc, char **argv)
{
	struct arguments arguments = { .after = UINT64_MAX };
	const struct option_group groups[] = { { .rows = rows, .target = &arguments },
					       run_selector_options(&arguments.run),
					       { 0 } };
	const struct option_command table = {
		.name = "kvmscope dump",
		.doc = summary,
		.groups = groups,
		.hint = "--name selects a run, kvmscope ctl dump a domain's recorder",
	};

	return option_table_parse(&table, argc, argv) ? command_failed() : dump(&arguments);
}
