// SPDX-License-Identifier: Apache-2.0
#include "vmm/cli/attach_options.h"
#include "vmm/attach/agent_vsock.h"

#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/cli/command.h"
#include "vmm/cli/command_line.h"
#include "vmm/cli/option_number.h"
#include "vmm/perf_data/output_path.h"

#define FREQUENCY_MAX  10000
#define STOP_LIMIT_MAX 1000000 /* us */
#define RING_SIZE      (512ul << 10)

enum {
	KEY_BACKEND = 256,
	KEY_VM,
	KEY_DOMAIN,
	KEY_CONNECT,
	KEY_QMP,
	KEY_TIME,
	KEY_NO_CALL_GRAPH,
	KEY_PERSPECTIVE,
	KEY_KALLSYMS,
	KEY_BTF,
	KEY_VMLINUX,
	KEY_NO_BUILDID_CACHE,
	KEY_NO_DISK_NAMES,
	KEY_STOP_LIMIT,
	KEY_AGENT,
	KEY_NO_AGENT,
	KEY_JSON,
};

static const struct argp_option option_list[] = {
	{ "pid", 'p', "PID", 0, "The process that runs the VM: QEMU or any other that uses KVM",
	  0 },
	{ "vm", KEY_VM, "N", 0,
	  "Of a process with several VMs, the one that has descriptor N there, as the list shows it; needs debugfs",
	  0 },
	{ "domain", KEY_DOMAIN, "NAME", 0, "The running domain NAME of libvirt, instead of --pid",
	  0 },
	{ "connect", KEY_CONNECT, "URI", 0,
	  "Where libvirt is, as for virsh (LIBVIRT_DEFAULT_URI, or what fits the user)", 0 },
	{ "qmp", KEY_QMP, "SOCKET", 0,
	  "QEMU's monitor: a UNIX socket of QMP that nobody else is connected to; names the VM, too (the one that the "
	  "process was started with)",
	  0 },
	{ "backend", KEY_BACKEND, "WAY", 0,
	  "How to sample: bpf (a program in the kernel), perf (events on the vCPU threads; no callers), ptrace (stops "
	  "the vCPU threads for a moment each), qmp (QEMU's monitor, slow, no callers; also for guests without KVM), auto: "
	  "the best that works here, and says which (auto)",
	  0 },
	{ "stop-limit", KEY_STOP_LIMIT, "US", 0,
	  "With ptrace: begin nothing more with a thread that is stopped for so many microseconds (200); on a busy host "
	  "some stops are longer, and the summary says how many",
	  0 },
	{ "agent", KEY_AGENT, "SOCKET", 0,
	  "The UNIX socket of the virtio port org.kvmscope.agent.0, where a guest agent names the guest's programs; "
	  "not needed where QEMU's command line tells it, as libvirt's does; or vsock:CID:PORT, where the agent of the "
	  "guest CID connects to (kvmscope-agent --vsock PORT)",
	  0 },
	{ "no-agent", KEY_NO_AGENT, NULL, 0, "Do not talk with a guest agent", 0 },
	{ "freq", 'F', "HZ", 0, "Samples per second of each vCPU's CPU time, up to 10000 (999)",
	  0 },
	{ "time", KEY_TIME, "SECONDS", 0, "End then; without it, with the VM or by SIGINT", 0 },
	{ "output", 'o', "FILE", 0, "perf.data file; - for standard output (perf.data)", 0 },
	{ "no-call-graph", KEY_NO_CALL_GRAPH, NULL, 0,
	  "No callchains, also where they could be had", 0 },
	{ "perspective", KEY_PERSPECTIVE, "WHOSE", 0,
	  "guest: as if recorded inside the guest, what ran outside of it is its hypervisor; host: as perf kvm sees "
	  "it (guest)",
	  0 },
	{ "compression-level", 'z', "LEVEL", OPTION_ARG_OPTIONAL,
	  "Compress with zstd, level 1 to 22 (1)", 0 },
	{ "kallsyms", KEY_KALLSYMS, "FILE", 0,
	  "Kernel symbols from this /proc/kallsyms of the guest", 0 },
	{ "vmlinux", KEY_VMLINUX, "FILE", 0, "Kernel symbols from this ELF file", 0 },
	{ "btf", KEY_BTF, "FILE", 0,
	  "BTF of the guest's kernel where its memory has none: a vmlinux, or a copy of /sys/kernel/btf/vmlinux",
	  0 },
	{ "no-buildid-cache", KEY_NO_BUILDID_CACHE, NULL, 0, "Leave perf's build-id cache alone",
	  0 },
	{ "no-disk-names", KEY_NO_DISK_NAMES, NULL, 0,
	  "Do not look for the names of the guest's programs on the VM's disks at the end", 0 },
	{ "json", KEY_JSON, NULL, 0, "At the end, the counts as JSON on standard output", 0 },
	{ "quiet", 'q', NULL, 0, "No progress, no summary", 0 },
	{ "verbose", 'v', NULL, 0, "Details: how the vCPUs and the memory were found", 0 },
	{ 0 },
};

static const char help[] =
	"Profile a VM that runs already, whoever started it. It is not changed, and stopped by --backend ptrace "
	"alone: its memory, and at the end its disks, are only read.\v"
	"Examples:\n"
	"  kvmscope attach\n"
	"      list the VMs that run here\n"
	"  kvmscope attach --pid 4711 --time 10\n"
	"      profile that one for 10 s into perf.data; look with: kvmscope report\n"
	"  kvmscope attach --pid $(pidof qemu-system-x86_64) -F 4000 -o vm.data\n"
	"      until the VM ends or Ctrl-C, 4000 samples per second of CPU time\n"
	"  kvmscope attach --domain web --connect qemu:///system --time 10\n"
	"      the domain 'web' of libvirt\n"
	"  kvmscope attach --qmp /run/vm.qmp\n"
	"      a QEMU without KVM that was started with\n"
	"      -qmp unix:/run/vm.qmp,server=on,wait=off\n"
	"\n"
	"It needs the right to use perf on the process, kernel and guest included\n"
	"(root, or CAP_PERFMON), and to read its memory (root, or its user with\n"
	"CAP_SYS_PTRACE). kvmscope doctor tells what works here.\n"
	"\n"
	"Exit status: 0; 1 something failed; 2 wrong usage; 4 no way to attach works\n"
	"here.\n";

static void set_perspective(struct argp_state *state, struct attach_command_options *options,
			    const char *text)
{
	if (strcmp(text, "guest") != 0 && strcmp(text, "host") != 0)
		argp_error(state, "--perspective is guest or host, not '%s'", text);
	options->perspective = strcmp(text, "host") ? PERSPECTIVE_GUEST : PERSPECTIVE_HOST;
}

static void set_backend(struct argp_state *state, struct attach_command_options *options,
			const char *text)
{
	if (strcmp(text, "auto") != 0 && !attach_backend_find(text))
		argp_error(state, "--backend %s is not known; --help lists what is", text);
	options->attach.backend = text;
}

static void check_vm(struct argp_state *state, const struct attach_command_options *options)
{
	const struct monitor_address *monitor = &options->attach.monitor;

	if (monitor->domain && (options->attach.pid || monitor->socket))
		argp_error(state,
			   "--domain names the VM: --pid and --qmp are for those without libvirt");
	if (options->attach.vm && !options->attach.pid)
		argp_error(state, "--vm says which VM of --pid is meant");
	if (monitor->uri && !monitor->domain)
		argp_error(state, "--connect says where the domain of --domain is");
	if (options->agent_socket && !options->agent)
		argp_error(state, "--agent and --no-agent exclude each other");
}

static error_t parse_profile_option(int key, char *text, struct argp_state *state,
				    struct attach_command_options *options)
{
	switch (key) {
	case KEY_PERSPECTIVE:
		set_perspective(state, options, text);
		return 0;
	case 'z':
		options->compression = text ? option_number(state, "-z", text, 1, 22) : 1;
		return 0;
	case KEY_BTF:
		options->btf = text;
		return 0;
	case KEY_KALLSYMS:
		options->kallsyms = text;
		return 0;
	case KEY_VMLINUX:
		options->vmlinux = text;
		return 0;
	case KEY_JSON:
		options->json = true;
		return 0;
	case KEY_NO_BUILDID_CACHE:
		options->buildid_cache = false;
		return 0;
	case KEY_NO_DISK_NAMES:
		options->disk_symbols = false;
		return 0;
	case 'q':
		options->quiet = true;
		return 0;
	case 'v':
		options->verbose = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is not an option; the VM is named by --pid or --domain",
			   text);
		return 0;
	case ARGP_KEY_END:
		check_vm(state, options);
		if (options->json && !strcmp(options->output, "-"))
			argp_error(state, "--json and -o - both want standard output");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
	struct attach_command_options *options = state->input;
	struct agent_vsock_address vsock;

	switch (key) {
	case 'p':
		options->attach.pid = (pid_t)option_number(state, "--pid", text, 1, INT_MAX);
		return 0;
	case KEY_VM:
		options->attach.vm = (int)option_number(state, "--vm", text, 1, INT_MAX);
		return 0;
	case KEY_DOMAIN:
		options->attach.monitor.domain = text;
		return 0;
	case KEY_CONNECT:
		options->attach.monitor.uri = text;
		return 0;
	case KEY_QMP:
		options->attach.monitor.socket = text;
		return 0;
	case KEY_BACKEND:
		set_backend(state, options, text);
		return 0;
	case 'F':
		options->attach.frequency = option_number(state, "-F", text, 1, FREQUENCY_MAX);
		return 0;
	case KEY_STOP_LIMIT:
		options->attach.stop_limit =
			option_number(state, "--stop-limit", text, 1, STOP_LIMIT_MAX);
		return 0;
	case KEY_AGENT:
		if (!strncmp(text, "vsock:", 6) && !agent_vsock_parse(text, &vsock))
			argp_error(state, "--agent '%s' is no vsock:CID:PORT", text);
		options->agent_socket = text;
		return 0;
	case KEY_NO_AGENT:
		options->agent = false;
		return 0;
	case KEY_TIME:
		options->time = option_number(state, "--time", text, 1, INT_MAX);
		return 0;
	case 'o':
		options->output = output_path_is_standard(text) ? "-" : text;
		return 0;
	case KEY_NO_CALL_GRAPH:
		options->attach.callchains = false;
		return 0;
	default:
		return parse_profile_option(key, text, state, options);
	}
}

int attach_options_parse(struct attach_command_options *options, int argc, char **argv)
{
	static char name[] = "kvmscope attach";
	const struct argp argp = { .options = option_list, .parser = parse_option, .doc = help };
	int error;

	*options = (struct attach_command_options){
		.attach = { .backend = "auto",
			    .frequency = 999,
			    .callchains = true,
			    .ring_size = RING_SIZE },
		.output = "perf.data",
		.agent = true,
		.buildid_cache = true,
		.disk_symbols = true,
		.command_line = command_line_of(argc, argv), /* argp permutes the words */
	};
	if (!options->command_line)
		return error_set(-ENOMEM, "no memory for the options");
	argp_err_exit_status = EXIT_USAGE;
	argv[0] = name; /* what argp's messages start with */
	error = argp_parse(&argp, argc, argv, 0, NULL, options);
	options->names_vm = options->attach.pid || options->attach.monitor.domain ||
			    options->attach.monitor.socket;
	return error ? error_set(-error, "the command line can not be read: %s", strerror(error))
		     : 0;
}

void attach_options_free(struct attach_command_options *options)
{
	free(options->command_line);
}
