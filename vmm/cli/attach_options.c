/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/attach_options.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/attach/agent_channel.h"
#include "vmm/session/event_options.h"

#define STOP_LIMIT_MAX 1000000 /* us */
#define RING_SIZE      (512ul << 10)

static int set_backend(void *target, char *text)
{
	static const char *const names[] = { "auto", "bpf", "perf", "ptrace", "qmp", NULL };
	int index = option_choice("--backend", text, names);

	((struct attach_command_options *)target)->attach.backend = text;
	return index < 0 ? index : 0;
}

static int set_agent(void *target, char *text)
{
	struct attach_command_options *options = target;
	struct agent_vsock_address vsock;

	options->agent_socket = text;
	return strncmp(text, "vsock:", strlen("vsock:")) != 0 || agent_vsock_parse(text, &vsock)
		       ? 0
		       : error_set(-EINVAL, "--agent %s is not vsock:CID:PORT", text);
}

static int set_event(void *target, char *text)
{
	return event_options_set(&((struct attach_command_options *)target)->attach, text);
}

#define AT(field) .offset = offsetof(struct attach_command_options, field)

static const struct option_row vm_rows[] = {
	{ "pid", "PID", "The process of the VM: QEMU or another VMM", OPTION_NUMBER, AT(attach.pid),
	  .letter = 'p', .low = 1, .high = INT_MAX },
	{ "vm", "N", "One of several VMs of --pid, by its descriptor", OPTION_NUMBER, AT(attach.vm),
	  .low = 1, .high = INT_MAX },
	{ "domain", "NAME", "The running libvirt domain NAME", OPTION_TEXT,
	  AT(attach.monitor.domain) },
	{ "connect", "URI", "libvirt's URI for --domain, as for virsh", OPTION_TEXT,
	  AT(attach.monitor.uri) },
	{ "qmp", "SOCKET", "The QEMU with this QMP socket, also without KVM", OPTION_TEXT,
	  AT(attach.monitor.socket) },
	{ "backend", "WAY", "Sample by auto, bpf, perf, ptrace, qmp (auto)", OPTION_PARSE,
	  .parse = set_backend },
	{ "event", "NAME,...", "cpu-clock or cycles; also kvm:exit, kvm:off-cpu", OPTION_PARSE,
	  .letter = 'e', .parse = set_event },
	{ "host-stacks", NULL, "Record the call chains of host and VMM, too (bpf)", OPTION_SET,
	  AT(attach.host_stacks) },
	{ "stop-limit", "US", "ptrace: longest stop of a vCPU in us (200)", OPTION_NUMBER,
	  AT(attach.stop_limit), .low = 1, .high = STOP_LIMIT_MAX },
	{ "agent", "SOCKET", "Guest agent's socket, or vsock:CID:PORT", OPTION_PARSE,
	  .parse = set_agent },
	{ "no-agent", NULL, "Do not connect to a guest agent", OPTION_CLEAR, AT(agent) },
	{ 0 },
};

static const struct option_row end_rows[] = {
	{ "time", "SECONDS", "End after SECONDS (at the VM's end, or SIGINT)", OPTION_NUMBER,
	  AT(time), .low = 1, .high = INT_MAX },
	{ "json", NULL, "Print the counts as JSON at the end", OPTION_SET, AT(json) },
	{ 0 },
};

static const char help[] =
	"Profile a running VM, whoever started it. Its memory and, at the end, its disks are only read; "
	"it is stopped by --backend ptrace only.\v"
	"Examples:\n"
	"  kvmscope attach\n"
	"      list the VMs that run here\n"
	"  kvmscope attach --pid 4711 --time 10\n"
	"      profile that one for 10 s into perf.data; then: kvmscope report\n"
	"  kvmscope attach --pid $(pidof qemu-system-x86_64) -F 4000 -o vm.data\n"
	"      until the VM ends or Ctrl-C, 4000 samples per second of CPU time\n"
	"  kvmscope attach --domain web --connect qemu:///system --time 10\n"
	"      the libvirt domain 'web'\n"
	"  kvmscope attach --qmp /run/vm.qmp\n"
	"      a QEMU without KVM that was started with\n"
	"      -qmp unix:/run/vm.qmp,server=on,wait=off\n"
	"\n"
	"It needs the right to use perf on the process, kernel and guest included\n"
	"(root, or CAP_PERFMON), and to read its memory (root, or its user with\n"
	"CAP_SYS_PTRACE). kvmscope doctor shows what works here.\n"
	"\n"
	"Exit status: 0; 1 something failed; 2 wrong usage; 4 no backend works here.\n";

static int check(void *target)
{
	const struct attach_command_options *options = target;
	const struct monitor_address *monitor = &options->attach.monitor;

	if (monitor->domain && (options->attach.pid || monitor->socket))
		return error_set(-EINVAL, "--domain selects the VM: it excludes --pid and --qmp");
	if (options->attach.vm && !options->attach.pid)
		return error_set(-EINVAL, "--vm selects one VM of --pid, which is missing");
	if (monitor->uri && !monitor->domain)
		return error_set(-EINVAL, "--connect is for --domain, which is missing");
	if (options->agent_socket && !options->agent)
		return error_set(-EINVAL, "--agent and --no-agent exclude each other");
	if (options->json && !strcmp(options->record.output, "-"))
		return error_set(-EINVAL, "--json and -o - both write to standard output");
	return 0;
}

int attach_options_parse(struct attach_command_options *options, int argc, char **argv)
{
	const struct option_group groups[] = {
		{ .title = "The VM, and how to sample it:", .rows = vm_rows, .target = options },
		{ "The profile:", record_rows, &options->record, record_options_check },
		{ "The end, and messages:", end_rows, options, check },
		{ .rows = record_message_rows, .target = &options->record },
		{ 0 },
	};
	const struct option_command command = { .name = "kvmscope attach",
						.doc = help,
						.groups = groups,
						.hint = "--pid or --domain selects the VM" };
	int error;

	*options = (struct attach_command_options){
		.attach = { .backend = "auto", .ring_size = RING_SIZE },
		.agent = true,
	};
	error = record_options_init(&options->record, argc, argv);
	if (!error)
		error = option_table_parse(&command, argc, argv);
	options->attach.frequency = options->record.frequency;
	options->attach.callchains = options->record.callchains;
	event_options_list(options->attach.outside, &options->events);
	options->names_vm = options->attach.pid || options->attach.monitor.domain ||
			    options->attach.monitor.socket;
	return error;
}

void attach_options_free(struct attach_command_options *options)
{
	record_options_free(&options->record);
}
