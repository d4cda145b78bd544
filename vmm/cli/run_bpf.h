/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BPF program of kvmscope attach in the place of kicks: this process attaches to itself.
 * Samples come through rings of the attachment, and those of watches still through the sampler's.
 */
#ifndef KVMSCOPE_CLI_RUN_BPF_H
#define KVMSCOPE_CLI_RUN_BPF_H

#include "vmm/attach/attachment.h"
#include "vmm/cli/run_options.h"
#include "vmm/kvm/vcpu.h"

/*
 * Attaches to the machine of this process, which is made and does not run yet, if that is what
 * OPTIONS want or, by themselves, what is best; which and why is logged. *ATTACH is NULL: by kicks.
 * The errors of attach_open() and attach_start() where nothing but BPF will do.
 */
int run_bpf_start(struct attach **attach, const struct run_options *options);

/* VCPU is about to run, on this thread: it is sampled from now on. The errors of attach_rescan(),
 * where it or another one can not be. */
int run_bpf_enter(struct attach *attach, struct vcpu *vcpu);

#endif
