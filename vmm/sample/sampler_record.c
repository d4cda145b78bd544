/* SPDX-License-Identifier: Apache-2.0 */
/* Recording with the vCPU stopped: no lock, no allocation, and no system calls but those listed
 * in sampler.h. */
#include <assert.h>
#include <string.h>

#include "shared/clock_ns.h"
#include "shared/local_atomic.h"
#include "vmm/guest/linux/deferred_lookup.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/module_presence.h"
#include "vmm/guest/linux/task.h"
#include "vmm/guest/linux/user_map.h"
#include "vmm/guest/page_walk.h"
#include "vmm/sample/sampler_state.h"
#include "vmm/sample/vm_view.h"

#define HLT 0xf4

/* A kernel is only used between these two: see sampler_wait_for_users(). */
static void begin_use(struct vcpu_sampler *self)
{
	atomic_fetch_add(&self->turns, 1);
}

static void end_use(struct vcpu_sampler *self)
{
	atomic_fetch_add_explicit(&self->turns, 1, memory_order_release);
}

static uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC_RAW); /* vDSO, no system call */
}

/*
 * A halted vCPU's RIP is after its HLT. The byte is only a hint (it may be the end of another
 * instruction), so a match is confirmed by KVM. If it is right, the system call costs the guest
 * nothing.
 */
static bool is_idle(const struct sampler *sampler, struct vcpu *vcpu,
		    const struct guest_registers *registers)
{
	uint8_t before;

	if (sampler->options.clock != SAMPLING_CLOCK_WALL || registers->cpl)
		return false;
	if (guest_read_virtual(sampler->options.view, &registers->paging, registers->rip - 1,
			       &before, 1))
		return false;
	return before == HLT && vcpu_is_halted(vcpu);
}

/* MAP is empty if the task's memory is unknown. */
static void walk(const struct sampler *sampler, const struct guest_kernel *kernel,
		 const struct guest_registers *registers, struct user_map *map,
		 struct guest_callchain *chain)
{
	chain->unknown_kernel = !kernel;
	if (sampler->options.callchains) {
		guest_unwind(kernel ? kernel->orc : NULL, sampler->options.view, registers,
			     map->mm ? map : NULL, chain);
		return;
	}
	chain->addresses[0] = registers->rip;
	chain->kernel_depth = registers->cpl == 0;
	chain->user_depth = registers->cpl != 0;
}

/* The path is read later, before this vCPU runs again. */
static uint32_t enter_cgroup(const struct guest_kernel *kernel, const struct guest_task *task)
{
	if (!kernel || !kernel->cgroups || !task->cgroup.id)
		return 0;
	guest_cgroups_enter(kernel->cgroups, &task->cgroup);
	return guest_cgroups_generation(kernel->cgroups);
}

static void find_task(const struct sampler *sampler, const struct guest_kernel *kernel,
		      const struct guest_registers *registers, struct guest_task *task)
{
	if (kernel)
		guest_task_current(&kernel->tasks, sampler->options.view, &kernel->paging,
				   registers, task);
	else
		*task = (struct guest_task){ .pid = SAMPLE_TASK_UNKNOWN,
					     .tid = SAMPLE_TASK_UNKNOWN };
}

/* Drops the user chain if the page tables are not certainly those of the task's stack: what was
 * read there may be another task's. */
static void drop_foreign(const struct guest_kernel *kernel, const struct guest_task *task,
			 struct guest_callchain *chain)
{
	if (!chain->user_depth)
		return;
	if (!task->foreign && !(kernel && guest_task_in_execve(&kernel->tasks, chain->addresses,
							       chain->kernel_depth)))
		return;
	chain->user_depth = 0;
	chain->flags |= SAMPLE_USER_TRUNCATED;
}

static void fill_sample(struct sample *sample, const struct guest_registers *registers,
			const struct guest_task *task, const struct guest_callchain *chain)
{
	sample->rip = registers->rip;
	sample->rsp = registers->rsp;
	sample->rbp = registers->rbp;
	sample->rflags = registers->rflags;
	sample->cr3 = registers->paging.cr3;
	sample->cpl = registers->cpl;
	sample->event = 0;
	sample->pid = task->pid;
	sample->tid = task->tid;
	sample->mappings = sample->deferred = sample->host_kernel = sample->host_user = 0;
	memcpy(sample->comm, task->comm, sizeof(sample->comm));
	memcpy(sample->process_comm, task->process_comm, sizeof(sample->process_comm));
	sample->parent = task->parent;
	sample->started = task->started;
	sample->cgroup = task->cgroup.id;
	sample->cgroups = 0;
	sample->flags = chain->flags;
	sample->kernel_depth = chain->kernel_depth;
	sample->user_depth = chain->user_depth;
	memcpy(sample->callchain, chain->addresses,
	       (chain->kernel_depth + chain->user_depth) * sizeof(uint64_t));
}

/* Publishing is a store; the wake-up is due once per watermark, or some time after the first
 * sample. */
static void commit(struct ring *ring, struct sample *sample, uint64_t time)
{
	ring_commit(ring, sample);
	ring_publish(ring);
	if (ring_wake_due(ring, time))
		ring_flush(ring);
}

static void count(struct vcpu_sampler *self, uint64_t periods, uint64_t cost)
{
	local_add(&self->statistics.samples, 1);
	local_add(&self->statistics.periods, periods);
	local_add(&self->statistics.cost, cost);
}

/* The contents of a sample, before there is room for it. */
struct state {
	uint64_t begin;
	struct guest_registers registers;
	struct guest_task task;
	uint64_t lookup_deadline; /* ns; 0: none */
	unsigned int cut;         /* parts that did not fit into the time */
	struct sample_deferred deferred;
	bool has_deferred;   /* `deferred` is valid */
	uint32_t cgroups;    /* the table that has its cgroup; 0: none */
	struct user_map map; /* of the task */
	struct guest_callchain chain;
};

static void publish_registers(struct vcpu_sampler *self, const struct guest_registers *registers,
			      uint64_t time)
{
	if (registers->nested)
		return;
	snapshot_write(&self->latest, registers);
	__atomic_store_n(&self->latest_time, time, __ATOMIC_RELEASE);
}

/* The known kernel, if REGISTERS are of it. *OTHER: another one is running. */
static const struct guest_kernel *
running_kernel(const struct sampler *sampler, const struct guest_registers *registers, bool *other)
{
	const struct guest_kernel *kernel =
		atomic_load_explicit(&sampler->kernel, memory_order_acquire);

	*other = registers->nested;
	if (registers->nested || !kernel || !guest_kernel_can_run(registers))
		return NULL;
	*other = !guest_kernel_is_running(kernel, sampler->options.view, registers);
	return *other ? NULL : kernel;
}

static void find_cgroup(const struct sampler *sampler, const struct guest_kernel *kernel,
			struct state *state)
{
	if (!kernel || !kernel->tasks.cgroups.known || !state->task.at)
		return;
	if (deadline_passed(state->lookup_deadline)) {
		state->cut |= DEFERRED_LOOKUP_CGROUP;
		return;
	}
	guest_task_find_cgroup(&kernel->tasks, sampler->options.view, &kernel->paging,
			       &state->task);
	state->cgroups = enter_cgroup(kernel, &state->task);
}

/* Records which lookups did not finish in time; the collector repeats them later. */
static void record_cut(const struct sampler *sampler, const struct guest_kernel *kernel,
		       struct state *state)
{
	state->cut |= state->map.memory.timed_out ? DEFERRED_LOOKUP_MAPPINGS : 0;
	if (!state->cut)
		return;
	state->chain.flags |= SAMPLE_LOOKUP_INCOMPLETE;
	state->has_deferred = deferred_lookup_note(kernel, sampler->options.view, &state->task,
						   state->cut, &state->deferred);
}

static void collect_state(struct sampler *sampler, struct vcpu *vcpu, struct vcpu_sampler *self,
			  struct state *state)
{
	uint64_t time = sampler->options.stack_time;
	const struct guest_kernel *kernel;
	bool other;

	state->chain = (struct guest_callchain){ .capacity = SAMPLE_CALLCHAIN_MAX,
						 .addresses = self->addresses };
	if (time) {
		state->chain.deadline = state->begin + time;
		state->lookup_deadline = state->begin + time / 4 * 3;
	}
	vm_view_registers(vcpu, &state->registers);
	publish_registers(self, &state->registers, state->begin);
	/* After state->begin was set: see sampler_set_kernel(). */
	kernel = running_kernel(sampler, &state->registers, &other);
	find_task(sampler, kernel, &state->registers, &state->task);
	find_cgroup(sampler, kernel, state);
	user_map_begin(&state->map, kernel, sampler->options.view, state->task.mm);
	state->map.memory.deadline = state->lookup_deadline;
	if (other) /* an unknown kernel: no call chain */
		state->chain.flags = SAMPLE_OTHER_KERNEL;
	else
		walk(sampler, kernel, &state->registers, &state->map, &state->chain);
	if (kernel)
		module_presence_check(guest_kernel_presence(kernel), sampler->options.view,
				      &kernel->paging, state->begin, &state->chain);
	drop_foreign(kernel, &state->task, &state->chain);
	/* Includes addresses that the walk did not look up. After the deadline they get no image.
	 */
	for (uint16_t i = 0; i < state->chain.user_depth; i++)
		user_map_find(&state->map, state->chain.addresses[state->chain.kernel_depth + i]);
	record_cut(sampler, kernel, state);
}

static size_t size_of(const struct state *state)
{
	return sample_size(state->chain.kernel_depth + state->chain.user_depth) +
	       state->map.count * sizeof(struct sample_mapping) +
	       (state->has_deferred ? sizeof(state->deferred) : 0);
}

/* The last part of SAMPLE, after those that depend on its event. */
static void store_deferred(const struct state *state, struct sample *sample)
{
	if (state->has_deferred)
		*sample_write_deferred(sample) = state->deferred;
}

/* Fills SAMPLE unless it is NULL (no room). Returns the cost so far. */
static uint64_t finish_sample(const struct vcpu_sampler *self, const struct vcpu *vcpu,
			      const struct state *state, uint64_t period, struct sample *sample)
{
	uint64_t cost;

	if (sample) {
		fill_sample(sample, &state->registers, &state->task, &state->chain);
		/* An image that could not be determined is left out. */
		sample->mappings =
			(uint8_t)user_map_to_sample(&state->map, sample_write_mappings(sample));
		sample->cgroups = state->cgroups;
		sample->deferred = state->has_deferred;
		sample->time = state->begin;
		sample->period = period;
		sample->vcpu = vcpu->index;
		sample->host_tid = (uint32_t)self->thread;
	}
	cost = now() - state->begin;
	if (sample)
		sample->cost = cost < UINT32_MAX ? (uint32_t)cost : UINT32_MAX;
	return cost;
}

void sampler_record(struct sampler *sampler, struct vcpu *vcpu)
{
	struct vcpu_sampler *self = vcpu->sampler;
	struct state state = { .begin = now() };
	struct sample *sample;
	uint64_t period, cost;

	if (!self || !self->frequency)
		return;
	period = sampling_clock_consume(self->clock, vcpu->sample_expirations, state.begin);
	if (!period)
		return;
	begin_use(self);
	collect_state(sampler, vcpu, self, &state);
	if (is_idle(sampler, vcpu, &state.registers))
		state.chain.flags |= SAMPLE_IDLE;
	sample = ring_reserve(self->ring, RECORD_SAMPLE, size_of(&state));
	cost = finish_sample(self, vcpu, &state, period, sample);
	end_use(self);
	if (sample)
		store_deferred(&state, sample);
	commit(self->ring, sample, state.begin);
	count(self, period / sampling_clock_period(self->clock), cost);
}

/* Reads the current value, and exchanges it for that of the previous hit. */
static struct sample_hit exchange_values(struct sampler *sampler, struct vcpu_sampler *self,
					 const struct guest_registers *registers,
					 const struct sampler_hit *hit)
{
	struct last_value *last =
		hit->per_cpu ? &self->last_values[hit->event] : &sampler->last_values[hit->event];
	struct sample_hit values = { .address = hit->address,
				     .length = hit->length,
				     .hits = hit->hits };
	uint64_t value = 0;

	if (!hit->length || hit->length > sizeof(value) ||
	    guest_read_virtual(sampler->options.view, &registers->paging, hit->address, &value,
			       hit->length))
		return values;
	values.flags = SAMPLE_HIT_AFTER;
	values.after = value;
	values.before = atomic_exchange(&last->value, value);
	if (atomic_exchange(&last->known, true))
		values.flags |= SAMPLE_HIT_BEFORE;
	return values;
}

static void copy_registers(const struct kvm_regs *registers, uint64_t *to)
{
	to[SAMPLE_RAX] = registers->rax;
	to[SAMPLE_RBX] = registers->rbx;
	to[SAMPLE_RCX] = registers->rcx;
	to[SAMPLE_RDX] = registers->rdx;
	to[SAMPLE_RSI] = registers->rsi;
	to[SAMPLE_RDI] = registers->rdi;
	memcpy(&to[SAMPLE_R8], &registers->r8, 8 * sizeof(*to));
}

void sampler_record_hit(struct sampler *sampler, struct vcpu *vcpu, const struct sampler_hit *hit)
{
	struct vcpu_sampler *self = vcpu->sampler;
	struct state state = { .begin = now() };
	struct sample_hit values;
	struct sample *sample;
	uint64_t cost;

	assert(hit->event && hit->event < SAMPLER_EVENTS_MAX);
	if (!self)
		return;
	begin_use(self);
	collect_state(sampler, vcpu, self, &state);
	values = exchange_values(sampler, self, &state.registers, hit);
	sample = ring_reserve(self->ring, RECORD_SAMPLE, size_of(&state) + sizeof(values));
	cost = finish_sample(self, vcpu, &state, hit->period, sample);
	end_use(self);
	if (sample) {
		sample->event = hit->event;
		copy_registers(vcpu_registers(vcpu), values.registers);
		*sample_write_hit(sample) = values;
		store_deferred(&state, sample);
	}
	commit(self->ring, sample, state.begin);
	local_add(&self->statistics.cost, cost);
}

void sampler_report_event(struct sampler *sampler, struct vcpu *vcpu, uint16_t event, bool stopped)
{
	struct vcpu_sampler *self = vcpu->sampler;
	struct sample_event *record;

	if (!self)
		return;
	record = ring_reserve(self->ring, RECORD_EVENT, sizeof(*record));
	if (record)
		*record = (struct sample_event){
			.time = now(), .vcpu = vcpu->index, .event = event, .stopped = stopped
		};
	ring_commit(self->ring, record);
	ring_publish(self->ring);
}

void sampler_report_guest_lost(struct sampler *sampler, struct vcpu *vcpu, unsigned int count)
{
	struct vcpu_sampler *self = vcpu->sampler;
	struct sample_guest_breakpoint_lost *record;

	if (!self)
		return;
	record = ring_reserve(self->ring, RECORD_GUEST_BREAKPOINT_LOST, sizeof(*record));
	if (record)
		*record = (struct sample_guest_breakpoint_lost){ .time = now(),
								 .vcpu = vcpu->index,
								 .count = count };
	ring_commit(self->ring, record);
	ring_publish(self->ring);
}

void sampler_task(const struct sampler *sampler, struct vcpu *vcpu, struct guest_task *task)
{
	struct vcpu_sampler *self = vcpu->sampler;
	const struct guest_kernel *kernel;
	struct guest_registers registers;
	bool other;

	vm_view_registers(vcpu, &registers);
	begin_use(self);
	kernel = running_kernel(sampler, &registers, &other);
	find_task(sampler, kernel, &registers, task);
	end_use(self);
}

bool sampler_kernel_runs(struct sampler *sampler, struct vcpu *vcpu)
{
	struct vcpu_sampler *self = vcpu->sampler;
	struct guest_registers registers;
	bool other, runs;

	vm_view_registers(vcpu, &registers);
	begin_use(self);
	runs = running_kernel(sampler, &registers, &other);
	end_use(self);
	if (!runs)
		publish_registers(self, &registers, now());
	return runs;
}
