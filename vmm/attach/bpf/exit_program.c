/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * BPF: counts the exits of the vCPUs of one process by reason, and the time from each exit to the
 * next entry of that thread, at KVM's tracepoints kvm_exit and kvm_entry; and the time that its
 * vCPU threads spend in each state (vcpu_clock.h), at those of the scheduler, too.
 */
#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "vmm/attach/bpf/access_counts.h"
#include "vmm/attach/bpf/exit_program.h"
#include "vmm/attach/bpf/kernel_types.h"
#include "vmm/attach/bpf/vcpu_clock.h"

char LICENSE[] SEC("license") = "GPL";

/* arch/x86/kvm/trace.h, and asm/vmx.h and asm/svm.h, which need headers that BPF lacks. */
#define ISA_VMX                        1
#define EXIT_REASON_EXTERNAL_INTERRUPT 1
#define SVM_EXIT_INTR                  0x60

/* Set by the loader: where the tracepoint has what. */
const volatile __u32 reason_offset, isa_offset, vcpu_offset, rip_offset;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct exit_key);
	__type(value, struct exit_counts);
} counts SEC(".maps");

/* Exits that were not counted because the map was full. */
__u64 lost;

/* A new element: too large for the stack. */
static const struct exit_counts no_counts;

static __always_inline __u32 read_field(const void *ctx, __u32 offset)
{
	__u32 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), ctx + offset);
	return value;
}

/* A host's interrupt ends the guest's execution anywhere, so it is a sample of it. */
static __always_inline void note_interrupt(const void *ctx, struct vcpu_thread *thread)
{
	__u64 rip = 0;

	if (thread->reason !=
	    (thread->isa == ISA_VMX ? EXIT_REASON_EXTERNAL_INTERRUPT : SVM_EXIT_INTR))
		return;
	bpf_probe_read_kernel(&rip, sizeof(rip), ctx + rip_offset);
	thread->interrupted[rip >> 63]++;
}

/*
 * Returns 1: 0 would hide the exit from perf events of others on the tracepoint (kernel:
 * perf_trace_run_bpf_submit()).
 */
SEC("tracepoint/kvm/kvm_exit")
int count_exit(void *ctx)
{
	struct vcpu_thread *thread = find_thread((void *)bpf_get_current_task());

	if (!thread)
		return 1;
	thread->reason = read_field(ctx, reason_offset);
	thread->vcpu = read_field(ctx, vcpu_offset);
	thread->isa = read_field(ctx, isa_offset);
	thread->exited = bpf_ktime_get_ns();
	if (rip_offset)
		note_interrupt(ctx, thread);
	move_to(thread, VCPU_KVM, thread->exited);
	return 1;
}

/* The position of the highest bit of VALUE, which is not 0. */
static __always_inline __u32 highest_bit(__u64 value)
{
	__u32 bit = 0;

#pragma unroll
	for (__u32 step = 32; step; step /= 2)
		if (value >> step) {
			value >>= step;
			bit += step;
		}
	return bit;
}

static __always_inline __u64 bucket_of(__u64 ns)
{
	__u32 bit = highest_bit(ns | 1);

	return ns < 8 ? ns : (bit - 2) * 8ull + (ns >> (bit - 3) & 7);
}

static __always_inline void add_time(struct exit_counts *to, __u64 ns)
{
	to->count++;
	to->ns += ns;
	if (ns > to->ns_max)
		to->ns_max = ns;
	to->buckets[bucket_of(ns) % EXIT_BUCKETS]++;
}

static __always_inline struct exit_counts *find_counts(const struct exit_key *key)
{
	struct exit_counts *known = bpf_map_lookup_elem(&counts, key);

	if (known)
		return known;
	bpf_map_update_elem(&counts, key, &no_counts, BPF_NOEXIST);
	return bpf_map_lookup_elem(&counts, key);
}

/* A thread writes to its own counts only, so nothing has to be atomic. */
static __always_inline void count(const struct vcpu_thread *thread, __u64 ns)
{
	struct exit_key key = { .tid = (__u32)bpf_get_current_pid_tgid(),
				.reason = thread->reason };
	struct exit_counts *found = find_counts(&key);

	if (!found) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	found->vcpu = thread->vcpu;
	found->isa = thread->isa;
	add_time(found, ns);
}

SEC("raw_tracepoint/kvm_entry")
int count_entry(void *ctx)
{
	struct vcpu_thread *thread = find_thread((void *)bpf_get_current_task());
	__u64 now = bpf_ktime_get_ns();

	if (!thread)
		return 0;
	if (thread->exited)
		count(thread, now - thread->exited);
	if (thread->access)
		end_access(thread, thread->exited ? now - thread->exited : 0);
	thread->exited = 0;
	move_to(thread, VCPU_GUEST, now);
	return 0;
}

/* KVM_RUN returns: virt/kvm/kvm_main.c. */
SEC("raw_tracepoint/kvm_userspace_exit")
int leave_kvm(struct bpf_raw_tracepoint_args *ctx)
{
	struct vcpu_thread *thread = find_thread((void *)bpf_get_current_task());

	if (!thread)
		return 0;
	thread->halting = (__u32)ctx->args[0] == KVM_EXIT_HLT;
	move_to(thread, VCPU_VMM, bpf_ktime_get_ns());
	return 0;
}
