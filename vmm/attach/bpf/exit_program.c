/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * BPF: counts the exits of the vCPUs of one process by reason, and the time from each exit to the
 * next entry of that thread, at KVM's tracepoints kvm_exit and kvm_entry.
 */
#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "vmm/attach/bpf/exit_program.h"
#include "vmm/attach/bpf/kernel_types.h"

char LICENSE[] SEC("license") = "GPL";

#define LEVELS_MAX 32 /* kernel: MAX_PID_NS_LEVEL */

/* Set by the loader: the process in its own PID namespace, and where the tracepoint has what. */
const volatile __u32 pid_wanted, namespace_wanted;
const volatile __u32 reason_offset, isa_offset, vcpu_offset;

/* A thread that KVM's tracepoints came from. */
struct thread {
	__u64 exited; /* ns of CLOCK_MONOTONIC; 0: it is in the guest, or its exit was not seen */
	__u32 reason, vcpu, isa;
	__u32 counted; /* it is one of the process */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

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

static __always_inline int is_of_process(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct pid *pid = BPF_CORE_READ(task, group_leader, thread_pid);
	__u64 numbers = (__u64)pid + bpf_core_field_offset(struct pid, numbers);
	__u32 levels = BPF_CORE_READ(pid, level);

	for (__u32 level = 0; level < LEVELS_MAX && level <= levels; level++) {
		struct upid *number = (void *)(numbers + level * bpf_core_type_size(struct upid));

		if (BPF_CORE_READ(number, ns, ns.inum) == namespace_wanted)
			return BPF_CORE_READ(number, nr) == (int)pid_wanted;
	}
	return 0;
}

static __always_inline struct thread *find_thread(__u32 tid)
{
	struct thread *known = bpf_map_lookup_elem(&threads, &tid), made = {};

	if (known)
		return known;
	made.counted = is_of_process();
	bpf_map_update_elem(&threads, &tid, &made, BPF_NOEXIST);
	return bpf_map_lookup_elem(&threads, &tid);
}

static __always_inline __u32 read_field(const void *ctx, __u32 offset)
{
	__u32 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), ctx + offset);
	return value;
}

/*
 * Returns 1: 0 would hide the exit from perf events of others on the tracepoint (kernel:
 * perf_trace_run_bpf_submit()).
 */
SEC("tracepoint/kvm/kvm_exit")
int count_exit(void *ctx)
{
	struct thread *thread = find_thread((__u32)bpf_get_current_pid_tgid());

	if (!thread || !thread->counted)
		return 1;
	thread->reason = read_field(ctx, reason_offset);
	thread->vcpu = read_field(ctx, vcpu_offset);
	thread->isa = read_field(ctx, isa_offset);
	thread->exited = bpf_ktime_get_ns();
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
SEC("raw_tracepoint/kvm_entry")
int count_entry(void *ctx)
{
	struct exit_key key = { .tid = (__u32)bpf_get_current_pid_tgid() };
	struct thread *thread = bpf_map_lookup_elem(&threads, &key.tid);
	struct exit_counts *found;
	__u64 ns;

	if (!thread || !thread->exited)
		return 0;
	ns = bpf_ktime_get_ns() - thread->exited;
	thread->exited = 0;
	key.reason = thread->reason;
	found = find_counts(&key);
	if (!found) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	found->vcpu = thread->vcpu;
	found->isa = thread->isa;
	add_time(found, ns);
	return 0;
}
