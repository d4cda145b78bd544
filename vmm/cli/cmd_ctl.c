/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope ctl: what a run that is going on can be told, and asked. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/answer.h"
#include "vmm/cli/command.h"
#include "vmm/cli/ctl_breakpoints.h"
#include "vmm/cli/ctl_domains.h"
#include "vmm/cli/option_number.h"
#include "vmm/cli/run_options.h"
#include "vmm/cli/run_selector.h"
#include "vmm/control/client.h"
#include "vmm/control/run_directory.h"

#define MIB (1024.0 * 1024.0)

struct arguments {
	struct run_selector run;
	const char *command;
	unsigned int frequency; /* Hz, with freq */
	const char *watch;      /* with bp add and bp remove */
	const char *domain;     /* of kvmscoped: with status, dump and names */
	bool json, disk_symbols;
};

enum key { KEY_JSON = 256, KEY_NO_DISK_NAMES };

static const struct argp_option options[] = {
	{ "json", KEY_JSON, NULL, 0, "What the run answered, as JSON", 0 },
	{ "no-disk-names", KEY_NO_DISK_NAMES, NULL, 0,
	  "dump: do not look for the names of the guest's programs on the domain's disks", 0 },
	{ 0 },
};

static const char summary[] =
	"Controls a run of kvmscope that is going on. With only one there is no need to say which."
	"\v"
	"Commands:\n"
	"  list       the runs that are going on, and the domains that kvmscoped\n"
	"             profiles\n"
	"  status [DOMAIN]\n"
	"             how it stands: samples, losses, cost; or how a domain does\n"
	"  dump DOMAIN\n"
	"             has the flight recorder of a domain write what it holds, and\n"
	"             prints the file's name; where all is recorded, that of the file\n"
	"             that is written now or, while that has no samples, of the one\n"
	"             before it. Names that its programs lack are looked for on the\n"
	"             domain's disks\n"
	"  names [DOMAIN]\n"
	"             looks for such names of the latest recordings of all domains, or\n"
	"             of that one: what kvmscoped pushes has them from then on. What\n"
	"             their disks have not is looked for once a day: it can be run\n"
	"             regularly\n"
	"  pause      take no more samples; the guest runs on\n"
	"  resume     take them again, as often as before\n"
	"  freq HZ    take HZ samples per second of the clock and vCPU from now on,\n"
	"             1 to 10000; during a pause: after it\n"
	"  bp list    the watches of the run, and who has which debug register of\n"
	"             each vCPU: they, and the guest's own breakpoints beside them\n"
	"  bp add WATCH\n"
	"             watches a variable or a function of the guest from now on, as\n"
	"             run --watch does from the start: its hits are an event of the\n"
	"             recording\n"
	"  bp remove NUMBER|WATCH\n"
	"             stops that: its register is free, its hits stay in the recording\n"
	"\n"
	"pause, resume, freq, bp add and bp remove hold within one sampling period.\n"
	"A WATCH is SYMBOL[+OFFSET]|ADDRESS[:LENGTH[:rw]][@VCPU][,OPTION...]; see\n"
	"kvmscope run --help. 0xNUMBER is an address, NUMBER is what bp list shows.\n"
	"\n"
	"Examples:\n"
	"  kvmscope ctl status\n"
	"  kvmscope ctl --name web freq 4000; sleep 10; kvmscope ctl --name web freq 99\n"
	"  kvmscope ctl --json status | jq .profile.lost\n"
	"  kvmscope ctl bp add schedule:x; sleep 1; kvmscope ctl bp remove schedule:x\n"
	"  kvmscope report -i \"$(kvmscope ctl dump web)\"\n"
	"\n"
	"Exit status: 0; 1 there is no such run, or it can not do it; 2 wrong usage.\n";

static bool is_command(const char *text)
{
	static const char *const commands[] = { "list",  "status", "dump", "names",
						"pause", "resume", "freq", "bp" };

	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (!strcmp(text, commands[i]))
			return true;
	return false;
}

static void take_bp_word(struct argp_state *state, struct arguments *arguments, const char *text)
{
	static const char *const commands[] = { "bp-list", "bp-add", "bp-remove" };

	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (!strcmp(commands[i] + strlen("bp-"), text))
			arguments->command = commands[i];
	if (!strcmp(arguments->command, "bp"))
		argp_error(state, "bp %s: it is one of bp list, bp add and bp remove", text);
}

static bool takes_watch(const struct arguments *arguments)
{
	return !strcmp(arguments->command, "bp-add") || !strcmp(arguments->command, "bp-remove");
}

static bool takes_domain(const struct arguments *arguments)
{
	return !strcmp(arguments->command, "status") || !strcmp(arguments->command, "dump") ||
	       !strcmp(arguments->command, "names");
}

static void take_word(struct argp_state *state, struct arguments *arguments, const char *text)
{
	if (!arguments->command) {
		if (!is_command(text))
			argp_error(state, "there is no command '%s'; --help lists them", text);
		arguments->command = text;
	} else if (!strcmp(arguments->command, "freq") && !arguments->frequency) {
		arguments->frequency = option_number(state, "freq", text, 1, RUN_FREQUENCY_MAX);
	} else if (!strcmp(arguments->command, "bp")) {
		take_bp_word(state, arguments, text);
	} else if (takes_watch(arguments) && !arguments->watch) {
		arguments->watch = text;
	} else if (takes_domain(arguments) && !arguments->domain) {
		arguments->domain = text;
	} else {
		argp_error(state, "'%s' is one word too much", text);
	}
}

static void check(struct argp_state *state, const struct arguments *arguments)
{
	const struct run_selector *run = &arguments->run;

	if (!arguments->command)
		argp_error(
			state,
			"say what to do: list, status, dump DOMAIN, names, pause, resume, freq HZ, bp list, bp add or bp remove");
	else if (!strcmp(arguments->command, "bp"))
		argp_error(state, "bp: list, add or remove?");
	else if (takes_watch(arguments) && !arguments->watch)
		argp_error(state, "bp %s: which one? As in jiffies_64:8:w",
			   arguments->command + strlen("bp-"));
	else if (!strcmp(arguments->command, "freq") && !arguments->frequency)
		argp_error(state, "freq: how many samples per second?");
	else if (!strcmp(arguments->command, "dump") && !arguments->domain)
		argp_error(state, "dump: of which domain? That of a run is kvmscope dump");
	else if (arguments->domain && (run->pid || run->name))
		argp_error(state, "%s is a domain of kvmscoped: it takes no --pid and no --name",
			   arguments->domain);
	else if (!strcmp(arguments->command, "names") && (run->pid || run->name))
		argp_error(
			state,
			"names are those of kvmscoped's domains: it takes no --pid and no --name");
	else if (!strcmp(arguments->command, "list") && (run->pid || run->name || run->socket))
		argp_error(state, "list shows all runs: it takes no --pid, --name or --socket");
}

static error_t parse(int key, char *value, struct argp_state *state)
{
	struct arguments *arguments = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &arguments->run;
		return 0;
	case KEY_JSON:
		arguments->json = true;
		return 0;
	case KEY_NO_DISK_NAMES:
		arguments->disk_symbols = false;
		return 0;
	case ARGP_KEY_ARG:
		take_word(state, arguments, value);
		return 0;
	case ARGP_KEY_END:
		check(state, arguments);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Of CLOCK time, where that is said. */
static void print_rate(const json_t *result)
{
	bool paused = !strcmp(answer_text(result, "state"), "paused");
	const char *clock = answer_text(result, "clock");

	printf(paused ? "paused; %.0f Hz" : "sampling at %.0f Hz",
	       answer_number(result, "frequency"));
	if (*clock)
		printf(" of %s time", clock);
	if (paused)
		printf(" when resumed");
}

static void print_profile(const json_t *profile)
{
	double samples = answer_number(profile, "samples"),
	       sampled = answer_number(profile, "sampled_ns");
	double files = answer_number(profile, "flight_files");

	printf("profile:  ");
	if (!json_is_object(profile)) {
		printf("none (--no-profile)\n");
		return;
	}
	print_rate(profile);
	putchar('\n');
	printf("samples:  %.0f, %.0f lost; ", samples, answer_number(profile, "lost"));
	if (json_is_integer(json_object_get(profile, "flight_files")))
		printf("the last in memory, %.0f flight recording%s with ", files,
		       files == 1 ? "" : "s");
	printf("%.1f MiB in ", answer_number(profile, "bytes") / MIB);
	answer_print(answer_text(profile, "output"));
	if (samples > 0 && sampled > 0)
		printf("\ncost:     %.1f us for each sample, %.2f %% of the sampled time",
		       answer_number(profile, "cost_ns") / samples / 1e3,
		       100 * answer_number(profile, "cost_ns") / sampled);
	if (*answer_text(profile, "guest_release")) {
		printf("\nguest:    Linux ");
		answer_print(answer_text(profile, "guest_release"));
	}
	putchar('\n');
}

static void print_status(const json_t *status)
{
	if (ctl_is_daemon(status)) {
		printf("daemon:   process %.0f, kvmscoped %s; ctl list shows its domains, ctl status DOMAIN one\n",
		       answer_number(status, "pid"), answer_text(status, "kvmscope"));
		return;
	}
	printf("run:      process %.0f", answer_number(status, "pid"));
	if (*answer_text(status, "name"))
		printf(", named %s", answer_text(status, "name"));
	printf(", for %.1f s; kvmscope %s\n", answer_number(status, "seconds"),
	       answer_text(status, "kvmscope"));
	printf("machine:  %.0f vCPU%s, %.0f MiB, ", answer_number(status, "vcpus"),
	       answer_number(status, "vcpus") == 1 ? "" : "s",
	       answer_number(status, "memory") / MIB);
	answer_print(answer_text(status, "kernel"));
	putchar('\n');
	print_profile(json_object_get(status, "profile"));
}

static void print_json(const json_t *result)
{
	json_dumpf(result, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
	putchar('\n');
}

static void print_result(const struct arguments *arguments, const json_t *result)
{
	if (arguments->json) {
		print_json(result);
	} else if (!strcmp(arguments->command, "status")) {
		print_status(result);
	} else if (!strcmp(arguments->command, "bp-list")) {
		ctl_print_breakpoints(result);
	} else if (takes_watch(arguments)) {
		ctl_print_watch(result);
	} else {
		print_rate(result);
		putchar('\n');
	}
}

static json_t *parameters_of(const struct arguments *arguments)
{
	if (arguments->frequency)
		return json_pack("{s:i}", "frequency", (int)arguments->frequency);
	return arguments->watch ? json_pack("{s:s}", "watch", arguments->watch) : NULL;
}

static int control(const struct arguments *arguments)
{
	json_t *parameters = parameters_of(arguments);
	json_t *result = NULL;
	int run = run_selector_connect(&arguments->run);
	int error = run < 0 ? run : control_call(run, arguments->command, parameters, &result);

	if (run >= 0)
		close(run);
	json_decref(parameters);
	if (error)
		return command_failed();
	print_result(arguments, result);
	json_decref(result);
	return EXIT_OK;
}

static int find_names(const struct arguments *arguments)
{
	return ctl_domain_names(arguments->run.socket, arguments->domain) ? command_failed()
									  : EXIT_OK;
}

static int control_domain(const struct arguments *arguments)
{
	const char *socket = arguments->run.socket;
	int error = strcmp(arguments->command, "dump")
			    ? ctl_domain_status(socket, arguments->domain, arguments->json)
			    : ctl_domain_dump(socket, arguments->domain, arguments->json,
					      arguments->disk_symbols);

	return error ? command_failed() : EXIT_OK;
}

static void print_run(const struct control_run *run, const json_t *status)
{
	const json_t *profile = json_object_get(status, "profile");
	char rate[16] = "-";

	if (json_is_object(profile))
		snprintf(rate, sizeof(rate), "%.0f", answer_number(profile, "frequency"));
	printf("%7d  %-16s %-10s %6s %10.0f  ", run->pid, run->name,
	       json_is_object(profile) ? answer_text(profile, "state") : "no profile", rate,
	       answer_number(profile, "samples"));
	answer_print(answer_text(status, "kernel"));
	putchar('\n');
}

/* One run that does not answer leaves the others to be shown. */
static int list(const struct arguments *arguments)
{
	json_t *all = json_array();
	const struct control_run *daemon = NULL;
	struct control_run *runs;
	size_t count;

	if (control_runs_list(&runs, &count)) {
		json_decref(all);
		return command_failed();
	}
	if (!arguments->json)
		printf("%7s  %-16s %-10s %6s %10s  %s\n", "PID", "NAME", "STATE", "HZ", "SAMPLES",
		       "KERNEL");
	for (size_t i = 0; i < count; i++) {
		json_t *status;

		if (control_call(runs[i].fd, "status", NULL, &status)) {
			log_warning("%s: %s", runs[i].path, error_message());
			continue;
		}
		if (ctl_is_daemon(status)) {
			daemon = &runs[i];
			json_decref(status);
			continue;
		}
		json_object_set_new(status, "socket", json_string(runs[i].path));
		if (!arguments->json)
			print_run(&runs[i], status);
		json_array_append_new(all, status);
	}
	if (daemon && ctl_list_domains(daemon, all, arguments->json))
		log_warning("%s: %s", daemon->path, error_message());
	if (arguments->json)
		print_json(all);
	json_decref(all);
	control_runs_free(runs, count);
	return EXIT_OK;
}

int command_ctl(int argc, char **argv)
{
	static const struct argp_child children[] = { { &run_selector_argp, 0, "Which run:", 1 },
						      { 0 } };
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "COMMAND [DOMAIN|HZ|list|add WATCH|remove NUMBER|WATCH]",
		.doc = summary,
		.children = children
	};
	struct arguments arguments = { .disk_symbols = true };
	char name[] = "kvmscope ctl";

	argv[0] = name;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &arguments);
	if (!strcmp(arguments.command, "list"))
		return list(&arguments);
	if (!strcmp(arguments.command, "names"))
		return find_names(&arguments);
	return arguments.domain ? control_domain(&arguments) : control(&arguments);
}
