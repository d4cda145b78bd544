/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A BPF program on a perf event of each vCPU thread (bpf/guest_sample.c) reads the guest's
 * registers from KVM's memory, and the call chain from guest memory, in the interrupt of the event.
 * Samples come through one ring per vCPU; one bell per VM wakes a reader whose rings are all empty.
 */
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/backend.h"
#include "vmm/attach/bpf_skeletons.h"
#include "vmm/attach/bpf_source.h"
#include "vmm/attach/kvm_tracepoint.h"

#define CLOCK_TRIES  5
#define KERNEL_STACK 1024 /* bytes; more than most samples have */
/* Number of samples with USER bytes of user stacks that fit into a chunk at least. */
#define SAMPLES_OF_CHUNK(user)                                                                     \
	((BPF_CHUNK - sizeof(struct bpf_whole_sample)) /                                           \
		 (sizeof(struct bpf_sample) + KERNEL_STACK + (user)) +                             \
	 1)
#define CHUNKS_LEAST 2  /* per vCPU */
#define CHUNKS_MOST  32 /* per VM, as far as each vCPU has CHUNKS_LEAST */

/* BPF cannot read CLOCK_MONOTONIC_RAW; the clocks drift by at most 500 ppm. */
static void compare_clocks(struct attach_source *source)
{
	uint64_t shortest = UINT64_MAX;

	/* A preempted try is inexact: the shortest one counts. */
	for (int i = 0; i < CLOCK_TRIES; i++) {
		uint64_t before = clock_ns(CLOCK_MONOTONIC), raw = clock_ns(CLOCK_MONOTONIC_RAW);
		uint64_t took = clock_ns(CLOCK_MONOTONIC) - before;

		if (took >= shortest)
			continue;
		shortest = took;
		source->raw_offset = raw - (before + took / 2);
	}
}

/* A ring holds the samples of 0.4 s, each with a stack, unless the limit of the VM is exceeded: a
 * daemon has rings for many VMs. */
static uint32_t ring_chunks(const struct attach_target *target)
{
	uint64_t vcpus = target->process->vcpu_count ? target->process->vcpu_count : 1,
		 chunks = CHUNKS_LEAST,
		 rate = target->frequency *
			(1ull + (unsigned int)__builtin_popcount(target->outside));

	while (chunks * 2 * vcpus <= CHUNKS_MOST &&
	       chunks * SAMPLES_OF_CHUNK(BPF_USER_STACK_FIRST) * 5 < rate * 2)
		chunks *= 2;
	return (uint32_t)chunks;
}

/* For a hot-plugged vCPU: what the others leave of CHUNKS_MOST, but at least CHUNKS_LEAST. */
static uint32_t chunks_of_next(const struct attach_source *source)
{
	uint32_t chunks = source->chunks, used = 0;

	for (const struct bpf_thread *thread = source->threads; thread; thread = thread->next)
		used += thread->memory.chunks;
	while (chunks > CHUNKS_LEAST && used + chunks > CHUNKS_MOST)
		chunks /= 2;
	return chunks;
}

/* All rings are drained together, so the smallest one counts for each. */
static size_t room(const struct attach_source *source)
{
	size_t least = source->chunks, count = 0;

	for (const struct bpf_thread *thread = source->threads; thread;
	     thread = thread->next, count++)
		least = thread->memory.chunks < least ? thread->memory.chunks : least;
	return least * SAMPLES_OF_CHUNK(source->user_stack) * count;
}

static void drain_all(struct attach_source *source)
{
	for (struct bpf_thread *thread = source->threads; thread; thread = thread->next)
		bpf_source_drain(source, thread);
}

/* The bell carries no data. */
static int ignore_bell(void *context, void *data, size_t size)
{
	return 0;
}

static int events_of(const struct attach_source *source)
{
	return ring_buffer__epoll_fd(source->bell);
}

/* Drains again after requesting the bell: samples that come before that do not ring it. */
static void drain(struct attach_source *source)
{
	uint64_t emitted = source->emitted;

	compare_clocks(source);
	ring_buffer__consume(source->bell);
	drain_all(source);
	if (source->emitted != emitted)
		return;
	for (struct bpf_thread *thread = source->threads; thread; thread = thread->next)
		bpf_ring_wait(&thread->memory.ring);
	drain_all(source);
}

/* The VM's descriptor if the process has several VMs; 0: its only VM, whatever the descriptor. */
static int vm_of(const struct vmm_process *process)
{
	return process->vms > 1 ? process->vm_fd : 0;
}

static int iterate_vcpus(const struct vmm_process *process,
			 void (*each)(void *context, const struct bpf_found *found), void *context)
{
	return bpf_programs_iterate(process->pid_fd, vm_of(process), BPF_NO_SLOTS, each, context);
}

static int find_slots(struct attach_source *source, struct vmm_slot *slots)
{
	const struct vmm_process *process = source->target->process;
	struct bpf_slots largest;
	int count = bpf_slots_find(process->pid_fd, vm_of(process), slots, &largest);

	if (count < 0 || !memcmp(&largest, &source->slots, sizeof(largest)))
		return count;
	source->slots = largest;
	for (struct bpf_thread *thread = source->threads; thread; thread = thread->next)
		bpf_slots_publish(&thread->memory.ring.vcpu->slots, &largest);
	return count;
}

/* vCPUs */

/* Publishes to the program which vCPU the thread runs. While that changes it is 0: none. */
static void publish_vcpu(const struct attach_source *source, struct bpf_thread *thread,
			 const struct bpf_found *found)
{
	struct bpf_vcpu *shared = thread->memory.ring.vcpu;

	__atomic_store_n(&shared->vcpu, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	shared->pid = found->pid;
	shared->id = thread->vcpu.id;
	shared->tid = found->tid;
	shared->inner_tid = (__u32)thread->vcpu.tid;
	shared->callchains = source->target->callchains;
	shared->host_stacks = source->target->host_stacks;
	shared->by_nmi = source->choice.event == ATTACH_CYCLES;
	__atomic_store_n(&shared->vcpu, found->vcpu, __ATOMIC_RELEASE);
}

/* A VMM may create its VM anew, with the same threads and vCPU ids. */
static void follow_vcpu(struct attach_source *source, const struct bpf_found *found)
{
	for (struct bpf_thread *thread = source->threads; thread; thread = thread->next) {
		const struct bpf_vcpu *shared = thread->memory.ring.vcpu;

		if (shared->id != found->id || shared->tid != found->tid ||
		    shared->vcpu == found->vcpu)
			continue;
		log_debug("vCPU %u was recreated", found->id);
		publish_vcpu(source, thread, found);
	}
}

struct thread_list {
	struct attach_source *source;
	struct vmm_process *process;
};

/* Only one of the thread's two TIDs exists in our /proc. */
static void update_thread(void *context, const struct bpf_found *found)
{
	const struct thread_list *list = context;

	if (found->type != BPF_FOUND_VCPU)
		return;
	if (!found->tid) {
		if (found->pid)
			vmm_process_drop_vcpu(list->process, found->id);
		return;
	}
	if (!vmm_process_set_thread(list->process, found->id, (pid_t)found->tid))
		vmm_process_set_thread(list->process, found->id, (pid_t)found->inner_tid);
	follow_vcpu(list->source, found);
}

static void find_threads(struct attach_source *source, struct vmm_process *process)
{
	struct thread_list list = { .source = source, .process = process };

	if (iterate_vcpus(process, update_thread, &list))
		log_debug("%s", error_message());
}

struct vcpu_search {
	const struct vmm_vcpu *wanted;
	struct bpf_found found;
};

static void match_vcpu(void *context, const struct bpf_found *found)
{
	struct vcpu_search *search = context;

	if (found->type == BPF_FOUND_VCPU && found->id == search->wanted->id)
		search->found = *found;
}

static int find_vcpu(const struct attach_source *source, const struct vmm_vcpu *vcpu,
		     struct bpf_found *found)
{
	struct vcpu_search search = { .wanted = vcpu };
	int error = iterate_vcpus(source->target->process, match_vcpu, &search);

	if (error)
		return error;
	/* A vCPU that last ran on another thread is not known to run on this one yet. */
	if (!search.found.vcpu || !search.found.tid ||
	    (source->target->own && search.found.inner_tid != (__u32)vcpu->tid))
		return error_set(-ESRCH, "vCPU %u no longer exists", vcpu->id);
	*found = search.found;
	return 0;
}

/* Tasks */

/* Drains samples of the previous layout first. Samples that start before the generation changes and
 * come after the drain have the old generation: the reader ignores their tasks. */
static void set_cpu(struct attach_source *source, unsigned int id, const struct attach_cpu *cpu)
{
	struct bpf_thread *thread = source->threads;
	struct bpf_cpu *shared;

	while (thread && thread->vcpu.id != id)
		thread = thread->next;
	if (!thread)
		return;
	drain_all(source);
	thread->layout = cpu->layout;
	thread->has_changes = cpu->vmas.has_changes;
	thread->generation = thread->generation + 1 ? thread->generation + 1 : 1;
	shared = &thread->memory.ring.vcpu->cpu;
	__atomic_store_n(&shared->generation, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	shared->cr3 = cpu->paging.cr3;
	shared->levels = cpu->paging.cr4 & CR4_LA57 ? 5 : 4;
	shared->tasks[0] = cpu->offset + cpu->layout.current;
	shared->tasks[1] = cpu->layout.scheduled ? cpu->offset + cpu->layout.scheduled : 0;
	shared->irq_top = cpu->irq_top;
	shared->stack_size = cpu->layout.stack_size;
	shared->copies = cpu->vmas.known && cpu->vmas.has_changes;
	bpf_task_words_set(shared, &cpu->layout, &cpu->vmas);
	__atomic_store_n(&shared->generation, thread->generation, __ATOMIC_RELEASE);
}

static void publish_process(struct bpf_process *shared, const struct user_stack *process)
{
	__atomic_store_n(&shared->mm_size, process->mm << 16 | process->size, __ATOMIC_RELAXED);
	__atomic_store_n(&shared->number, process->number, __ATOMIC_RELAXED);
	__atomic_store_n(&shared->changes, process->changes, __ATOMIC_RELAXED);
	for (unsigned int i = 0; i < BPF_PROCESS_PAGES; i++)
		__atomic_store_n(&shared->pages[i], process->pages[i], __ATOMIC_RELAXED);
}

/* A process needs the largest copies for a short time only, in which the ring must hold its
 * samples. */
static void set_process(struct attach_source *source, const struct user_stack *process)
{
	if (process->size > source->user_stack)
		source->user_stack = process->size;
	for (struct bpf_thread *thread = source->threads; thread; thread = thread->next)
		publish_process(
			&thread->memory.ring.vcpu->processes[BPF_PROCESS_INDEX(process->mm)],
			process);
}

static int sample_outside_of(const struct attach_source *source, struct bpf_thread *thread)
{
	thread->outside = thread->memory.ring.vcpu->tid;
	return bpf_outside_add(source->vm, &thread->memory, thread->outside,
			       NS_PER_S / source->frequency, source->target->outside << 1);
}

/* The event is opened anew: after PERF_EVENT_IOC_PERIOD samples would have the old period (kernel:
 * perf_event_period() and last_period). */
static void detach_event(const struct attach_source *source, struct bpf_thread *thread)
{
	if (thread->outside)
		bpf_outside_remove(source->vm, thread->outside);
	thread->outside = 0;
	bpf_link__destroy(thread->link); /* closes the event, too */
	thread->link = NULL;
}

static int sample_thread(struct attach_source *source, struct bpf_thread *thread)
{
	int error;

	thread->event_fd = perf_event_open_thread(&source->choice.attribute, thread->vcpu.tid);
	if (thread->event_fd < 0)
		return perf_event_explain(thread->event_fd, source->target->process->pid);
	error = bpf_vcpu_sample(source->vm, &thread->memory, thread->event_fd, &thread->link);
	if (error)
		close(thread->event_fd);
	if (!error && source->outside)
		error = sample_outside_of(source, thread);
	return error;
}

/* Without any vCPU, e.g. after a reset, all are expected again. */
static void free_thread(struct attach_source *source, struct bpf_thread *thread)
{
	detach_event(source, thread);
	bpf_vcpu_close(source->vm, &thread->memory);
	free(thread);
	if (!source->threads)
		bpf_vm_reserve(source->vm, source->expected);
}

/* The reader may be waiting for the bell already: this ring has to ring it, too. */
static int start_vcpu(struct attach_source *source, struct bpf_thread *thread,
		      const struct bpf_found *found)
{
	publish_vcpu(source, thread, found);
	bpf_slots_publish(&thread->memory.ring.vcpu->slots, &source->slots);
	bpf_ring_wait(&thread->memory.ring);
	return source->paused ? 0 : sample_thread(source, thread);
}

/* The vCPUs of a guest that has not arrived yet are tried repeatedly: a ring is allocated only
 * after a vCPU has run. */
static int add_vcpu(struct attach_source *source, const struct vmm_vcpu *vcpu)
{
	struct bpf_thread *thread;
	struct bpf_found found = { 0 };
	int error = find_vcpu(source, vcpu, &found);

	if (error)
		return error;
	thread = calloc(1, sizeof(*thread));
	if (!thread)
		return error_set(-ENOMEM, "no memory for a perf event");
	thread->vcpu = *vcpu;
	error = bpf_vcpu_open(source->vm, &thread->memory, chunks_of_next(source));
	if (error) {
		free(thread);
		return error;
	}
	error = start_vcpu(source, thread, &found);
	if (error) {
		free_thread(source, thread);
		return error;
	}
	thread->next = source->threads;
	source->threads = thread;
	return 0;
}

static void remove_vcpu(struct attach_source *source, unsigned int id)
{
	struct bpf_thread **link = &source->threads;

	while (*link && (*link)->vcpu.id != id)
		link = &(*link)->next;
	if (*link) {
		struct bpf_thread *removed = *link;

		/* The detached program writes nothing more. */
		detach_event(source, removed);
		bpf_source_drain(source, removed);
		*link = removed->next;
		free_thread(source, removed);
	}
}

/* Moves to another ring while no program runs; what was published to the program is kept. */
static int move_ring(struct attach_source *source, struct bpf_thread *thread, uint32_t chunks)
{
	struct bpf_vcpu *old = thread->memory.ring.vcpu, *new;
	struct bpf_vm_vcpu memory;
	int error = bpf_vcpu_open(source->vm, &memory, chunks);

	if (error)
		return error;
	bpf_source_drain(source, thread);
	new = memory.ring.vcpu;
	new->pid = old->pid;
	new->id = old->id;
	new->tid = old->tid;
	new->inner_tid = old->inner_tid;
	new->callchains = old->callchains;
	new->by_nmi = old->by_nmi;
	new->cpu = old->cpu;
	new->slots = old->slots;
	memcpy(new->processes, old->processes, sizeof(new->processes));
	new->vcpu = old->vcpu;
	bpf_vcpu_close(source->vm, &thread->memory);
	thread->memory = memory;
	bpf_ring_wait(&thread->memory.ring);
	return 0;
}

/* Grows the rings for a higher frequency; a ring that cannot grow stays as it is. */
static void fit_rings(struct attach_source *source)
{
	uint32_t chunks = ring_chunks(source->target), count = 0;

	for (const struct bpf_thread *thread = source->threads; thread; thread = thread->next)
		count++;
	while (chunks > source->chunks && chunks * count > CHUNKS_MOST)
		chunks /= 2;
	if (chunks <= source->chunks)
		return;
	source->chunks = chunks;
	bpf_vm_reserve(source->vm, count);
	for (struct bpf_thread *thread = source->threads; thread; thread = thread->next)
		if (thread->memory.chunks < chunks && move_ring(source, thread, chunks))
			log_debug("vCPU %u keeps its ring: %s", thread->vcpu.id, error_message());
}

/* Loading the program and making a ring would take longer than some threads exist. */
static int move_vcpu(struct attach_source *source, const struct vmm_vcpu *vcpu)
{
	struct bpf_thread *thread = source->threads;
	struct bpf_found found = { 0 };
	int error;

	while (thread->vcpu.id != vcpu->id)
		thread = thread->next;
	detach_event(source, thread);
	error = find_vcpu(source, vcpu, &found);
	if (error)
		return error;
	bpf_source_drain(source, thread);
	thread->vcpu = *vcpu;
	publish_vcpu(source, thread, &found);
	return source->paused ? 0 : sample_thread(source, thread);
}

/* A vCPU whose thread has exited is removed by the next scan. */
static int set_frequency(struct attach_source *source, unsigned int frequency)
{
	char message[ERROR_MESSAGE_SIZE] = "";
	int first = 0;

	source->paused = !frequency;
	for (struct bpf_thread *thread = source->threads; thread; thread = thread->next)
		detach_event(source, thread);
	if (!frequency)
		return 0;
	source->frequency = frequency;
	perf_event_set_frequency(&source->choice, frequency);
	fit_rings(source);
	for (struct bpf_thread *thread = source->threads; thread; thread = thread->next) {
		int error = sample_thread(source, thread);

		if (!error || error == -ESRCH || first)
			continue;
		first = error;
		snprintf(message, sizeof(message), "vCPU %u: %s", thread->vcpu.id, error_message());
	}
	return first ? error_set(first, "%s", message) : 0;
}

static bool close_bpf(struct attach_source *source)
{
	while (source->threads)
		remove_vcpu(source, source->threads->vcpu.id);
	ring_buffer__free(source->bell);
	bpf_vm_close(source->vm);
	free(source);
	return true;
}

static int check_vcpu(struct attach_source *source)
{
	const struct vmm_process *process = source->target->process;
	struct vcpu_search search = { .wanted = &process->vcpus[0] };
	int error = iterate_vcpus(source->target->process, match_vcpu, &search);

	if (error)
		return error;
	return search.found.vcpu
		       ? 0
		       : error_set(-ENOTSUP,
				   "BPF cannot find the vCPUs of process %d in this kernel",
				   process->pid);
}

/* Without the tracepoint, the host's call chains lack the reasons of exits only. */
static bool traces_exits(const struct attach_target *target)
{
	struct kvm_exit_tracepoint tracepoint = { 0 };

	if (target->outside || !target->host_stacks)
		return target->outside;
	if (!kvm_exit_tracepoint_find(&tracepoint) && tracepoint.rip)
		return true;
	log_info("call chains of the host have no reasons of exits: %s",
		 tracepoint.id ? "KVM's tracepoint lacks the guest's RIP" : error_message());
	return false;
}

static int open_all(struct attach_source *source)
{
	const struct attach_target *target = source->target;
	int error = perf_event_choose(&source->choice, target->process->pid, target->frequency,
				      target->event);

	source->frequency = target->frequency;
	source->chunks = ring_chunks(target);
	source->user_stack = BPF_USER_STACK_FIRST;
	source->outside = traces_exits(target);
	if (!error)
		error = bpf_vm_open(&source->vm, source->outside);
	if (!error)
		error = check_vcpu(source);
	if (error)
		return error;
	if (target->callchains && bpf_programs_are_intel(source->vm))
		log_info("kvm_intel does not supply the guest's stack pointer: backend bpf has "
			 "no kernel call chains; %s has",
			 target->own ? "--sampler kick" : "--backend ptrace");
	source->expected = (uint32_t)target->process->vcpu_count;
	bpf_vm_reserve(source->vm, source->expected);
	source->bell = ring_buffer__new(bpf_vm_bell_fd(source->vm), ignore_bell, NULL, NULL);
	return source->bell ? 0
			    : error_set(-errno, "cannot map the BPF ring that wakes the reader: %s",
					strerror(errno));
}

static int open_bpf(struct attach_source **result, const struct attach_target *target)
{
	struct attach_source *source = calloc(1, sizeof(*source));
	int error;

	if (!source)
		return error_set(-ENOMEM, "no memory for BPF programs");
	source->target = target;
	error = open_all(source);
	if (error)
		close_bpf(source);
	else
		*result = source;
	return error;
}

static void ignore(void *context, const struct bpf_found *found)
{
}

static int iterate_self(void)
{
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0), error;

	if (self < 0)
		return error_set(-errno, "pidfd_open(): %s", strerror(errno));
	error = bpf_programs_iterate(self, 0, 0, ignore, NULL);
	close(self);
	return error;
}

/* Whether KVM's types are known cannot be tested without a VM. */
static int probe(void)
{
	struct bpf_vm_vcpu vcpu;
	struct bpf_vm *vm;
	int error = bpf_vm_open(&vm, false);

	if (error)
		return error;
	error = bpf_vcpu_open(vm, &vcpu, CHUNKS_LEAST);
	if (!error) {
		bpf_vcpu_close(vm, &vcpu);
		error = iterate_self();
	}
	bpf_vm_close(vm);
	return error;
}

static enum attach_event event_of(const struct attach_source *source)
{
	return source->choice.event;
}

const struct attach_backend attach_bpf = {
	.name = "bpf",
	.is = "a BPF program in the kernel: samples with call chains (on kvm_intel "
	      "in user space only: the stack pointer is in the VMCS), stops nothing",
	.has_callchains = true,
	.has_cycles = true,
	.has_outside = true,
	.probe = probe,
	.open = open_bpf,
	.event = event_of,
	.slots = find_slots,
	.threads = find_threads,
	.add = add_vcpu,
	.remove = remove_vcpu,
	.move = move_vcpu,
	.events = events_of,
	.set_cpu = set_cpu,
	.set_process = set_process,
	.set_frequency = set_frequency,
	.room = room,
	.drain = drain,
	.close = close_bpf,
};
