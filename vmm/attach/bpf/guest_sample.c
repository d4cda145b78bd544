/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * BPF: samples a VMM's vCPUs, which vcpu_lookup.h finds in the kernel. The program runs in an
 * interrupt of the vCPU's thread, so the guest is stopped, its registers are where KVM has just
 * stored them, and the current address space is the VMM's.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "vmm/attach/bpf/kernel_word.h"
/* These use kernel_word(). */
#include "vmm/attach/bpf/guest_mappings.h"
#include "vmm/attach/bpf/guest_sample.h"
#include "vmm/attach/bpf/guest_stack.h"
#include "vmm/attach/bpf/guest_tasks.h"
#include "vmm/attach/bpf/host_stack.h"
#include "vmm/attach/bpf/kernel_types.h"
#include "vmm/attach/bpf/outside_threads.h"
#include "vmm/attach/bpf/ring_maps.h"
#include "vmm/attach/bpf/ring_writer.h"
#include "vmm/attach/bpf/sample_period.h"
#include "vmm/attach/bpf/stack_copies.h"
#include "vmm/attach/bpf/vcpu_lookup.h"

char LICENSE[] SEC("license") = "GPL";

#define VMCB_CODE_64        (1u << 9) /* CS.L: APM vol. 2, 4.8.1 and 15.5.1 */
#define INSTRUCTION_LONGEST 15        /* bytes */

/* Set by the loader. */
const volatile __u32 is_amd; /* vCPUs are of kvm_amd */

/* One event per CPU, which is never read. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1); /* the loader sets more */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} rip_events SEC(".maps");

#define VCPU_OFFSET(field) bpf_core_field_offset(struct kvm_vcpu, field)

/* Reads the tasks, and the call chain or the stacks. */
static __always_inline void read_memory(struct scratch *scratch, struct bpf_whole_sample *whole)
{
	struct bpf_sample *sample = &whole->head;
	struct walk walk = { .scratch = scratch, .sample = whole };
	__u32 user = !(sample->rip >> 63);

	read_tasks(&walk);
	scratch->task = 0;
	if (user && !(sample->flags & BPF_CR3_KNOWN))
		read_cr3_of_task(&walk);
	open_space(&scratch->space, sample->cr3, sample->cr4 & CR4_LA57 ? 5 : 4);
	if (user && scratch->vcpu.callchains && has_user_stack(&walk)) {
		begin_copies(&walk);
		copy_user_stack(&walk, sample->rip, sample->rsp);
		sample->flags |= sample->copied ? 0 : BPF_CHAIN_CUT;
	} else if (user && sample->flags & (BPF_CR3_KNOWN | BPF_CR3_OF_TASK))
		read_addresses(&walk, scratch->vcpu.callchains);
	else if (!user && scratch->vcpu.callchains && sample->flags & BPF_RSP_KNOWN)
		copy_stacks(&walk);
	else if (scratch->vcpu.callchains)
		sample->flags |= BPF_CHAIN_CUT;
}

/* Drops what was read from pages that may have been unmapped. */
VERIFIED_ONCE int discard_memory(struct bpf_whole_sample *whole)
{
	struct bpf_sample *sample = &whole->head;

	if (!whole)
		return 0;
	if (sample->flags & BPF_CR3_OF_TASK)
		sample->cr3 = 0;
	sample->flags &= ~(BPF_TASKS_KNOWN | BPF_CR3_OF_TASK);
	sample->flags |= BPF_CHAIN_CUT;
	sample->copied = 0;
	if (sample->addresses)
		sample->addresses = 1;
	whole->addresses[0].page = BPF_NO_PAGE;
	return 0;
}

static __always_inline void read_checked(struct kvm_vcpu *vcpu, struct scratch *scratch,
					 struct bpf_whole_sample *whole)
{
	open_mappings(scratch, vcpu);
	read_memory(scratch, whole);
	if (!were_mapped(scratch))
		discard_memory(whole);
}

/* As KVM's is_guest_mode(), whose flag has changed its value. */
static __always_inline int is_nested(struct kvm_vcpu *vcpu)
{
	struct vcpu_svm *svm = (void *)vcpu;
	struct vcpu_vmx *vmx = (void *)vcpu;

	if (is_amd && bpf_core_field_exists(struct vcpu_svm, vmcb01))
		return BPF_CORE_READ(svm, vmcb) != BPF_CORE_READ(svm, vmcb01.ptr);
	if (!is_amd && bpf_core_type_exists(struct vcpu_vmx))
		return (__u64)BPF_CORE_READ(vmx, loaded_vmcs) !=
		       (__u64)vmx + bpf_core_field_offset(struct vcpu_vmx, vmcs01);
	return 0;
}

/*
 * kvm_intel leaves RIP in the VMCS until it is requested. Perf requests it for the address of a
 * sample, and KVM caches it (kernel: perf_prepare_sample() -> kvm_guest_get_ip() ->
 * kvm_rip_read()). RSP and CR3 are not requested. KVM has stored all other registers before it
 * handles the interrupt that ended the guest's execution (kernel: __vmx_vcpu_run(), before
 * vmx_handle_exit_irqoff() and, for an NMI, in vmx_vcpu_enter_exit()).
 */
static __always_inline void make_perf_read_rip(struct bpf_perf_event_data *ctx,
					       struct kvm_vcpu *vcpu)
{
	__u32 nothing = 0;

	if (!is_amd &&
	    !((__u32)kernel_word((__u64)vcpu + VCPU_OFFSET(arch.regs_avail)) & 1u << VCPU_REGS_RIP))
		bpf_perf_event_output(ctx, &rip_events, BPF_F_CURRENT_CPU, &nothing,
				      sizeof(nothing));
}

/* Words of struct kvm_vcpu_arch near the registers are read together with them where each read
 * is a call. */
static __always_inline __u64 arch_word(const struct scratch *scratch, struct kvm_vcpu *vcpu,
				       __u64 offset)
{
	__u64 map_number = offset - VCPU_OFFSET(arch.regs);

	if (!can_cast && map_number <= ARCH_SIZE - sizeof(__u64))
		return *(const __u64 *)&scratch->arch[map_number];
	return kernel_word((__u64)vcpu + offset);
}

#define ARCH_WORD(field) arch_word(scratch, vcpu, VCPU_OFFSET(arch.field))
#define ARCH_REGISTER(number)                                                                      \
	arch_word(scratch, vcpu, VCPU_OFFSET(arch.regs) + VCPU_REGS_##number * sizeof(__u64))

static __always_inline void read_other_registers(const struct scratch *scratch,
						 struct kvm_vcpu *vcpu, struct bpf_sample *sample)
{
	sample->rax = ARCH_REGISTER(RAX);
	sample->rcx = ARCH_REGISTER(RCX);
	sample->rdx = ARCH_REGISTER(RDX);
	sample->rbx = ARCH_REGISTER(RBX);
	sample->rsi = ARCH_REGISTER(RSI);
	sample->rdi = ARCH_REGISTER(RDI);
	sample->r8 = ARCH_REGISTER(R8);
	sample->r9 = ARCH_REGISTER(R9);
	sample->r10 = ARCH_REGISTER(R10);
	sample->r11 = ARCH_REGISTER(R11);
	sample->r12 = ARCH_REGISTER(R12);
	sample->r13 = ARCH_REGISTER(R13);
	sample->r14 = ARCH_REGISTER(R14);
	sample->r15 = ARCH_REGISTER(R15);
}

static __always_inline void read_registers(struct scratch *scratch, struct kvm_vcpu *vcpu,
					   struct bpf_sample *sample)
{
	__u32 known;

	if (!can_cast)
		bpf_probe_read_kernel(scratch->arch, sizeof(scratch->arch),
				      (void *)((__u64)vcpu + VCPU_OFFSET(arch.regs)));
	known = ARCH_WORD(regs_avail);
	sample->cr0 = ARCH_WORD(cr0);
	sample->cr4 = ARCH_WORD(cr4);
	sample->efer = ARCH_WORD(efer);
	sample->rip = ARCH_REGISTER(RIP);
	sample->rsp = ARCH_REGISTER(RSP);
	sample->rbp = ARCH_REGISTER(RBP);
	read_other_registers(scratch, vcpu, sample);
	if (known & 1u << VCPU_REGS_RIP)
		sample->flags |= BPF_RIP_KNOWN;
	if (known & 1u << VCPU_REGS_RSP)
		sample->flags |= BPF_RSP_KNOWN;
	if (is_nested(vcpu)) {
		sample->flags |= BPF_NESTED;
		return;
	}
	if (is_amd && bpf_core_type_exists(struct vcpu_svm)) {
		struct vcpu_svm *svm = (void *)vcpu;

		sample->cr3 = BPF_CORE_READ(svm, vmcb, save.cr3);
		sample->cpl = BPF_CORE_READ(svm, vmcb, save.cpl);
		sample->flags |= BPF_CR3_KNOWN | BPF_CPL_KNOWN;
		if (!(BPF_CORE_READ(svm, vmcb, save.cs.attrib) & VMCB_CODE_64))
			sample->flags |= BPF_CODE_32;
	} else if (known & 1u << bpf_core_enum_value(enum kvm_reg, VCPU_EXREG_CR3)) {
		sample->cr3 = ARCH_WORD(cr3);
		sample->flags |= BPF_CR3_KNOWN;
	}
}

/* Identifies the running kernel where CR3 is rarely known: each kernel has KVM write the time
 * into memory of its own. The reader needs it only then. */
static __always_inline void read_clock(struct scratch *scratch, struct kvm_vcpu *vcpu,
				       struct bpf_sample *sample)
{
	sample->clock = 0;
	if (is_amd || !bpf_core_field_exists(struct kvm_vcpu_arch, time))
		return;
	sample->clock = ARCH_WORD(time);
	sample->flags |= BPF_CLOCK_KNOWN;
}

/*
 * As KVM reports to perf (kvm_arch_pmi_in_guest()): an NMI while KVM handles an interrupt that
 * ended the guest's execution is of the host. Clock samples in a softirq of that time are
 * indistinguishable.
 */
static __always_inline int is_in_guest(struct kvm_vcpu *vcpu, int by_nmi)
{
	__u8 handled = kernel_word((__u64)vcpu + VCPU_OFFSET(arch.handling_intr_from_guest));

	if (!handled || !bpf_core_enum_value_exists(enum kvm_intr_type, KVM_HANDLING_NMI))
		return handled;
	return by_nmi == (handled == bpf_core_enum_value(enum kvm_intr_type, KVM_HANDLING_NMI));
}

/* The VMM may have destroyed the vCPU, and its memory may hold anything. The current thread
 * still has its struct pid. */
static __always_inline int is_same(struct kvm_vcpu *vcpu, const struct bpf_vcpu *known)
{
	return (__u32)bpf_get_current_pid_tgid() == known->tid &&
	       kernel_word((__u64)vcpu + VCPU_OFFSET(pid)) == known->pid &&
	       (__u32)kernel_word((__u64)vcpu + VCPU_OFFSET(vcpu_id)) == known->id;
}

/* Hardware counters skip nothing. */
static __always_inline __u64 read_period(struct bpf_perf_event_data *ctx, struct scratch *scratch)
{
	struct bpf_perf_event_value value = {};

	if (scratch->vcpu.by_nmi || bpf_perf_prog_read_value(ctx, &value, sizeof(value)))
		return ctx->sample_period;
	return passed_periods(scratch, value.counter, ctx->sample_period);
}

static __always_inline void clear_sample(struct bpf_sample *sample)
{
	sample->flags = sample->cpl = sample->addresses = sample->copied = 0;
	sample->host_kernel = sample->host_user = 0;
	sample->cr3 = 0;
	sample->generation = 0;
}

/* KVM may have moved RIP past an instruction that it has emulated. If it has moved further, the
 * other registers are not those of the exit. */
static __always_inline void go_back_to_exit(const struct bpf_outside *thread,
					    struct bpf_sample *sample)
{
	__u64 now = sample->rip;

	if (!thread || !thread->exited)
		return;
	sample->rip = thread->rip;
	sample->flags |= BPF_RIP_KNOWN;
	if (now - sample->rip > INSTRUCTION_LONGEST)
		sample->flags |= BPF_CHAIN_CUT;
}

/* Of a sample of the clock. */
static __always_inline void note_reason(const struct bpf_outside *thread, struct bpf_sample *sample)
{
	if (!thread || !thread->exited)
		return;
	sample->isa = thread->isa;
	sample->reason = thread->reason;
	sample->flags |= BPF_REASON_KNOWN;
}

static __always_inline void read_guest(struct bpf_perf_event_data *ctx, struct scratch *scratch,
				       struct bpf_whole_sample *whole, int inside)
{
	struct kvm_vcpu *vcpu = (void *)scratch->vcpu.vcpu;
	struct bpf_outside *thread = inside ? 0 : find_outside(scratch->vcpu.tid);
	struct bpf_sample *sample = &whole->head;

	sample->flags = BPF_IN_GUEST;
	if (inside)
		make_perf_read_rip(ctx, vcpu);
	read_registers(scratch, vcpu, sample);
	read_clock(scratch, vcpu, sample);
	go_back_to_exit(thread, sample);
	note_reason(thread, sample);
	if (sample->flags & BPF_RIP_KNOWN && !(sample->flags & (BPF_NESTED | BPF_CHAIN_CUT)))
		read_checked(vcpu, scratch, whole);
	else if (scratch->vcpu.callchains)
		sample->flags |= BPF_CHAIN_CUT;
}

/* An NMI can come while KVM stores the guest's registers. */
static __always_inline void fill_sample(struct bpf_perf_event_data *ctx, struct scratch *scratch,
					struct bpf_whole_sample *whole, __u64 period)
{
	const struct bpf_vcpu *known = &scratch->vcpu;
	struct kvm_vcpu *vcpu = (void *)known->vcpu;
	struct bpf_sample *sample = &whole->head;
	int same = is_same(vcpu, known), inside = same && is_in_guest(vcpu, !!known->by_nmi);

	sample->time = bpf_ktime_get_ns();
	sample->period = period;
	sample->event = BPF_EVENT_CLOCK;
	sample->tid = known->inner_tid;
	clear_sample(sample);
	scratch->wakes = 0;
	if (inside || (same && known->host_stacks && !known->by_nmi))
		read_guest(ctx, scratch, whole, inside);
	if (!inside && !(sample->flags & BPF_RIP_KNOWN)) {
		sample->flags = 0;
		sample->rip = ctx->regs.rip;
		sample->cpl = ctx->regs.cs & 3;
	}
	if (!inside && known->host_stacks)
		read_host_stack(ctx, whole);
	sample->size = size_of(sample);
	sample->cost = bpf_ktime_get_ns() - sample->time;
}

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u32 map_number = cookie >> 32, first = (__u32)cookie;
	void *map = bpf_map_lookup_elem(&vcpus, &map_number);
	struct scratch *scratch = map ? bpf_map_lookup_elem(map, &first) : 0;
	struct bpf_whole_sample *sample;
	__u64 ahead, period;

	if (!scratch || !scratch->vcpu.vcpu)
		return 0;
	period = read_period(ctx, scratch); /* also of a lost sample */
	sample = scratch->vcpu.writing ? 0 : reserve(map, first, &scratch->vcpu, &ahead);
	if (!sample) {
		scratch->vcpu.lost++;
		return 0;
	}
	fill_sample(ctx, scratch, sample, period);
	commit(&scratch->vcpu, ahead + sample->head.size, scratch->wakes);
	return 0;
}

/* Uses the functions above. */
#include "vmm/attach/bpf/outside_sample.h"

/* Run by the loader only: the current process is the loader. */
SEC("syscall")
int try_direct_map(struct direct_map_trial *trial)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 page;

	trial->pgd = (__u64)task->mm->pgd;
	trial->found = 0;
	direct_map = trial->map;
	/* Read back as volatile: the verifier treats the stored value as a pointer. */
	page = host_page(*(const volatile __u64 *)&trial->pgd, trial->hva);
	if (!page)
		return 0;
	for (__u32 i = 0; i < DIRECT_MAP_WORDS; i++)
		if (kernel_word(page + i * sizeof(__u64)) != trial->words[i])
			return 0;
	trial->found = 1;
	return 0;
}
