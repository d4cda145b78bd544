/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * BPF: counts accesses to MMIO, ports and MSRs, and hypercalls, by address or number, at KVM's
 * tracepoints. The time outside of the guest belongs to the last access of an exit.
 */
#ifndef KVMSCOPE_ATTACH_BPF_ACCESS_COUNTS_H
#define KVMSCOPE_ATTACH_BPF_ACCESS_COUNTS_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "vmm/attach/bpf/exit_program.h"
#include "vmm/attach/bpf/vcpu_clock.h"

#define KVM_TRACE_MMIO_READ  1 /* include/trace/events/kvm.h; 0: a read that is not complete */
#define KVM_TRACE_MMIO_WRITE 2

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct access_key);
	__type(value, struct access_counts);
} accesses SEC(".maps");

/* Accesses that were not counted by address because the map was full: the guest chooses. */
__u64 accesses_lost;

static __always_inline struct access_counts *find_access(const struct access_key *key)
{
	struct access_counts *known = bpf_map_lookup_elem(&accesses, key), none = {};

	if (known)
		return known;
	bpf_map_update_elem(&accesses, key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&accesses, key);
}

/* Counts the last access of THREAD, after NS outside of the guest. */
static __always_inline void end_access(struct vcpu_thread *thread, __u64 ns)
{
	struct access_key key = { .kind = thread->access - 1, .address = thread->address };
	struct access_counts *found;

	key.tid = (__u32)bpf_get_current_pid_tgid();
	thread->access = 0;
	found = find_access(&key);
	if (!found) {
		__sync_fetch_and_add(&accesses_lost, 1);
		return;
	}
	found->vcpu = thread->vcpu;
	found->count++;
	found->ns += ns;
	if (ns > found->ns_max)
		found->ns_max = ns;
}

/* Counted at the next entry, as exits are, or before the next access of the same exit. */
static __always_inline int count_access(__u32 kind, __u64 address)
{
	struct vcpu_thread *thread = find_thread((void *)bpf_get_current_task());

	if (!thread)
		return 0;
	if (thread->access)
		end_access(thread, 0);
	thread->access = kind + 1;
	thread->address = address;
	return 0;
}

SEC("raw_tracepoint/kvm_mmio")
int count_mmio(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 type = (__u32)ctx->args[0];

	if (type == KVM_TRACE_MMIO_WRITE)
		return count_access(ACCESS_MMIO_WRITE, ctx->args[2]);
	return type == KVM_TRACE_MMIO_READ ? count_access(ACCESS_MMIO_READ, ctx->args[2]) : 0;
}

SEC("raw_tracepoint/kvm_pio")
int count_port(struct bpf_raw_tracepoint_args *ctx)
{
	return count_access((__u32)ctx->args[0] ? ACCESS_PORT_OUT : ACCESS_PORT_IN,
			    (__u32)ctx->args[1]);
}

SEC("raw_tracepoint/kvm_msr")
int count_msr(struct bpf_raw_tracepoint_args *ctx)
{
	return count_access((__u32)ctx->args[0] ? ACCESS_MSR_WRITE : ACCESS_MSR_READ,
			    (__u32)ctx->args[1]);
}

SEC("raw_tracepoint/kvm_hypercall")
int count_hypercall(struct bpf_raw_tracepoint_args *ctx)
{
	return count_access(ACCESS_HYPERCALL, ctx->args[0]);
}

#endif
