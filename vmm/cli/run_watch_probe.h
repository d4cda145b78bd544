/* SPDX-License-Identifier: Apache-2.0 */
/* What this host's KVM reports of guest debugging, tried out when a watch first needs it. One
 * thread at a time. */
#ifndef KVMSCOPE_CLI_RUN_WATCH_PROBE_H
#define KVMSCOPE_CLI_RUN_WATCH_PROBE_H

#include "vmm/debug/watch_spec.h"
#include "vmm/machine/host_probe.h"

/* Zeroed memory: nothing was tried yet. */
struct run_watch_probe {
	struct probe_row code, data, step; /* without an id: not tried */
};

/* Can what SPEC watches be watched here? -ENOTSUP with what was found; -ENOMEM. Forks. */
int run_watch_probe(struct run_watch_probe *probe, const struct watch_spec *spec);

#endif
