/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * BPF: samples of the time that vCPUs spend outside of the guest, by exit and by reason to leave
 * the CPU. The time of each event, one thread's alone, has a sample point every PERIOD ns. What
 * contains sample points is recorded when the guest is entered again: its duration is known then,
 * the guest has not run since, and the current address space is the VMM's.
 *
 * KVM's tracepoints and the scheduler's are called with interrupts disabled: only an NMI can come
 * between.
 */
#ifndef KVMSCOPE_ATTACH_BPF_OUTSIDE_SAMPLE_H
#define KVMSCOPE_ATTACH_BPF_OUTSIDE_SAMPLE_H

#define ISA_VMX         1  /* arch/x86/kvm/trace.h */
#define EXIT_REASON_HLT 12 /* arch/x86/include/uapi/asm/vmx.h */
#define SVM_EXIT_HLT    0x78

/* Set by the loader: where the tracepoint kvm_exit has what. */
const volatile __u32 reason_offset, isa_offset, rip_offset;

static __always_inline __u64 read_field(const void *ctx, __u32 offset, __u32 size)
{
	__u64 value = 0;

	bpf_probe_read_kernel(&value, size, ctx + offset);
	return value;
}

/* As count_exit() in exit_program.c: 0 would hide the exit from others. */
SEC("tracepoint/kvm/kvm_exit")
int begin_exit(void *ctx)
{
	struct bpf_outside *thread = find_outside((__u32)bpf_get_current_pid_tgid());

	if (!thread)
		return 1;
	thread->reason = (__u32)read_field(ctx, reason_offset, sizeof(__u32));
	thread->isa = (__u32)read_field(ctx, isa_offset, sizeof(__u32));
	thread->rip = read_field(ctx, rip_offset, sizeof(__u64));
	thread->exited = bpf_ktime_get_ns();
	return 1;
}

/* Adds NS to the time of EVENT. Returns the sample points in it, times the period. */
static __always_inline __u64 add_outside(struct bpf_outside *thread, enum bpf_event event, __u64 ns)
{
	__u64 all = thread->rest[event] + ns, points;

	if (!(thread->wanted & 1u << event) || !thread->period)
		return 0;
	points = all - all % thread->period;
	thread->rest[event] = all - points;
	return points;
}

static __always_inline void read_outside_guest(const struct bpf_outside *thread,
					       struct scratch *scratch,
					       struct bpf_whole_sample *whole)
{
	struct kvm_vcpu *vcpu = (void *)scratch->vcpu.vcpu;
	struct bpf_sample *sample = &whole->head;

	sample->flags = BPF_IN_GUEST;
	read_registers(scratch, vcpu, sample);
	read_clock(scratch, vcpu, sample);
	go_back_to_exit(thread, sample);
	if (sample->flags & BPF_RIP_KNOWN && !(sample->flags & (BPF_NESTED | BPF_CHAIN_CUT)))
		read_checked(vcpu, scratch, whole);
	else
		sample->flags |= BPF_CHAIN_CUT;
}

static __always_inline void fill_outside(struct bpf_outside *thread, struct scratch *scratch,
					 struct bpf_whole_sample *whole, __u64 period)
{
	struct bpf_sample *sample = &whole->head;

	sample->time = bpf_ktime_get_ns();
	sample->period = period;
	sample->tid = scratch->vcpu.inner_tid;
	clear_sample(sample);
	scratch->wakes = 0;
	read_outside_guest(thread, scratch, whole);
	sample->size = size_of(sample);
	sample->cost = bpf_ktime_get_ns() - sample->time;
}

/* Records a sample of PERIOD ns. */
VERIFIED_ONCE int record_outside(struct bpf_outside *thread, __u32 event, __u64 reason,
				 __u64 period)
{
	__u32 map_number, first;
	struct scratch *scratch;
	struct bpf_whole_sample *sample;
	__u64 ahead;
	void *map;

	if (!thread)
		return 0;
	map_number = thread->place >> 32;
	first = (__u32)thread->place;
	map = bpf_map_lookup_elem(&vcpus, &map_number);
	scratch = map ? bpf_map_lookup_elem(map, &first) : 0;
	if (!scratch || !scratch->vcpu.vcpu || !is_same((void *)scratch->vcpu.vcpu, &scratch->vcpu))
		return 0;
	*(volatile __u32 *)&scratch->vcpu.writing = 1;
	sample = reserve(map, first, &scratch->vcpu, &ahead);
	if (sample) {
		sample->head.event = event;
		sample->head.isa = thread->isa;
		sample->head.reason = reason;
		fill_outside(thread, scratch, sample, period);
		commit(&scratch->vcpu, ahead + sample->head.size, scratch->wakes);
	} else {
		scratch->vcpu.lost++;
	}
	*(volatile __u32 *)&scratch->vcpu.writing = 0;
	return 0;
}

SEC("raw_tracepoint/kvm_entry")
int end_exit(void *ctx)
{
	struct bpf_outside *thread = find_outside((__u32)bpf_get_current_pid_tgid());
	__u64 period = 0;

	if (!thread)
		return 0;
	if (thread->exited)
		period = add_outside(thread, BPF_EVENT_EXIT, bpf_ktime_get_ns() - thread->exited);
	if (period)
		record_outside(thread, BPF_EVENT_EXIT, thread->reason, period);
	for (__u32 why = 0; why < BPF_OFF_CPU_REASONS; why++) {
		if (!thread->due[why])
			continue;
		record_outside(thread, BPF_EVENT_OFF_CPU, why, thread->due[why]);
		thread->due[why] = 0;
	}
	thread->exited = 0;
	return 0;
}

static __always_inline long state_of_task(struct task_struct *task)
{
	struct task_struct___before_5_14 *older = (void *)task;

	return bpf_core_field_exists(struct task_struct, __state) ? BPF_CORE_READ(task, __state)
								  : BPF_CORE_READ(older, state);
}

/* A vCPU sleeps because the guest has halted it, or while KVM or the VMM waits for something. */
static __always_inline __u64 reason_to_leave(const struct bpf_outside *thread, int preempted,
					     struct task_struct *task)
{
	if (preempted || !state_of_task(task))
		return BPF_PREEMPTED;
	return thread->exited && thread->reason ==
					 (thread->isa == ISA_VMX ? EXIT_REASON_HLT : SVM_EXIT_HLT)
		       ? BPF_HALTED
		       : BPF_BLOCKED;
}

/* PREV leaves the CPU to NEXT: kernel/sched/core.c, __schedule(). */
SEC("raw_tracepoint/sched_switch")
int switch_vcpus(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *prev = (void *)ctx->args[1], *next = (void *)ctx->args[2];
	struct bpf_outside *left = find_outside(BPF_CORE_READ(prev, pid)),
			   *entered = find_outside(BPF_CORE_READ(next, pid));
	__u64 now = bpf_ktime_get_ns();

	if (left) {
		left->why = reason_to_leave(left, (int)ctx->args[0], prev);
		left->left = now;
	}
	if (entered && entered->left) {
		entered->due[entered->why & (BPF_OFF_CPU_ROOM - 1)] +=
			add_outside(entered, BPF_EVENT_OFF_CPU, now - entered->left);
		entered->left = 0;
	}
	return 0;
}

#endif
