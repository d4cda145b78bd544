/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples this process's own guest by the BPF program of kvmscope attach instead of by kicks.
 * Samples arrive in the attachment's rings, except those of watches, which the sampler records.
 */
#ifndef KVMSCOPE_CLI_RUN_BPF_H
#define KVMSCOPE_CLI_RUN_BPF_H

#include <stdbool.h>

#include "vmm/attach/attachment.h"
#include "vmm/cli/run_options.h"
#include "vmm/machine/machine.h"

/*
 * Attaches to this process's MACHINE, which is created and not running yet, if OPTIONS say so, or
 * leave the choice and nothing is lost by it. Logs which sampler is used and why. *ATTACH is NULL
 * for kicks. The errors of attach_open() and attach_start() if OPTIONS accept only BPF.
 */
int run_bpf_start(struct attach **attach, const struct run_options *options,
		  const struct machine *machine);

/* True if run_bpf_start() tries BPF. Any thread. */
bool run_bpf_is_tried(const struct run_options *options);

#endif
