/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_options.h"

#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/duration.h"
#include "shared/error.h"
#include "shared/ring.h"
#include "shared/size.h"
#include "vmm/cli/command.h"
#include "vmm/cli/command_line.h"
#include "vmm/cli/option_number.h"
#include "vmm/cli/run_flight.h"
#include "vmm/control/runs.h"
#include "vmm/guest/guest_account.h"

/* ns. Some hundred frames; a guest is to feel a sample no more than an interrupt. */
#define STACK_TIME     64000ull
#define STACK_TIME_MAX 1000000000ull
/* Of its rings, and for what they bring, there is room then. */
#define AGENT_MEMORY_MIN (16ul << 20)

enum key {
	KEY_FREQUENCY = 'F',
	KEY_EVENT = 'e',
	KEY_OUTPUT = 'o',
	KEY_COMPRESS = 'z',
	KEY_QUIET = 'q',
	KEY_VERBOSE = 'v',
	KEY_KERNEL = 256,
	KEY_INITRD,
	KEY_APPEND,
	KEY_PROTOCOL,
	KEY_MODULE_TEXT,
	KEY_CPUS,
	KEY_MEM,
	KEY_DISK,
	KEY_REBOOT,
	KEY_CONSOLE,
	KEY_AGENT,
	KEY_AGENT_SOCKET,
	KEY_AGENT_MEMORY,
	KEY_PMU,
	KEY_NESTED,
	KEY_TIMEOUT,
	KEY_DURATION,
	KEY_NO_PROFILE,
	KEY_CLOCK,
	KEY_SAMPLER,
	KEY_FROM_LINE,
	KEY_NO_CALL_GRAPH,
	KEY_STACK_TIME,
	KEY_SYMFS,
	KEY_PERSPECTIVE,
	KEY_KALLSYMS,
	KEY_VMLINUX,
	KEY_BTF,
	KEY_NO_BUILDID_CACHE,
	KEY_NO_DISK_NAMES,
	KEY_RING_SIZE,
	KEY_WATCH,
	KEY_BP_PRIORITY,
	KEY_FLIGHT,
	KEY_AFTER,
	KEY_FLIGHT_MAX,
	KEY_TRIGGER,
	KEY_NAME,
	KEY_CONTROL,
	KEY_NO_CONTROL,
};

enum group { GROUP_KERNEL = 1, GROUP_MACHINE, GROUP_PROFILE, GROUP_FLIGHT, GROUP_CONTROL, GROUP_END };

static const struct argp_option option_list[] = {
	{ NULL, 0, NULL, 0, "What to boot:", GROUP_KERNEL },
	{ "kernel", KEY_KERNEL, "FILE", 0, "bzImage, vmlinux or multiboot image (required)", GROUP_KERNEL },
	{ "initrd", KEY_INITRD, "FILE", 0, "Initial RAM disk", GROUP_KERNEL },
	{ "append", KEY_APPEND, "STRING", 0, "Kernel command line", GROUP_KERNEL },
	{ "protocol", KEY_PROTOCOL, "NAME", 0,
	  "How to start it: auto (by what the file is), bzimage, pvh, elf64, multiboot", GROUP_KERNEL },
	{ "module-text", KEY_MODULE_TEXT, "TEXT", 0,
	  "Multiboot's one module: an environment text, or @FILE to read it from", GROUP_KERNEL },

	{ NULL, 0, NULL, 0, "The machine:", GROUP_MACHINE },
	{ "cpus", KEY_CPUS, "N", 0, "vCPUs, 1 to 64 (1)", GROUP_MACHINE },
	{ "mem", KEY_MEM, "SIZE", 0, "Guest memory: 128M, 2G, ... (512M)", GROUP_MACHINE },
	{ "disk", KEY_DISK, "FILE[,ro]", 0, "Raw image as a virtio disk, with ,ro read-only; up to 5 times",
	  GROUP_MACHINE },
	{ "reboot", KEY_REBOOT, NULL, 0,
	  "A reset starts the guest anew; without it, it ends the run. Each boot has a file of its own: perf.data, "
	  "perf.data.1, ...",
	  GROUP_MACHINE },
	{ "nested", KEY_NESTED, NULL, 0,
	  "The guest may run guests of its own, by its own KVM: it is shown VMX or SVM. A sample in one of those is "
	  "counted, and has neither names nor callers",
	  GROUP_MACHINE },
	{ "console", KEY_CONSOLE, "WHERE", 0,
	  "The serial port ttyS0: stdio (Ctrl-A x quits on a terminal), none, or a file for its output (stdio)",
	  GROUP_MACHINE },
	{ "agent", KEY_AGENT, "WHERE", OPTION_ARG_OPTIONAL,
	  "Ask an agent in the guest for its processes. initrd: put it into the initrd and start it; "
	  "guest: it is installed there (initrd)",
	  GROUP_MACHINE },
	{ "agent-memory", KEY_AGENT_MEMORY, "SIZE", 0,
	  "Memory that the guest's agent can make kvmscope take, in all, and size of the names of its programs in "
	  "the build-id cache; of more, the oldest names go first, then more is refused, and counted (64M; 16M at "
	  "least)",
	  GROUP_MACHINE },
	{ "agent-socket", KEY_AGENT_SOCKET, "PATH", 0,
	  "UNIX socket that the virtio port org.kvmscope.agent.0 is reached by", GROUP_MACHINE },
	{ "pmu", KEY_PMU, "WHAT", 0,
	  "The guest's performance counters. kernel: the host's, by KVM; emulated: kvmscope's, which counts by perf "
	  "on the host or, where that has no counters, cycles by the time that the guest runs; off: none; auto: "
	  "kernel where KVM has them, else emulated where Linux can use them, else off (auto)",
	  GROUP_MACHINE },

	{ NULL, 0, NULL, 0, "The profile:", GROUP_PROFILE },
	{ "output", KEY_OUTPUT, "FILE", 0, "perf.data file; - for standard output (perf.data)",
	  GROUP_PROFILE },
	{ "freq", KEY_FREQUENCY, "HZ", 0, "Samples per second of the clock and vCPU, up to 10000 (999)",
	  GROUP_PROFILE },
	{ "event", KEY_EVENT, "EVENT", 0, "What to sample by: cpu-clock", GROUP_PROFILE },
	{ "clock", KEY_CLOCK, "CLOCK", 0,
	  "cpu: the vCPU's CPU time, so an idle guest gives no samples; wall: time as it passes (cpu)",
	  GROUP_PROFILE },
	{ "sampler", KEY_SAMPLER, "HOW", 0,
	  "kick: the vCPU leaves the guest for each sample; bpf: a BPF program takes it in the kernel, which costs "
	  "the guest less and sees less, callers in programs by frame pointers only; auto: bpf where it sees as much, "
	  "with --no-call-graph and --agent, where KVM is not kvm_intel and the kernel lets us, else kick (auto)",
	  GROUP_PROFILE },
	{ "from-line", KEY_FROM_LINE, "TEXT", 0,
	  "Start sampling when a line with TEXT is printed on the console", GROUP_PROFILE },
	{ "watch", KEY_WATCH, "WHAT", 0,
	  "Record each access or execution: sym[+off]|addr[:len[:rwx]][@vcpu][,pinned][,cr3=N|pid=N|comm=NAME]"
	  "[,period=N][,limit=N], as jiffies_64:8:w or schedule:x; up to 16 times",
	  GROUP_PROFILE },
	{ "bp-priority", KEY_BP_PRIORITY, "WHOSE", 0,
	  "Who gets a debug register that --watch and the guest both want: guest, host (guest)",
	  GROUP_PROFILE },
	{ "no-call-graph", KEY_NO_CALL_GRAPH, NULL, 0, "No callchains", GROUP_PROFILE },
	{ "stack-time", KEY_STACK_TIME, "TIME", 0,
	  "Cut callchains that take the vCPU longer than this: 64us, 1ms; 0us never (64us)", GROUP_PROFILE },
	{ "symfs", KEY_SYMFS, "DIR", 0,
	  "The guest's files by their paths: unwind tables of programs that are not in its memory, by build id",
	  GROUP_PROFILE },
	{ "perspective", KEY_PERSPECTIVE, "WHOSE", 0,
	  "guest: as if recorded inside the guest; host: as perf kvm sees it (guest)", GROUP_PROFILE },
	{ "compression-level", KEY_COMPRESS, "LEVEL", OPTION_ARG_OPTIONAL,
	  "Compress with zstd, level 1 to 22 (1)", GROUP_PROFILE },
	{ "kallsyms", KEY_KALLSYMS, "FILE", 0, "Kernel symbols from this /proc/kallsyms of the guest",
	  GROUP_PROFILE },
	{ "vmlinux", KEY_VMLINUX, "FILE", 0, "Kernel symbols from this ELF file", GROUP_PROFILE },
	{ "btf", KEY_BTF, "FILE", 0,
	  "BTF of the guest's kernel where its memory has none: a vmlinux, or a copy of /sys/kernel/btf/vmlinux",
	  GROUP_PROFILE },
	{ "no-buildid-cache", KEY_NO_BUILDID_CACHE, NULL, 0, "Leave perf's build-id cache alone",
	  GROUP_PROFILE },
	{ "no-disk-names", KEY_NO_DISK_NAMES, NULL, 0,
	  "Do not look for the names of the guest's programs on the --disk images at the end",
	  GROUP_PROFILE },
	{ "ring-size", KEY_RING_SIZE, "SIZE", 0, "Buffer of each vCPU, a power of two (2M)", GROUP_PROFILE },
	{ "no-profile", KEY_NO_PROFILE, NULL, 0, "Run the guest only", GROUP_PROFILE },

	{ NULL, 0, NULL, 0, "The flight recorder:", GROUP_FLIGHT },
	{ "flight", KEY_FLIGHT, "TIME|SIZE", 0,
	  "Keep the last samples in memory (30s, 5min of them; or 64M for all vCPUs) and write them only when "
	  "something happens: kvmscope dump, SIGUSR2, a panic, a reset or triple fault of the guest, ...",
	  GROUP_FLIGHT },
	{ "after", KEY_AFTER, "TIME", 0, "Wait for this much more before writing: 5s, 500ms (0s)",
	  GROUP_FLIGHT },
	{ "flight-max", KEY_FLIGHT_MAX, "N", 0, "Files that the guest itself can cause in a run (32)",
	  GROUP_FLIGHT },
	{ "trigger", KEY_TRIGGER, "KIND=LIMIT", 0,
	  "Write for this as well: stuck=MS, a vCPU ran so long without an exit; exits=N/s, it makes more; steal=P%, "
	  "it waits more for a host CPU; console=REGEX, a line was printed. May be given several times",
	  GROUP_FLIGHT },

	{ NULL, 0, NULL, 0, "Control from outside, by kvmscope ctl:", GROUP_CONTROL },
	{ "name", KEY_NAME, "NAME", 0, "What kvmscope ctl knows this run by, besides its process id",
	  GROUP_CONTROL },
	{ "control", KEY_CONTROL, "PATH", 0,
	  "Listen at this UNIX socket (one below $XDG_RUNTIME_DIR/kvmscope or /run/kvmscope)",
	  GROUP_CONTROL },
	{ "no-control", KEY_NO_CONTROL, NULL, 0, "Listen nowhere", GROUP_CONTROL },

	{ NULL, 0, NULL, 0, "The end, and messages:", GROUP_END },
	{ "duration", KEY_DURATION, "SECONDS", 0, "End the guest then, as wanted", GROUP_END },
	{ "timeout", KEY_TIMEOUT, "SECONDS", 0, "End the guest then, as failed: exit status 124", GROUP_END },
	{ "quiet", KEY_QUIET, NULL, 0, "No progress, no summary", GROUP_END },
	{ "verbose", KEY_VERBOSE, NULL, 0, "Details", GROUP_END },
	{ 0 },
};

static const char before_options[] =
	"Run a guest under KVM and profile it from outside: nothing is installed in it, nothing copied out of it.\v";

static const char after_options[] =
	"Examples:\n"
	"  kvmscope run --kernel vmlinuz --initrd initrd.img --append console=ttyS0\n"
	"      boot it, write perf.data; look with: kvmscope report, or perf report\n"
	"  kvmscope run --kernel vmlinuz --cpus 4 --mem 2G --disk root.img \\\n"
	"               --append 'root=/dev/vda console=ttyS0' -F 4000 -o boot.data\n"
	"      four vCPUs, a disk, 4000 samples per second of CPU time\n"
	"  kvmscope run --kernel guest.elf --protocol multiboot --no-profile; echo $?\n"
	"      a small guest whose value at port 0xf4 is the exit status\n"
	"\n"
	"The guest ends by powering off, by a reboot (unless --reboot is given), or by\n"
	"writing port 0xf4. SIGINT (Ctrl-C, where the console is not the terminal)\n"
	"presses its power button, the second one stops it where it stands, as Ctrl-A x\n"
	"does on the terminal.\n"
	"\n"
	"Exit status: 0, or the value the guest wrote to port 0xf4 (its low 8 bits);\n"
	"1 something failed; 2 wrong usage; 3 triple fault or KVM internal error;\n"
	"4 this host's KVM can not do it; 124 --timeout.\n";

static uint64_t parse_size(struct argp_state *state, const char *name, const char *text)
{
	uint64_t bytes = 0;

	if (size_parse(text, &bytes))
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
	static const char *const protocols[] = { "auto", "bzimage", "pvh", "elf64", "multiboot", NULL };

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
		options->memory_size = parse_size(state, "--mem", text);
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
		options->agent_memory = parse_size(state, "--agent-memory", text);
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
		options->output = text;
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
		options->sampler = (enum run_sampler)parse_choice(state, "--sampler", text, samplers);
		return 0;
	case KEY_FROM_LINE:
		options->from_line = text;
		return 0;
	case KEY_WATCH:
		add_watch(state, options, text);
		return 0;
	case KEY_BP_PRIORITY:
		options->breakpoint_priority =
			(enum breakpoint_priority)parse_choice(state, "--bp-priority", text, priorities);
		return 0;
	case KEY_NO_CALL_GRAPH:
		options->callchains = false;
		return 0;
	case KEY_STACK_TIME:
		if (duration_parse(text, &options->stack_time) || options->stack_time > STACK_TIME_MAX)
			argp_error(state, "--stack-time %s: it must be a time like 64us or 1ms, up to 1s",
				   text);
		return 0;
	case KEY_SYMFS:
		options->symfs = text;
		return 0;
	case KEY_PERSPECTIVE:
		options->perspective =
			(enum perspective)parse_choice(state, "--perspective", text, perspectives);
		return 0;
	case KEY_COMPRESS:
		options->compression = text ? option_number(state, "-z", text, 1, 22) : 1;
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
		options->disk_names = false;
		return 0;
	case KEY_RING_SIZE:
		options->ring_size = parse_size(state, "--ring-size", text);
		options->ring_size_given = true;
		return 0;
	case KEY_NO_PROFILE:
		options->profile = false;
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
	if (duration_parse(text, &options->flight_time) &&
	    (size_parse(text, &options->flight_size) || isdigit((unsigned char)text[strlen(text) - 1])))
		argp_error(state, "--flight %s: it must be a time like 30s or 5min, or a size like 64M",
			   text);
	if (!options->flight_time && !options->flight_size)
		argp_error(state, "--flight %s: that is nothing", text);
}

static error_t parse_flight_option(int key, char *text, struct argp_state *state, struct run_options *options)
{
	switch (key) {
	case KEY_FLIGHT:
		parse_flight(state, text, options);
		return 0;
	case KEY_AFTER:
		if (duration_parse(text, &options->flight_after))
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
			argp_error(state,
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

/* With the frequency and the number of vCPUs, wherever they stand in the command line. */
static void check_flight(struct argp_state *state, struct run_options *options)
{
	if (!options->flight) {
		if (options->flight_after)
			argp_error(state, "--after is for the flight recorder: give --flight, too");
		if (options->triggers.line_count || trigger_options_have_limits(&options->triggers))
			argp_error(state, "--trigger is for the flight recorder: give --flight, too");
		return;
	}
	if (!options->profile || options->ring_size_given)
		argp_error(state, "--flight does not go with --no-profile, nor with --ring-size");
	if (!strcmp(options->output, "-"))
		argp_error(state, "--flight writes files, as many as there are triggers: -o - is none");
	if (run_flight_ring_size(options, &options->ring_size))
		argp_error(state, "%s", error_message());
}

static void check(struct argp_state *state, struct run_options *options)
{
	if (!options->boot.kernel)
		argp_error(state, "--kernel FILE is missing: what shall be booted?");
	if (options->agent && options->agent_socket)
		argp_error(state, "--agent and --agent-socket both want the port; give one");
	if (options->agent == RUN_AGENT_INITRD && !options->boot.initrd)
		argp_error(
			state,
			"--agent needs --initrd to bring the agent into the guest; --agent=guest if it is there");
	if (options->agent && !options->profile)
		argp_error(state, "--agent is for a profile; it has no use with --no-profile");
	if (options->ring_size < RING_SIZE_MIN || options->ring_size > RING_SIZE_MAX ||
	    options->ring_size & (options->ring_size - 1))
		argp_error(state, "--ring-size: it must be a power of two from 64K to 1G");
	if (!!options->name + !!options->control_path + !options->control > 1)
		argp_error(state, "--name, --control and --no-control: one of them says where to listen");
	if (options->sampler == RUN_SAMPLER_BPF && options->wall_clock)
		argp_error(state,
			   "--sampler bpf has --clock cpu only: a halted vCPU takes no interrupts of ours");
	check_flight(state, options);
	if (options->watch_count && !options->profile)
		argp_error(state, "--watch records hits in the profile: leave --no-profile out");
	for (size_t i = 0; i < options->watch_count; i++)
		if (options->watches[i].vcpu >= (int)options->cpus)
			argp_error(state, "--watch @%d: vCPUs are numbered from 0 to %u",
				   options->watches[i].vcpu, options->cpus - 1);
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
	struct run_options *options = state->input;
	error_t known;

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
		check(state, options);
		return 0;
	}
	known = parse_machine_option(key, text, state, options);
	if (known == ARGP_ERR_UNKNOWN)
		known = parse_profile_option(key, text, state, options);
	if (known == ARGP_ERR_UNKNOWN)
		known = parse_flight_option(key, text, state, options);
	return known == ARGP_ERR_UNKNOWN ? parse_control_option(key, text, state, options) : known;
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
		return error_set(-errno, "can not open %s, the module text: %s", path, strerror(errno));
	length = getdelim(&options->module_text, &size, '\0', file);
	fclose(file);
	options->boot.module_text = length < 0 ? "" : options->module_text;
	return 0;
}

int run_options_parse(struct run_options *options, int argc, char **argv)
{
	static char name[] = "kvmscope run";
	char *help = NULL;
	struct argp argp = { .options = option_list, .parser = parse_option };
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
		.disk_names = true,
		.ring_size = 2ull << 20,
		.flight_max = 32,
		.control = true,
	};
	options->command_line = command_line_of(argc, argv);
	if (!options->command_line || asprintf(&help, "%s%s", before_options, after_options) < 0)
		return error_set(-ENOMEM, "no memory for the options");
	argp.doc = help;
	argp_err_exit_status = EXIT_USAGE;
	argv[0] = name; /* what argp's messages start with */
	error = argp_parse(&argp, argc, argv, 0, NULL, options);
	free(help);
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
