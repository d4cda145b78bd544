// SPDX-License-Identifier: Apache-2.0
#include "vmm/cli/doctor_attach.h"

#include <stdio.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/attach/backend.h"

static const struct {
	const char *backend, *id, *name, *lost;
} ways[] = {
	{ "bpf", "attach.by_bpf", "kvmscope attach by BPF",
	  "VMs of others are sampled without callers, by perf if that works." },
	{ "perf", "attach.by_perf", "kvmscope attach by perf",
	  "VMs of others can not be sampled without stopping them." },
	{ "ptrace", "attach.by_ptrace", "kvmscope attach by ptrace",
	  "VMs of others can be sampled where BPF or perf works, and else not at all." },
	{ "qmp", "attach.by_qmp", "kvmscope attach by monitor",
	  "Domains can not be named by --domain; guests without KVM need a QMP socket of their own." },
};

size_t doctor_attach(struct probe_row *rows)
{
	size_t count = 0;

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		const struct attach_backend *backend = attach_backend_find(ways[i].backend);
		struct probe_row *row = &rows[count++];
		int error = backend->probe();

		*row = (struct probe_row){ .id = ways[i].id, .name = ways[i].name, .lost = ways[i].lost };
		row->state = error ? PROBE_NO : PROBE_YES;
		snprintf(row->detail, sizeof(row->detail), "%.*s", (int)sizeof(row->detail) - 1,
			 error ? error_message() : backend->is);
	}
	return count;
}
