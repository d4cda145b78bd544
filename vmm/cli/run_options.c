/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_options.h"

#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "shared/parse_number.h"
#include "vmm/cli/command.h"
#include "vmm/cli/command_line.h"
#include "vmm/cli/option_number.h"
#include "vmm/cli/run_option_list.h"
#include "vmm/cli/run_options_check.h"
#include "vmm/control/run_directory.h"
#include "vmm/guest/guest_account.h"
#include "vmm/perf_data/output_path.h"

/* ns. Some hundred frames; a guest is to feel a sample no more than an interrupt. */
#define STACK_TIME     64000ull
#define STACK_TIME_MAX 1000000000ull
/* Of its rings, and for what they bring, there is room then. */
#define AGENT_MEMORY_MIN (16ul << 20)

static uint64_t parse_size_option(struct argp_state *state, const char *name, const char *text)
{
	uint64_t bytes = 0;

	if (parse_size(text, &bytes))
		argp_error(state, "%s %s: it must be a size like 512M or 2G", name, text);
	return bytes;
}

/* One of the NULL-terminated NAMES; its index. */
static int parse_choice(struct argp_state *state, const char *name, const char *text,
			const char *const *names)
{
	for (int i = 0; names[i]; i++)
		if (!strcmp(text, names[i]))
			return i;
	argp_error(state, "%s %s is not known; --help lists what is", name, text);
	return 0;
}

static void add_disk(struct argp_state *state, struct run_options *options, char *text)
{
	char *comma = strrchr(text, ',');
	struct machine_disk disk = { .path = text };

	if (options->disk_count == RUN_DISKS_MAX)
		argp_error(state, "--disk: there can be %d", RUN_DISKS_MAX);
	if (comma && !strcmp(comma, ",ro")) {
		*comma = '\0';
		disk.read_only = true;
	}
	options->disks[options->disk_count++] = disk;
}

static void set_console(struct run_options *options, const char *text)
{
	options->console_path = text;
	if (!strcmp(text, "stdio"))
		options->console = RUN_CONSOLE_STDIO;
	else
		options->console = strcmp(text, "none") ? RUN_CONSOLE_FILE : RUN_CONSOLE_NONE;
}

static error_t parse_machine_option(int key, char *text, struct argp_state *state,
				    struct run_options *options)
{
	static const char *const agents[] = { "initrd", "guest", NULL };
	static const char *const pmus[] = { "auto", "kernel", "emulated", "off", NULL };
	static const char *const protocols[] = { "auto",  "bzimage",   "pvh",
						 "elf64", "multiboot", NULL };

	switch (key) {
	case KEY_KERNEL:
		options->boot.kernel = text;
		return 0;
	case KEY_INITRD:
		options->boot.initrd = text;
		return 0;
	case KEY_APPEND:
		options->boot.append = text;
		return 0;
	case KEY_PROTOCOL:
		options->boot.protocol =
			(enum boot_protocol)parse_choice(state, "--protocol", text, protocols);
		return 0;
	case KEY_MODULE_TEXT:
		options->boot.module_text = text;
		return 0;
	case KEY_CPUS:
		options->cpus = option_number(state, "--cpus", text, 1, VM_CPUS_MAX);
		return 0;
	case KEY_MEM:
		options->memory_size = parse_size_option(state, "--mem", text);
		return 0;
	case KEY_REBOOT:
		options->reboot = true;
		return 0;
	case KEY_NESTED:
		options->nested = true;
		return 0;
	case KEY_DISK:
		add_disk(state, options, text);
		return 0;
	case KEY_CONSOLE:
		set_console(options, text);
		return 0;
	case KEY_AGENT:
		options->agent = (enum run_agent_source)(
			1 + parse_choice(state, "--agent", text ? text : "initrd", agents));
		return 0;
	case KEY_AGENT_MEMORY:
		options->agent_memory = parse_size_option(state, "--agent-memory", text);
		if (options->agent_memory < AGENT_MEMORY_MIN)
			argp_error(state, "--agent-memory %s: it must be 16M at least", text);
		return 0;
	case KEY_AGENT_SOCKET:
		options->agent_socket = text;
		return 0;
	case KEY_PMU:
		options->pmu = (enum run_pmu)parse_choice(state, "--pmu", text, pmus);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void add_watch(struct argp_state *state, struct run_options *options, const char *text)
{
	if (options->watch_count == RUN_WATCHES_MAX)
		argp_error(state, "--watch: there can be %d", RUN_WATCHES_MAX);
	else if (watch_spec_parse(&options->watches[options->watch_count], text))
		argp_error(state, "--watch: %s", error_message());
	else
		options->watch_count++;
}

/* What is recorded. */
static error_t parse_profile_option(int key, char *text, struct argp_state *state,
				    struct run_options *options)
{
	static const char *const perspectives[] = { "guest", "host", NULL };
	static const char *const priorities[] = { "guest", "host", NULL };
	static const char *const clocks[] = { "cpu", "wall", NULL };
	static const char *const events[] = { "cpu-clock", NULL };
	static const char *const samplers[] = { "auto", "kick", "bpf", NULL };

	switch (key) {
	case KEY_OUTPUT:
		options->output = output_path_is_standard(text) ? "-" : text;
		return 0;
	case KEY_FREQUENCY:
		options->frequency = option_number(state, "-F", text, 1, RUN_FREQUENCY_MAX);
		return 0;
	case KEY_EVENT:
		parse_choice(state, "-e", text, events);
		return 0;
	case KEY_CLOCK:
		options->wall_clock = parse_choice(state, "--clock", text, clocks);
		return 0;
	case KEY_SAMPLER:
		options->sampler =
			(enum run_sampler)parse_choice(state, "--sampler", text, samplers);
		return 0;
	case KEY_FROM_LINE:
		options->from_line = text;
		return 0;
	case KEY_WATCH:
		add_watch(state, options, text);
		return 0;
	case KEY_BP_PRIORITY:
		options->breakpoint_priority = (enum breakpoint_priority)parse_choice(
			state, "--bp-priority", text, priorities);
		return 0;
	case KEY_NO_CALL_GRAPH:
		options->callchains = false;
		return 0;
	case KEY_STACK_TIME:
		if (parse_duration(text, &options->stack_time) ||
		    options->stack_time > STACK_TIME_MAX)
			argp_error(state,
				   "--stack-time %s: it must be a time like 64us or 1ms, up to 1s",
				   text);
		return 0;
	case KEY_PERSPECTIVE:
		options->perspective =
			(enum perspective)parse_choice(state, "--perspective", text, perspectives);
		return 0;
	case KEY_COMPRESS:
		options->compression = text ? option_number(state, "-z", text, 1, 22) : 1;
		return 0;
	case KEY_RING_SIZE:
		options->ring_size = parse_size_option(state, "--ring-size", text);
		options->ring_size_given = true;
		return 0;
	case KEY_NO_PROFILE:
		options->profile = false;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Where the names of what is sampled come from, and where they go. */
static error_t parse_names_option(int key, char *text, struct argp_state *state,
				  struct run_options *options)
{
	switch (key) {
	case KEY_SYMFS:
		options->symfs = text;
		return 0;
	case KEY_KALLSYMS:
		options->kallsyms = text;
		return 0;
	case KEY_BTF:
		options->btf = text;
		return 0;
	case KEY_VMLINUX:
		options->vmlinux = text;
		return 0;
	case KEY_NO_BUILDID_CACHE:
		options->buildid_cache = false;
		return 0;
	case KEY_NO_DISK_NAMES:
		options->disk_symbols = false;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void parse_flight(struct argp_state *state, const char *text, struct run_options *options)
{
	options->flight = true;
	options->flight_time = options->flight_size = 0;
	/* A number alone could be either. */
	if (parse_duration(text, &options->flight_time) &&
	    (parse_size(text, &options->flight_size) ||
	     isdigit((unsigned char)text[strlen(text) - 1])))
		argp_error(state,
			   "--flight %s: it must be a time like 30s or 5min, or a size like 64M",
			   text);
	if (!options->flight_time && !options->flight_size)
		argp_error(state, "--flight %s: that is nothing", text);
}

static error_t parse_flight_option(int key, char *text, struct argp_state *state,
				   struct run_options *options)
{
	switch (key) {
	case KEY_FLIGHT:
		parse_flight(state, text, options);
		return 0;
	case KEY_AFTER:
		if (parse_duration(text, &options->flight_after))
			argp_error(state, "--after %s: it must be a time like 5s or 500ms", text);
		return 0;
	case KEY_FLIGHT_MAX:
		options->flight_max = option_number(state, "--flight-max", text, 0, 1u << 30);
		return 0;
	case KEY_TRIGGER:
		if (trigger_options_add(&options->triggers, text))
			argp_error(state, "%s", error_message());
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_control_option(int key, char *text, struct argp_state *state,
				    struct run_options *options)
{
	switch (key) {
	case KEY_NAME:
		if (!control_name_is_good(text))
			argp_error(
				state,
				"--name %s: it must be up to %d letters, digits, '.', '_' and '-', "
				"a letter first",
				text, CONTROL_NAME_MAX);
		options->name = text;
		return 0;
	case KEY_CONTROL:
		options->control_path = text;
		return 0;
	case KEY_NO_CONTROL:
		options->control = false;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
	static error_t (*const parsers[])(int key, char *text, struct argp_state *state,
					  struct run_options *options) = {
		parse_machine_option, parse_profile_option, parse_names_option,
		parse_flight_option,  parse_control_option,
	};
	struct run_options *options = state->input;
	error_t known = ARGP_ERR_UNKNOWN;

	switch (key) {
	case KEY_TIMEOUT:
		options->timeout = option_number(state, "--timeout", text, 1, 1u << 30);
		return 0;
	case KEY_DURATION:
		options->duration = option_number(state, "--duration", text, 1, 1u << 30);
		return 0;
	case KEY_QUIET:
		options->quiet = true;
		return 0;
	case KEY_VERBOSE:
		options->verbose = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is not an option; the kernel is named by --kernel", text);
		return 0;
	case ARGP_KEY_END:
		run_options_check(state, options);
		return 0;
	}
	for (size_t i = 0; known == ARGP_ERR_UNKNOWN && i < sizeof(parsers) / sizeof(parsers[0]);
	     i++)
		known = parsers[i](key, text, state, options);
	return known;
}

/* The text is put in the place of "@FILE". */
static int read_module_text(struct run_options *options)
{
	const char *path = options->boot.module_text;
	FILE *file;
	size_t size = 0;
	ssize_t length;

	if (!path || *path != '@')
		return 0;
	file = fopen(++path, "re");
	if (!file)
		return error_set(-errno, "can not open %s, the module text: %s", path,
				 strerror(errno));
	length = getdelim(&options->module_text, &size, '\0', file);
	fclose(file);
	options->boot.module_text = length < 0 ? "" : options->module_text;
	return 0;
}

int run_options_parse(struct run_options *options, int argc, char **argv)
{
	static char name[] = "kvmscope run";
	static const struct argp argp = { .options = run_option_list,
					  .parser = parse_option,
					  .doc = run_option_help };
	int error;

	*options = (struct run_options){
		.boot.append = "",
		.cpus = 1,
		.memory_size = 512ull << 20,
		.agent_memory = GUEST_ACCOUNT_DEFAULT,
		.profile = true,
		.frequency = 999,
		.callchains = true,
		.stack_time = STACK_TIME,
		.output = "perf.data",
		.buildid_cache = true,
		.disk_symbols = true,
		.ring_size = 2ull << 20,
		.flight_max = 32,
		.control = true,
	};
	options->command_line = command_line_of(argc, argv);
	if (!options->command_line)
		return error_set(-ENOMEM, "no memory for the options");
	argp_err_exit_status = EXIT_USAGE;
	argv[0] = name; /* what argp's messages start with */
	error = argp_parse(&argp, argc, argv, 0, NULL, options);
	if (error)
		return error_set(-error, "the command line can not be read: %s", strerror(error));
	return read_module_text(options);
}

void run_options_free(struct run_options *options)
{
	trigger_options_free(&options->triggers);
	free(options->module_text);
	free(options->command_line);
}
