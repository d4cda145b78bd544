// SPDX-License-Identifier: Apache-2.0
#include "vmm/cli/doctor_attach.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/attach/backend.h"
#include "vmm/attach/monitor_trial.h"

/* To read the VM's memory, and to stop its threads. */
#define MEMORY "CAP_SYS_PTRACE as the VM's user"

static const struct {
	const char *backend, *id, *name, *lost, *takes;
} ways[] = {
	{ "bpf", "attach.by_bpf", "kvmscope attach by BPF",
	  "VMs of others are sampled without callers, by perf if that works.",
	  "root, or CAP_BPF and CAP_PERFMON, CAP_SYS_ADMIN where KVM is a module, and for names " MEMORY },
	{ "perf", "attach.by_perf", "kvmscope attach by perf",
	  "VMs of others can not be sampled without stopping them.",
	  "root, or CAP_PERFMON, and for names " MEMORY },
	{ "ptrace", "attach.by_ptrace", "kvmscope attach by ptrace",
	  "VMs of others can be sampled where BPF or perf works, and else not at all.",
	  "root, or " MEMORY },
};

static void tell(struct probe_row *row, enum probe_state state, const char *detail)
{
	row->state = state;
	snprintf(row->detail, sizeof(row->detail), "%.*s", (int)sizeof(row->detail) - 1, detail);
}

/* By a socket of its own QEMU's monitor needs nothing more; domains need libvirt's library. */
static void try_monitor(struct probe_row *row)
{
	int error;

	*row = (struct probe_row){
		.id = "attach.by_qmp",
		.name = "kvmscope attach by monitor",
		.lost = "Guests without KVM can not be sampled.",
		.takes = "for domains what libvirt asks for (root, or Debian's group libvirt), "
			 "else a QMP socket that you may use"
	};
	error = monitor_trial();
	if (error && error != -ENOENT) {
		tell(row, PROBE_NO, error_message());
	} else if (attach_qmp.probe()) {
		tell(row, error ? PROBE_NO : PROBE_PARTLY, error_message());
		row->lost =
			"Domains can not be named by --domain; guests without KVM need a QMP socket of their own.";
	} else if (error) {
		tell(row, PROBE_PARTLY,
		     "libvirt's library is there; no QEMU (qemu-system-x86_64) is installed to try its monitor");
		row->lost =
			"Guests without KVM can not be sampled if their QEMU is older than 7.2.";
	} else {
		tell(row, PROBE_YES,
		     "a QEMU was started for it, and its monitor told vCPUs, memory and registers; libvirt's "
		     "library is there for domains");
	}
}

size_t doctor_attach(struct probe_row *rows)
{
	size_t count = 0;

	for (; count < sizeof(ways) / sizeof(ways[0]); count++) {
		const struct attach_backend *backend = attach_backend_find(ways[count].backend);
		struct probe_row *row = &rows[count];
		int error = backend->probe();

		*row = (struct probe_row){ .id = ways[count].id,
					   .name = ways[count].name,
					   .lost = ways[count].lost,
					   .takes = ways[count].takes };
		tell(row, error ? PROBE_NO : PROBE_YES, error ? error_message() : backend->is);
	}
	try_monitor(&rows[count++]);
	return count;
}
