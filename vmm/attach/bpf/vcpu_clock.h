/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * BPF: the state of each vCPU thread of a process, and how long it was in each one. A thread is
 * found by the first event that shows it in KVM_RUN, or by the iterator, whose caller knows the
 * threads. KVM's types may be in a module, whose BTF libbpf may not read without CAP_SYS_ADMIN: the
 * loader sets the offsets.
 *
 * A thread's events do not overlap: it causes them itself, or the scheduler does, with the lock of
 * a run queue, while it does not run.
 */
#ifndef KVMSCOPE_ATTACH_BPF_VCPU_CLOCK_H
#define KVMSCOPE_ATTACH_BPF_VCPU_CLOCK_H

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "vmm/attach/bpf/exit_program.h"
#include "vmm/attach/bpf/kernel_types.h"

#define LEVELS_MAX            32   /* kernel: MAX_PID_NS_LEVEL */
#define TASK_DEAD             0x80 /* kernel: include/linux/sched.h */
#define KVM_EXIT_HLT          5    /* linux/kvm.h */
#define KVM_MP_STATE_RUNNABLE 0

/* Set by the loader: the process in its own PID namespace, and fields of struct kvm_vcpu. */
const volatile __u32 pid_wanted, namespace_wanted;
const volatile __u32 notifier_offset, mp_state_offset, vcpu_id_offset, pid_offset;
/* The host's KVM reports entries and exits. */
const volatile __u32 sees_entries;

/* The vCPU threads of the process. They stay after their end, for their times. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct vcpu_thread);
} vcpus SEC(".maps");

/* vCPU threads of other processes. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u8);
} others SEC(".maps");

/* Set by the loader: the vCPUs of threads, by their number in the process's namespace. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} known_threads SEC(".maps");

/* The number of PID in the namespace of the process; 0: it has none. */
static __always_inline __u32 number_of(struct pid *pid)
{
	__u64 numbers = (__u64)pid + bpf_core_field_offset(struct pid, numbers);
	__u32 levels = BPF_CORE_READ(pid, level);

	for (__u32 level = 0; level < LEVELS_MAX && level <= levels; level++) {
		struct upid *number = (void *)(numbers + level * bpf_core_type_size(struct upid));

		if (BPF_CORE_READ(number, ns, ns.inum) == namespace_wanted)
			return BPF_CORE_READ(number, nr);
	}
	return 0;
}

static __always_inline int is_of_process(struct task_struct *task)
{
	return number_of(BPF_CORE_READ(task, group_leader, thread_pid)) == pid_wanted;
}

/* The struct kvm_vcpu that TASK has loaded (kernel: vcpu_load()), as in KVM_RUN and other ioctls;
 * 0: none. */
static __always_inline __u64 loaded_vcpu(struct task_struct *task)
{
	__u64 node = (__u64)BPF_CORE_READ(task, preempt_notifiers.first);

	return node ? node - bpf_core_field_offset(struct preempt_notifier, link) - notifier_offset
		    : 0;
}

static __always_inline __u32 vcpu_field(__u64 vcpu, __u32 offset)
{
	__u32 value = 0;

	if (vcpu)
		bpf_probe_read_kernel(&value, sizeof(value), (void *)(vcpu + offset));
	return value;
}

/* Only KVM_RUN makes the vCPU this thread's, before it loads it (virt/kvm/kvm_main.c,
 * kvm_vcpu_ioctl()). */
static __always_inline int runs_vcpu(struct task_struct *task)
{
	__u64 vcpu = loaded_vcpu(task), owner = 0;

	if (vcpu)
		bpf_probe_read_kernel(&owner, sizeof(owner), (void *)(vcpu + pid_offset));
	return owner && owner == (__u64)BPF_CORE_READ(task, thread_pid);
}

static __always_inline void begin(struct vcpu_thread *thread, __u32 state, __u64 now)
{
	__u32 last = thread->state;

	(*(volatile __u32 *)&thread->sequence)++;
	if (last < VCPU_STATES)
		thread->ns[last % VCPU_STATES] += now - thread->since;
	thread->since = now;
	*(volatile __u32 *)&thread->state = state;
	(*(volatile __u32 *)&thread->sequence)++;
}

/* The thread runs, at PLACE. */
static __always_inline void move_to(struct vcpu_thread *thread, __u32 place, __u64 now)
{
	thread->place = place;
	begin(thread, place, now);
}

static __always_inline struct vcpu_thread *add_thread(struct task_struct *task, __u32 tid)
{
	struct vcpu_thread made = { .place = VCPU_RUNNING, .state = VCPU_RUNNING };

	made.since = bpf_ktime_get_ns();
	made.vcpu = vcpu_field(loaded_vcpu(task), vcpu_id_offset);
	bpf_map_update_elem(&vcpus, &tid, &made, BPF_NOEXIST);
	return bpf_map_lookup_elem(&vcpus, &tid);
}

/* TASK has loaded a vCPU. 0: it is not of the process. */
static __always_inline struct vcpu_thread *find_thread(struct task_struct *task)
{
	__u32 tid = BPF_CORE_READ(task, pid);
	struct vcpu_thread *known = bpf_map_lookup_elem(&vcpus, &tid);
	__u8 other = 1;

	if (known && known->state < VCPU_STATES)
		return known;
	if (bpf_map_lookup_elem(&others, &tid))
		return 0;
	if (!is_of_process(task)) {
		bpf_map_update_elem(&others, &tid, &other, BPF_ANY);
		return 0;
	}
	if (!known)
		return add_thread(task, tid);
	move_to(known, VCPU_RUNNING, bpf_ktime_get_ns()); /* the number is used again */
	return known;
}

static __always_inline long state_of(struct task_struct *task)
{
	struct task_struct___before_5_14 *older = (void *)task;

	return bpf_core_field_exists(struct task_struct, __state) ? BPF_CORE_READ(task, __state)
								  : BPF_CORE_READ(older, state);
}

/* Why TASK sleeps. mp_state is not changed by waits for memory, locks and the like. */
static __always_inline __u32 reason_to_sleep(const struct vcpu_thread *thread,
					     struct task_struct *task)
{
	__u64 vcpu = loaded_vcpu(task);

	if (vcpu)
		return vcpu_field(vcpu, mp_state_offset) != KVM_MP_STATE_RUNNABLE ? VCPU_HALTED
										  : VCPU_BLOCKED;
	return thread->halting ? VCPU_HALTED : VCPU_BLOCKED;
}

/* PREV leaves the CPU to NEXT: kernel/sched/core.c, __schedule(). */
SEC("raw_tracepoint/sched_switch")
int switch_threads(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *prev = (void *)ctx->args[1], *next = (void *)ctx->args[2];
	__u32 from = BPF_CORE_READ(prev, pid), to = BPF_CORE_READ(next, pid);
	struct vcpu_thread *left = bpf_map_lookup_elem(&vcpus, &from),
			   *entered = bpf_map_lookup_elem(&vcpus, &to);
	__u64 now = bpf_ktime_get_ns();
	long state;

	if (!left && runs_vcpu(prev))
		left = find_thread(prev);
	if (left && left->state < VCPU_STATES) {
		state = ctx->args[0] /* preempted */ ? 0 : state_of(prev);
		if (state & TASK_DEAD)
			begin(left, VCPU_STATES, now);
		else
			begin(left, state ? reason_to_sleep(left, prev) : VCPU_WAITING, now);
	}
	if (entered && entered->state < VCPU_STATES)
		begin(entered, entered->place, now);
	return 0;
}

SEC("raw_tracepoint/sched_wakeup")
int wake_thread(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];
	__u32 tid = BPF_CORE_READ(task, pid);
	struct vcpu_thread *thread = bpf_map_lookup_elem(&vcpus, &tid);

	/* Others are on a CPU, and have not gone to sleep yet. */
	if (thread && (thread->state == VCPU_HALTED || thread->state == VCPU_BLOCKED))
		begin(thread, VCPU_WAITING, bpf_ktime_get_ns());
	return 0;
}

/* The state of a thread that has caused no event yet. */
static __always_inline void guess_state(struct vcpu_thread *thread, struct task_struct *task)
{
	__u32 on_cpu = BPF_CORE_READ(task, on_cpu);

	if (sees_entries && loaded_vcpu(task))
		thread->place = on_cpu ? VCPU_GUEST : VCPU_KVM;
	else if (sees_entries)
		thread->place = VCPU_VMM;
	if (on_cpu)
		thread->state = thread->place;
	else
		thread->state = state_of(task) ? reason_to_sleep(thread, task) : VCPU_WAITING;
}

/* Adds the known threads, which may cause no event for long. */
SEC("iter/task")
int find_vcpus(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct vcpu_thread *found;
	__u32 tid, own, *vcpu;

	if (!task || !is_of_process(task))
		return 0;
	tid = BPF_CORE_READ(task, pid);
	own = number_of(BPF_CORE_READ(task, thread_pid));
	vcpu = bpf_map_lookup_elem(&known_threads, &own);
	if (!vcpu || bpf_map_lookup_elem(&vcpus, &tid))
		return 0;
	found = add_thread(task, tid);
	if (!found)
		return 0;
	found->vcpu = *vcpu;
	guess_state(found, task);
	return 0;
}

#endif
