/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_options.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/option_table.h"
#include "shared/parse_number.h"
#include "shared/read_file.h"
#include "shared/ring.h"
#include "vmm/cli/run_flight.h"
#include "vmm/control/run_directory.h"
#include "vmm/guest/guest_account.h"
#include "vmm/session/event_options.h"

/* ns. Enough for some hundred frames; a sample should cost the guest no more than an interrupt. */
#define STACK_TIME     64000ull
#define STACK_TIME_MAX 1000000000ull
/* Has room for the agent's rings and for what they deliver. */
#define AGENT_MEMORY_MIN (16ul << 20)
#define MODULE_TEXT_MAX  (1ul << 20)
#define RING_SIZE        (2ull << 20)
#define NOT_GIVEN        UINT64_MAX

static int add_disk(void *target, char *text)
{
	struct run_options *options = target;
	char *comma = strrchr(text, ',');
	struct machine_disk disk = { .path = text };

	if (options->disk_count == RUN_DISKS_MAX)
		return error_set(-EINVAL, "--disk: at most %d are possible", RUN_DISKS_MAX);
	if (comma && !strcmp(comma, ",ro")) {
		*comma = '\0';
		disk.read_only = true;
	}
	options->disks[options->disk_count++] = disk;
	return 0;
}

static int set_console(void *target, char *text)
{
	struct run_options *options = target;

	options->console_path = text;
	if (!strcmp(text, "stdio"))
		options->console = RUN_CONSOLE_STDIO;
	else
		options->console = strcmp(text, "none") ? RUN_CONSOLE_FILE : RUN_CONSOLE_NONE;
	return 0;
}

static int set_agent(void *target, char *text)
{
	static const char *const names[] = { "initrd", "guest", NULL };
	int index = text ? option_choice("--agent", text, names) : 0;

	if (index < 0)
		return index;
	((struct run_options *)target)->agent = index ? RUN_AGENT_GUEST : RUN_AGENT_INITRD;
	return 0;
}

static int set_event(void *target, char *text)
{
	struct run_options *options = target;
	struct attach_options events;
	int error = event_options_set(&events, text);

	if (!error && events.event != ATTACH_CLOCK)
		error = error_set(-EINVAL,
				  "--event cycles is for attach: run samples by cpu-clock");
	options->outside = events.outside;
	return error;
}

static int add_watch(void *target, char *text)
{
	struct run_options *options = target;

	if (options->watch_count == RUN_WATCHES_MAX)
		return error_set(-EINVAL, "--watch: at most %d are possible", RUN_WATCHES_MAX);
	if (watch_spec_parse(&options->watches[options->watch_count], text))
		return error_set(-EINVAL, "--watch: %s", error_message());
	options->watch_count++;
	return 0;
}

static int set_stack_time(void *target, char *text)
{
	uint64_t *time = &((struct run_options *)target)->stack_time;

	return parse_duration(text, time) || *time > STACK_TIME_MAX
		       ? error_set(-EINVAL,
				   "--stack-time %s: it must be a time like 64us or 1ms, up to 1s",
				   text)
		       : 0;
}

static int set_flight(void *target, char *text)
{
	struct run_options *options = target;

	options->flight = true;
	options->flight_time = options->flight_size = 0;
	/* A number without a unit could be either. */
	if (parse_duration(text, &options->flight_time) &&
	    (parse_size(text, &options->flight_size) ||
	     isdigit((unsigned char)text[strlen(text) - 1])))
		return error_set(-EINVAL,
				 "--flight %s: it must be a time like 30s or 5min, or a size like "
				 "64M",
				 text);
	return options->flight_time || options->flight_size
		       ? 0
		       : error_set(-EINVAL, "--flight %s: it must be more than 0", text);
}

static int add_trigger(void *target, char *text)
{
	return trigger_options_add(&((struct run_options *)target)->triggers, text);
}

static int set_user(void *target, char *text)
{
	((struct run_options *)target)->user = text;
	if (!getpwnam(text))
		return error_set(-EINVAL, "--user %s: there is no such user", text);
	return geteuid() ? error_set(-EINVAL, "--user %s: only root can become another user", text)
			 : 0;
}

static int set_name(void *target, char *text)
{
	((struct run_options *)target)->name = text;
	return control_name_is_good(text)
		       ? 0
		       : error_set(-EINVAL,
				   "--name %s: it must be up to %d letters, digits, '.', '_' and "
				   "'-', a letter first",
				   text, CONTROL_NAME_MAX);
}

static const char *const protocols[] = { "auto", "bzimage", "pvh", "elf64", "multiboot", NULL };
static const char *const pmus[] = { "auto", "kernel", "emulated", "off", NULL };
static const char *const clocks[] = { "cpu", "wall", NULL };
static const char *const samplers[] = { "auto", "kick", "bpf", NULL };
static const char *const priorities[] = { "guest", "host", NULL };

#define GUEST_MEMORY_MIN (1u << 20)

#define AT(field) .offset = offsetof(struct run_options, field)

static const struct option_row kernel_rows[] = {
	{ "kernel", "FILE", "bzImage, vmlinux or multiboot image (required)", OPTION_TEXT,
	  AT(boot.kernel) },
	{ "initrd", "FILE", "Initial RAM disk", OPTION_TEXT, AT(boot.initrd) },
	{ "append", "STRING", "Kernel command line", OPTION_TEXT, AT(boot.append) },
	{ "protocol", "NAME", "auto, bzimage, pvh, elf64, multiboot (auto)", OPTION_CHOICE,
	  AT(boot.protocol), .choices = protocols },
	{ "module-text", "TEXT", "Text of multiboot's module, or @FILE with it", OPTION_TEXT,
	  AT(boot.module_text) },
	{ 0 },
};

static const struct option_row machine_rows[] = {
	{ "cpus", "N", "vCPUs, 1 to 64 (1)", OPTION_NUMBER, AT(cpus), .low = 1,
	  .high = VM_CPUS_MAX },
	{ "mem", "SIZE", "Guest memory: 128M, 2G, ... (512M)", OPTION_SIZE, AT(memory_size) },
	{ "disk", "FILE[,ro]", "Raw image as a virtio disk, up to 5 times", OPTION_PARSE,
	  .parse = add_disk },
	{ "reboot", NULL, "Start the guest again after a reset", OPTION_SET, AT(reboot) },
	{ "user", "NAME", "As root: become this user before the guest starts", OPTION_PARSE,
	  .parse = set_user },
	{ "no-sandbox", NULL, "Do not confine kvmscope's threads; for debugging", OPTION_CLEAR,
	  AT(sandbox) },
	{ "nested", NULL, "Let the guest run guests of its own by VMX or SVM", OPTION_SET,
	  AT(nested) },
	{ "console", "WHERE", "Serial port ttyS0: stdio, none or a file (stdio)", OPTION_PARSE,
	  .parse = set_console },
	{ "agent", "WHERE", "Guest agent by initrd, or in the guest (initrd)", OPTION_PARSE,
	  .optional = true, .parse = set_agent },
	{ "agent-memory", "SIZE", "Most host memory for what the agent reports (64M)", OPTION_SIZE,
	  AT(agent_memory) },
	{ "agent-socket", "PATH", "UNIX socket for the guest agent's virtio port", OPTION_TEXT,
	  AT(agent_socket) },
	{ "pmu", "WHAT", "Counters: auto, kernel, emulated, off (auto)", OPTION_CHOICE, AT(pmu),
	  .choices = pmus },
	{ 0 },
};

static const struct option_row profile_rows[] = {
	{ "event", "EVENT,...", "cpu-clock; also kvm:exit, kvm:off-cpu (bpf)", OPTION_PARSE,
	  .letter = 'e', .parse = set_event },
	{ "clock", "CLOCK", "By CPU time or elapsed time: cpu, wall (cpu)", OPTION_CHOICE,
	  AT(clock), .choices = clocks },
	{ "sampler", "HOW", "How to sample: auto, kick, bpf (auto)", OPTION_CHOICE, AT(sampler),
	  .choices = samplers },
	{ "from-line", "TEXT", "Start sampling at a console line with TEXT", OPTION_TEXT,
	  AT(from_line) },
	{ "watch", "WHAT", "Record accesses: jiffies_64:8:w, schedule:x, ...", OPTION_PARSE,
	  .parse = add_watch },
	{ "bp-priority", "WHOSE", "Owner of contended registers: guest, host (guest)",
	  OPTION_CHOICE, AT(breakpoint_priority), .choices = priorities },
	{ "stack-time", "TIME", "Longest time to unwind; 0us: no limit (64us)", OPTION_PARSE,
	  .parse = set_stack_time },
	{ "symfs", "DIR", "The guest's files, for their unwind tables", OPTION_TEXT, AT(symfs) },
	{ "ring-size", "SIZE", "Buffer of each vCPU, a power of two (2M)", OPTION_SIZE,
	  AT(ring_size) },
	{ "no-profile", NULL, "Run the guest only", OPTION_CLEAR, AT(profile) },
	{ "stat", NULL, "Print wall time and exits at the end", OPTION_SET, AT(stat) },
	{ 0 },
};

static const struct option_row flight_rows[] = {
	{ "flight", "TIME|SIZE", "Write the last samples on a trigger: 30s, 64M", OPTION_PARSE,
	  .parse = set_flight },
	{ "after", "TIME", "Keep sampling after a trigger: 5s, 500ms (0s)", OPTION_TIME,
	  AT(flight_after) },
	{ "flight-max", "N", "Most files that the guest can cause in a run (32)", OPTION_NUMBER,
	  AT(flight_max), .high = 1u << 30 },
	{ "trigger", "KIND=LIMIT", "stuck=MS, exits=N/s, steal=P%, console=REGEX", OPTION_PARSE,
	  .parse = add_trigger },
	{ 0 },
};

static const struct option_row control_rows[] = {
	{ "name", "NAME", "Name of this run for kvmscope ctl", OPTION_PARSE, .parse = set_name },
	{ "control", "PATH", "Listen at this socket (in the runtime directory)", OPTION_TEXT,
	  AT(control_path) },
	{ "no-control", NULL, "Do not listen", OPTION_CLEAR, AT(control) },
	{ 0 },
};

static const struct option_row end_rows[] = {
	{ "duration", "SECONDS", "End the guest after SECONDS", OPTION_NUMBER, AT(duration),
	  .low = 1, .high = 1u << 30 },
	{ "timeout", "SECONDS", "End the guest after SECONDS with exit status 124", OPTION_NUMBER,
	  AT(timeout), .low = 1, .high = 1u << 30 },
	{ 0 },
};

static const char help[] =
	"Run a guest under KVM and profile it from outside: nothing is installed in it or copied out of it.\v"
	"Examples:\n"
	"  kvmscope run --kernel vmlinuz --initrd initrd.img --append console=ttyS0\n"
	"      boot it, write perf.data; then: kvmscope report, or perf report\n"
	"  kvmscope run --kernel vmlinuz --cpus 4 --mem 2G --disk root.img \\\n"
	"               --append 'root=/dev/vda console=ttyS0' -F 4000 -o boot.data\n"
	"      four vCPUs, a disk, 4000 samples per second of CPU time\n"
	"  kvmscope run --kernel guest.elf --protocol multiboot --no-profile; echo $?\n"
	"      a small guest whose value at port 0xf4 is the exit status\n"
	"\n"
	"The guest ends by powering off, by a reboot (without --reboot), or by writing\n"
	"port 0xf4. SIGINT (Ctrl-C, unless the console is the terminal) presses its\n"
	"power button; a second one stops it at once, as Ctrl-A x does on the terminal.\n"
	"\n"
	"Exit status: 0, or the value the guest wrote to port 0xf4 (its low 8 bits);\n"
	"1 something failed; 2 wrong usage; 3 triple fault or KVM internal error;\n"
	"4 this host's KVM cannot do it; 124 --timeout.\n";

/* Needs the frequency and the number of vCPUs, wherever they are in the command line. */
static int check_flight(struct run_options *options)
{
	size_t size;
	int error;

	if (!options->flight) {
		if (options->flight_after)
			return error_set(-EINVAL,
					 "--after is for the flight recorder: give --flight, too");
		if (options->triggers.line_count || trigger_options_have_limits(&options->triggers))
			return error_set(
				-EINVAL,
				"--trigger is for the flight recorder: give --flight, too");
		return 0;
	}
	if (!options->profile || options->ring_size != NOT_GIVEN)
		return error_set(-EINVAL, "--flight excludes --no-profile and --ring-size");
	if (options->record.self_contained)
		return error_set(-EINVAL, "--flight excludes --self-contained: kvmscope archive "
					  "writes the symbols of one of its files");
	if (!strcmp(options->record.output, "-"))
		return error_set(-EINVAL, "--flight writes a file for each trigger: -o - is none");
	error = run_flight_ring_size(options, &size);
	options->ring_size = size;
	return error;
}

static int check_watches(const struct run_options *options)
{
	if (options->watch_count && !options->profile)
		return error_set(-EINVAL,
				 "--watch records hits in the profile: it excludes --no-profile");
	for (size_t i = 0; i < options->watch_count; i++)
		if (options->watches[i].vcpu >= (int)options->cpus)
			return error_set(-EINVAL, "--watch @%d: vCPUs are numbered from 0 to %u",
					 options->watches[i].vcpu, options->cpus - 1);
	return 0;
}

static int check_agent(const struct run_options *options)
{
	if (options->agent_memory < AGENT_MEMORY_MIN)
		return error_set(-EINVAL, "--agent-memory: it must be 16M at least");
	if (options->agent && options->agent_socket)
		return error_set(-EINVAL, "--agent and --agent-socket both use the port; give one");
	if (options->agent == RUN_AGENT_INITRD && !options->boot.initrd)
		return error_set(-EINVAL,
				 "--agent needs --initrd to bring the agent into the guest; "
				 "--agent=guest if it is there");
	if (options->agent && !options->profile)
		return error_set(-EINVAL, "--agent is for a profile: it excludes --no-profile");
	return 0;
}

static int check_files(const struct boot_options *boot)
{
	if (boot_check_kernel(boot))
		return error_set(-EINVAL,
				 "--kernel: %s; it must be a bzImage, ELF vmlinux, PVH or "
				 "multiboot image",
				 error_message());
	if (boot_check_initrd(boot))
		return error_set(-EINVAL, "--initrd: %s", error_message());
	return 0;
}

/* Watches have the same numbers in samples, and the flight recorder has not been tested with these
 * events. */
static int check_outside(struct run_options *options)
{
	const char *excluded = options->sampler == RUN_SAMPLER_KICK ? "--sampler kick"
			       : options->clock == RUN_CLOCK_WALL   ? "--clock wall"
			       : options->flight                    ? "--flight"
			       : options->watch_count               ? "--watch"
								    : NULL;

	if (!options->outside)
		return 0;
	if (excluded)
		return error_set(-EINVAL, "--event kvm:exit and kvm:off-cpu exclude %s", excluded);
	options->sampler = RUN_SAMPLER_BPF;
	return 0;
}

static int check(void *target)
{
	struct run_options *options = target;
	uint64_t size = options->ring_size;
	int error;

	if (!options->boot.kernel)
		return error_set(-EINVAL, "--kernel FILE is missing");
	if (options->memory_size < GUEST_MEMORY_MIN || options->memory_size % 4096)
		return error_set(-EINVAL,
				 "--mem: it must be a multiple of 4 KiB and at least 1M; a unit "
				 "follows the number, as in 512M");
	if (size != NOT_GIVEN &&
	    (size < RING_SIZE_MIN || size > RING_SIZE_MAX || size & (size - 1)))
		return error_set(-EINVAL, "--ring-size: it must be a power of two from 64K to 1G");
	if (!!options->name + !!options->control_path + !options->control > 1)
		return error_set(-EINVAL, "--name, --control and --no-control exclude each other");
	if (options->sampler == RUN_SAMPLER_BPF && options->clock == RUN_CLOCK_WALL)
		return error_set(
			-EINVAL,
			"--sampler bpf needs --clock cpu: a halted vCPU gets no sampling interrupts");
	error = check_outside(options);
	if (!error)
		error = check_agent(options);
	if (!error)
		error = check_flight(options);
	if (options->ring_size == NOT_GIVEN)
		options->ring_size = RING_SIZE;
	if (!error)
		error = check_watches(options);
	return error ? error : check_files(&options->boot);
}

/* Replaces "@FILE" by the file's text. */
static int read_module_text(struct run_options *options)
{
	const char *path = options->boot.module_text;
	size_t size;
	int fd, error;

	if (!path || *path != '@')
		return 0;
	fd = open(++path, O_RDONLY | O_CLOEXEC);
	error = fd < 0 ? -errno
		       : read_descriptor(fd, MODULE_TEXT_MAX, &options->module_text, &size);
	if (fd >= 0)
		close(fd);
	if (error)
		return error_set(error, "cannot read %s, the module text: %s", path,
				 strerror(-error));
	options->boot.module_text = options->module_text;
	return 0;
}

int run_options_parse(struct run_options *options, int argc, char **argv)
{
	const struct option_group groups[] = {
		{ .title = "What to boot:", .rows = kernel_rows, .target = options },
		{ .title = "The machine:", .rows = machine_rows, .target = options },
		{ "The profile:", record_rows, &options->record, record_options_check },
		{ .rows = profile_rows, .target = options },
		{ .title = "The flight recorder:", .rows = flight_rows, .target = options },
		{ .title = "Control by kvmscope ctl:", .rows = control_rows, .target = options },
		{ "The end, and messages:", end_rows, options, check },
		{ .rows = record_message_rows, .target = &options->record },
		{ 0 },
	};
	const struct option_command command = { .name = "kvmscope run",
						.doc = help,
						.groups = groups,
						.hint = "--kernel gives the kernel" };
	int error;

	*options = (struct run_options){
		.boot.append = "",
		.cpus = 1,
		.memory_size = 512ull << 20,
		.agent_memory = GUEST_ACCOUNT_DEFAULT,
		.profile = true,
		.stack_time = STACK_TIME,
		.ring_size = NOT_GIVEN,
		.flight_max = 32,
		.control = true,
		.sandbox = true,
	};
	error = record_options_init(&options->record, argc, argv);
	if (!error)
		error = option_table_parse(&command, argc, argv);
	return error ? error : read_module_text(options);
}

void run_options_free(struct run_options *options)
{
	trigger_options_free(&options->triggers);
	free(options->module_text);
	record_options_free(&options->record);
}
