/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope ctl: controls running sessions and reads their status. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/command.h"
#include "vmm/cli/ctl_domains.h"
#include "vmm/cli/record_options.h"
#include "vmm/cli/run_selector.h"
#include "vmm/cli/screen.h"
#include "vmm/control/control_client.h"
#include "vmm/control/run_directory.h"

#define MIB (1024.0 * 1024.0)

struct arguments {
	struct run_selector run;
	const char *command;
	unsigned int frequency; /* Hz, with freq */
	const char *watch;      /* with bp add and bp remove */
	const char *domain;     /* of kvmscoped, with status, dump and names */
	bool json, disk_symbols;
};

#define AT(field) .offset = offsetof(struct arguments, field)

static const struct option_row rows[] = {
	{ "json", NULL, "Print the answer as JSON", OPTION_SET, AT(json) },
	{ "no-disk-names", NULL, "dump: do not search the disks for symbols", OPTION_CLEAR,
	  AT(disk_symbols) },
	{ 0 },
};

static const char summary[] =
	"Control a running session. If there is only one, it is selected automatically."
	"\v"
	"Commands:\n"
	"  list       list the running sessions and the domains of kvmscoped\n"
	"  status [DOMAIN]\n"
	"             show samples, losses and cost of a run, or of a domain\n"
	"  dump DOMAIN\n"
	"             make the domain's flight recorder write its samples, and print\n"
	"             the file's name; without a flight recorder, that of the file\n"
	"             that is being written or, while that has no samples, of the one\n"
	"             before. Searches the domain's disks for missing symbols\n"
	"  names [DOMAIN]\n"
	"             search the disks of all domains, or of one, for symbols that\n"
	"             their latest recordings lack: what kvmscoped pushes has them\n"
	"             from then on. Symbols that were not found are searched again\n"
	"             after a day, so this can be run regularly\n"
	"  pause      stop sampling; the guest continues\n"
	"  resume     continue sampling at the same frequency\n"
	"  freq HZ    sample at HZ per vCPU, 1 to 10000; while paused: after that\n"
	"  bp list    list the watches of the run, and the owner of each debug\n"
	"             register of each vCPU, the guest's own breakpoints included\n"
	"  bp add WATCH\n"
	"             watch a variable or function of the guest from now on, as\n"
	"             run --watch does from the start: its hits are an event of the\n"
	"             recording\n"
	"  bp remove NUMBER|WATCH\n"
	"             stop watching: the register is free, the hits stay recorded\n"
	"\n"
	"pause, resume, freq, bp add and bp remove take effect within one sampling\n"
	"period. WATCH is SYMBOL[+OFFSET]|ADDRESS[:LENGTH[:rw]][@VCPU][,OPTION...]; see\n"
	"kvmscope-run(1). 0xNUMBER is an address, NUMBER is from bp list.\n"
	"\n"
	"Examples:\n"
	"  kvmscope ctl status\n"
	"  kvmscope ctl --name web freq 4000; sleep 10; kvmscope ctl --name web freq 99\n"
	"  kvmscope ctl --json status | jq .profile.lost\n"
	"  kvmscope ctl bp add schedule:x; sleep 1; kvmscope ctl bp remove schedule:x\n"
	"  kvmscope report -i \"$(kvmscope ctl dump web)\"\n"
	"\n"
	"Exit status: 0; 1 there is no such run, or it cannot do it; 2 wrong usage.\n";

static int set_command(struct arguments *arguments, const char *text)
{
	static const char *const commands[] = { "list",   "status", "dump", "names", "pause",
						"resume", "freq",   "bp",   NULL };
	int index = option_choice("command", text, commands);

	arguments->command = text;
	return index < 0 ? index : 0;
}

static int set_bp_command(struct arguments *arguments, const char *text)
{
	static const char *const names[] = { "list", "add", "remove", NULL };
	static const char *const commands[] = { "bp-list", "bp-add", "bp-remove" };
	int index = option_choice("bp", text, names);

	if (index < 0)
		return index;
	arguments->command = commands[index];
	return 0;
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

static int set_word(void *context, char *text)
{
	struct arguments *arguments = context;

	if (!arguments->command)
		return set_command(arguments, text);
	if (!strcmp(arguments->command, "freq") && !arguments->frequency)
		return option_number("freq", text, 1, RECORD_FREQUENCY_MAX, &arguments->frequency);
	if (!strcmp(arguments->command, "bp"))
		return set_bp_command(arguments, text);
	if (takes_watch(arguments) && !arguments->watch)
		arguments->watch = text;
	else if (takes_domain(arguments) && !arguments->domain)
		arguments->domain = text;
	else
		return error_set(-EINVAL, "'%s' is one word too many", text);
	return 0;
}

static int check(void *target)
{
	const struct arguments *arguments = target;
	const struct run_selector *run = &arguments->run;
	const char *word = arguments->command;

	if (!word)
		return error_set(
			-EINVAL,
			"a command is missing: list, status, dump DOMAIN, names, pause, resume, freq HZ, bp "
			"list, bp add or bp remove");
	if (!strcmp(word, "bp"))
		return error_set(-EINVAL, "bp: list, add or remove?");
	if (takes_watch(arguments) && !arguments->watch)
		return error_set(-EINVAL, "bp %s: the watch is missing, such as jiffies_64:8:w",
				 word + strlen("bp-"));
	if (!strcmp(word, "freq") && !arguments->frequency)
		return error_set(-EINVAL, "freq: the number of samples per second is missing");
	if (!strcmp(word, "dump") && !arguments->domain)
		return error_set(-EINVAL,
				 "dump: the domain is missing; for a run there is kvmscope dump");
	if (arguments->domain && (run->pid || run->name))
		return error_set(-EINVAL,
				 "%s is a domain of kvmscoped: it takes no --pid and --name",
				 arguments->domain);
	if (!strcmp(word, "names") && (run->pid || run->name))
		return error_set(-EINVAL,
				 "names is for domains of kvmscoped: it takes no --pid and --name");
	if (!strcmp(word, "list") && (run->pid || run->name || run->socket))
		return error_set(-EINVAL,
				 "list shows all runs: it takes no --pid, --name or --socket");
	return 0;
}

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
	double files = answer_number(profile, "flight_files");

	printf("profile:  ");
	if (!json_is_object(profile)) {
		printf("none (--no-profile)\n");
		return;
	}
	print_rate(profile);
	putchar('\n');
	printf("samples:  %.0f, %.0f lost; ", answer_number(profile, "samples"),
	       answer_number(profile, "lost"));
	if (json_is_integer(json_object_get(profile, "flight_files")))
		printf("the last in memory, %.0f flight recording%s with ", files,
		       files == 1 ? "" : "s");
	printf("%.1f MiB in ", answer_number(profile, "bytes") / MIB);
	screen_print(answer_text(profile, "output"));
	ctl_print_cost(profile);
	ctl_print_guest(profile);
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
	screen_print(answer_text(status, "kernel"));
	putchar('\n');
	print_profile(json_object_get(status, "profile"));
}

static const char *watched_share(const json_t *watch, char *text, size_t size)
{
	double enabled = answer_number(watch, "enabled_ns"),
	       running = answer_number(watch, "running_ns");

	if (enabled > 0)
		snprintf(text, size, "%.1f %%", 100 * running / enabled);
	else
		snprintf(text, size, "-");
	return text;
}

static void print_watches(const json_t *result)
{
	const json_t *all = json_object_get(result, "all");
	const json_t *watch;
	char share[16];
	size_t i;

	if (!json_array_size(all))
		return;
	printf("NUMBER STATE    VCPU KIND           HITS  WATCHED  EVENT\n");
	json_array_foreach(all, i, watch)
	{
		const json_t *vcpu = json_object_get(watch, "vcpu");

		printf("%6.0f %-8s ", answer_number(watch, "number"), answer_text(watch, "state"));
		if (json_is_integer(vcpu))
			printf("%4.0f", answer_number(watch, "vcpu"));
		else
			printf(" all");
		printf(" %-8s %10.0f %8s  ",
		       json_is_true(json_object_get(watch, "pinned")) ? "pinned" : "flexible",
		       answer_number(watch, "hits"), watched_share(watch, share, sizeof(share)));
		screen_print(answer_text(watch, "name"));
		putchar('\n');
	}
	putchar('\n');
}

static void print_watch(const json_t *watch)
{
	printf("watch %.0f, ", answer_number(watch, "number"));
	screen_print(answer_text(watch, "name"));
	if (!strcmp(answer_text(watch, "state"), "waiting"))
		printf(", waiting until the guest's kernel is found\n");
	else if (!strcmp(answer_text(watch, "state"), "removed"))
		printf(", removed; it had %.0f hits\n", answer_number(watch, "hits"));
	else
		putchar('\n');
}

static const char *watch_name(const json_t *result, const json_t *slot)
{
	size_t number = (size_t)answer_number(slot, "watch");
	const char *name =
		json_string_value(json_array_get(json_object_get(result, "watches"), number));

	return name ? name : "";
}

static void print_counts(const json_t *vcpu, const json_t *slot)
{
	const json_t *counts = json_array_get(json_object_get(vcpu, "watches"),
					      (size_t)answer_number(slot, "watch"));

	printf("%10.3f %10.3f %10.0f  ", answer_number(counts, "enabled_ns") / 1e9,
	       answer_number(counts, "running_ns") / 1e9, answer_number(counts, "hits"));
}

static void print_task(size_t vcpu, const json_t *task)
{
	printf("%4zu  ", vcpu);
	if (!json_is_object(task)) {
		printf("%7s  %16s  unknown\n", "-", "-");
		return;
	}
	printf("%7.0f  %16s  ", answer_number(task, "pid"), answer_text(task, "cr3"));
	screen_print(answer_text(task, "comm"));
	putchar('\n');
}

static void print_slot(const json_t *result, size_t vcpu, size_t number, const json_t *slot)
{
	const char *owner = answer_text(slot, "owner");

	printf("%4zu  DR%zu  %-6s %18s %4s %3.0f  ", vcpu, number, owner,
	       answer_text(slot, "address"), answer_text(slot, "kind"),
	       answer_number(slot, "length"));
	if (!strcmp(owner, "watch")) {
		print_counts(json_array_get(json_object_get(result, "vcpus"), vcpu), slot);
		screen_print(watch_name(result, slot));
	}
	if (json_is_true(json_object_get(slot, "guest_lost")))
		printf(" (instead of the guest's own)");
	putchar('\n');
}

static void print_breakpoints(const json_t *result)
{
	json_t *vcpu, *slot;
	size_t i, k;

	print_watches(result);
	printf("VCPU      PID               CR3  COMM, at the latest sample\n");
	json_array_foreach(json_object_get(result, "vcpus"), i, vcpu)
		print_task(i, json_object_get(vcpu, "task"));
	putchar('\n');
	printf("VCPU  SLOT OWNER             ADDRESS KIND LEN  %10s %10s %10s  WATCH\n",
	       "ENABLED s", "RUNNING s", "HITS");
	json_array_foreach(json_object_get(result, "vcpus"), i, vcpu)
		json_array_foreach(json_object_get(vcpu, "slots"), k, slot)
			print_slot(result, i, k, slot);
	if (answer_number(result, "guest_lost") > 0)
		printf("\n%.0f times a breakpoint of the guest itself did not work\n",
		       answer_number(result, "guest_lost"));
}

static void print_result(const struct arguments *arguments, const json_t *result)
{
	if (arguments->json) {
		screen_print_json(result);
	} else if (!strcmp(arguments->command, "status")) {
		print_status(result);
	} else if (!strcmp(arguments->command, "bp-list")) {
		print_breakpoints(result);
	} else if (takes_watch(arguments)) {
		print_watch(result);
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

static int search_symbols(const struct arguments *arguments)
{
	return ctl_domain_search(arguments->run.socket, arguments->domain) ? command_failed()
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
	screen_print(answer_text(status, "kernel"));
	putchar('\n');
}

/* Skips runs that do not answer. */
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
		screen_print_json(all);
	json_decref(all);
	control_runs_free(runs, count);
	return EXIT_OK;
}

int command_ctl(int argc, char **argv)
{
	struct arguments arguments = { .disk_symbols = true };
	const struct option_group groups[] = { { NULL, rows, &arguments, check },
					       run_selector_options(&arguments.run),
					       { 0 } };
	const struct option_command table = {
		.name = "kvmscope ctl",
		.doc = summary,
		.words = "COMMAND [DOMAIN|HZ|list|add WATCH|remove NUMBER|WATCH]",
		.groups = groups,
		.word = set_word,
		.context = &arguments,
	};

	if (option_table_parse(&table, argc, argv))
		return command_failed();
	if (!strcmp(arguments.command, "list"))
		return list(&arguments);
	if (!strcmp(arguments.command, "names"))
		return search_symbols(&arguments);
	return arguments.domain ? control_domain(&arguments) : control(&arguments);
}
