/* SPDX-License-Identifier: Apache-2.0 */
/* The tracepoint kvm:kvm_exit, whose record differs between kernels, for BPF programs. Any thread.
 */
#ifndef KVMSCOPE_ATTACH_KVM_TRACEPOINT_H
#define KVMSCOPE_ATTACH_KVM_TRACEPOINT_H

#include <stdint.h>

struct bpf_link;
struct bpf_program;

struct kvm_exit_tracepoint {
	unsigned int id;
	uint32_t reason, isa, vcpu, rip; /* offsets of the fields; RIP 0: there is none */
};

/* -ENOTSUP: this host's KVM does not reach it; -ENOENT: KVM is not loaded; -EACCES: tracefs may
 * not be opened; others; all with the message. */
int kvm_exit_tracepoint_find(struct kvm_exit_tracepoint *tracepoint);

/* Runs PROGRAM at the tracepoint with ID. NULL, with errno, on an error. */
struct bpf_link *kvm_exit_tracepoint_attach(unsigned int id, const struct bpf_program *program);

#endif
