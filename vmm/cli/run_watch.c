// SPDX-License-Identifier: Apache-2.0
#include "vmm/cli/run_watch.h"

#include <errno.h>
#include <linux/hw_breakpoint.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/debug/watch.h"
#include "vmm/machine/probe.h"

#define NAME_SIZE 192

/* The address of the half that is the kernel's, in x86-64's 48 bits and in 57 (SDM vol. 1 3.3.7.1). */
#define KERNEL_HALF (1ull << 63)

struct one {
	const struct watch_spec *spec;
	char name[NAME_SIZE];
	bool armed;
	bool missed;      /* it was said that there is no such symbol */
	atomic_flag told; /* it was said that the guest needs its register */
};

struct run_watch {
	unsigned int vcpus;
	struct watches *watches;
	struct sampler *sampler;
	struct vm *vm;
	struct perf_data_watch events[RUN_WATCHES_MAX];
	struct one list[RUN_WATCHES_MAX];
	size_t count;
};

static bool is_kernel(const struct watch_spec *spec)
{
	return *spec->symbol || spec->offset & KERNEL_HALF;
}

/* What was measured for the kind; a row for a KVM that can do it in kernel code, user code, or both. */
static int check_kind(const struct watch_spec *spec, const struct probe_row *row)
{
	bool code = spec->kind == BREAKPOINT_EXECUTE;
	unsigned int needed = is_kernel(spec) ? PROBE_IN_KERNEL : PROBE_IN_USER;

	/* Data may be accessed from anywhere: what works in a part of the code only would count wrongly. */
	if (!code)
		needed = PROBE_IN_KERNEL | PROBE_IN_USER;
	if ((row->works & needed) == needed)
		return 0;
	return error_set(
		-ENOTSUP,
		"this host's KVM does not report %s in guests as they should be (%s); see kvmscope doctor",
		code ? "breakpoints in code" : "accesses to watched data", row->detail);
}

static int check_host(const struct run_options *options)
{
	struct probe_row code = { .id = NULL }, data = { .id = NULL }, step = { .id = NULL };
	int error = 0;

	for (size_t i = 0; i < options->watch_count && !error; i++) {
		const struct watch_spec *spec = &options->watches[i];
		bool execute = spec->kind == BREAKPOINT_EXECUTE;
		struct probe_row *row = execute ? &code : &data;

		if (!row->id)
			error = probe_one(execute ? "debug.breakpoint" : "debug.watchpoint", row);
		if (!error)
			error = check_kind(spec, row);
		if (!error && execute && !step.id)
			error = probe_one("debug.single_step", &step);
		if (!error && execute)
			error = check_kind(spec, &step);
	}
	return error;
}

/* Any number that differs for what is bound differently. */
static uint64_t space_of(const struct watch_spec *spec)
{
	uint64_t space = 0;

	if (spec->cr3)
		return spec->cr3;
	if (spec->pid != WATCH_NO_PID)
		return 1ull << 63 | spec->pid;
	for (const char *c = spec->comm; *c; c++)
		space = space * 31 + (unsigned char)*c;
	return *spec->comm ? 1ull << 62 | space : ARBITER_ANY_SPACE;
}

static uint32_t type_of(enum breakpoint_kind kind)
{
	if (kind == BREAKPOINT_EXECUTE)
		return HW_BREAKPOINT_X;
	return kind == BREAKPOINT_WRITE ? HW_BREAKPOINT_W : HW_BREAKPOINT_RW;
}

static int add(struct run_watch *watch, const struct watch_spec *spec)
{
	struct watch_request request = { .kind = spec->kind,
					 .length = spec->length,
					 .pinned = spec->pinned,
					 .vcpu = spec->vcpu < 0 ? ARBITER_ALL_VCPUS : spec->vcpu,
					 .cr3 = spec->cr3,
					 .space = space_of(spec),
					 .period = spec->period };
	struct one *one = &watch->list[watch->count];
	int number = watch_add(watch->watches, &request);

	one->spec = spec;
	watch_spec_name(spec, one->name, sizeof(one->name));
	if (number < 0)
		return error_set(number, "can not watch %s: %s", one->name, error_message());
	watch->events[watch->count++] = (struct perf_data_watch){
		.name = one->name,
		.type = type_of(spec->kind),
		.address = *spec->symbol ? 0 : spec->offset,
		.length = spec->kind == BREAKPOINT_EXECUTE ? sizeof(long) : spec->length,
		.period = spec->period,
	};
	if (*spec->symbol)
		return 0;
	one->armed = true;
	return watch_arm(watch->watches, (unsigned int)number, spec->offset);
}

static void on_hit(void *context, struct vcpu *vcpu, const struct watch_hit *hit)
{
	struct run_watch *watch = context;

	sampler_take_hit(watch->sampler, vcpu,
			 &(struct sampler_hit){ .event = (uint16_t)(hit->watch + 1),
						.length = hit->kind == BREAKPOINT_EXECUTE ? 0 : hit->length,
						.address = hit->address,
						.period = hit->period });
}

/* Of a task that could not be told, nothing is claimed. */
static bool is_wanted(void *context, struct vcpu *vcpu, unsigned int number)
{
	struct run_watch *watch = context;
	const struct watch_spec *spec = watch->list[number].spec;
	struct guest_task task;

	if (spec->pid == WATCH_NO_PID && !*spec->comm)
		return true;
	sampler_task(watch->sampler, vcpu, &task);
	if (task.pid == SAMPLE_TASK_UNKNOWN)
		return false;
	return (spec->pid == WATCH_NO_PID || spec->pid == task.pid) &&
	       (!*spec->comm || !strcmp(spec->comm, task.comm));
}

static void on_change(void *context, struct vcpu *vcpu, unsigned int number, enum watch_state state)
{
	struct run_watch *watch = context;
	struct one *one = &watch->list[number];

	sampler_tell_event(watch->sampler, vcpu, (uint16_t)(number + 1), state != WATCH_RUNNING);
	if (state == WATCH_SUSPENDED && !atomic_flag_test_and_set(&one->told))
		log_warning("%s is suspended on vCPU %u while the guest uses its debug registers itself; "
			    "--bp-priority host turns this round",
			    one->name, vcpu->index);
}

int run_watch_create(struct run_watch **result, const struct run_options *options)
{
	struct watches_options watches = { .vcpus = options->cpus,
					   .priority = options->breakpoint_priority,
					   .hit = on_hit,
					   .wanted = is_wanted,
					   .changed = on_change };
	struct run_watch *watch;
	int error;

	*result = NULL;
	if (!options->watch_count)
		return 0;
	watch = calloc(1, sizeof(*watch));
	if (!watch)
		return error_set(-ENOMEM, "no memory for watches");
	watch->vcpus = options->cpus;
	watches.context = watch;
	error = check_host(options);
	if (!error)
		error = watches_create(&watch->watches, &watches);
	for (size_t i = 0; i < options->watch_count && !error; i++)
		error = add(watch, &options->watches[i]);
	if (error)
		run_watch_destroy(watch);
	else
		*result = watch;
	return error;
}

void run_watch_destroy(struct run_watch *watch)
{
	if (!watch)
		return;
	watches_destroy(watch->watches);
	free(watch);
}

const struct perf_data_watch *run_watch_events(const struct run_watch *watch, size_t *count)
{
	*count = watch ? watch->count : 0;
	return watch ? watch->events : NULL;
}

void run_watch_join(struct run_watch *watch, struct sampler *sampler, struct vm *vm)
{
	if (!watch)
		return;
	watch->sampler = sampler;
	watch->vm = vm;
}

int run_watch_enter(struct run_watch *watch, struct vcpu *vcpu)
{
	return watch ? watch_enter(watch->watches, vcpu) : 0;
}

void run_watch_leave(struct run_watch *watch, struct vcpu *vcpu)
{
	if (watch)
		watch_leave(watch->watches, vcpu);
}

void run_watch_kicked(struct run_watch *watch, struct vcpu *vcpu)
{
	if (watch)
		watch_kicked(watch->watches, vcpu);
}

void run_watch_debug(struct run_watch *watch, struct vcpu *vcpu)
{
	watch_debug(watch->watches, vcpu);
}

static void arm(struct run_watch *watch, unsigned int number, const struct guest_kernel *kernel)
{
	struct one *one = &watch->list[number];
	struct symbol symbol;

	if (one->armed)
		return;
	if (symbols_find_name(kernel->symbols, one->spec->symbol, &symbol)) {
		if (watch_arm(watch->watches, number, symbol.start + one->spec->offset))
			log_warning("%s is not watched: %s", one->name, error_message());
		one->armed = true;
	} else if (!one->missed) {
		log_warning("%s is not watched: the guest's kernel has no symbol %s", one->name,
			    one->spec->symbol);
		one->missed = true;
	}
}

void run_watch_kernel(struct run_watch *watch, const struct guest_kernel *kernel)
{
	if (!watch)
		return;
	for (unsigned int i = 0; i < watch->count; i++)
		arm(watch, i, kernel);
	for (unsigned int i = 0; i < watch->vm->vcpu_count; i++)
		vcpu_kick(watch->vm->vcpus[i]);
}

static void summarize(struct run_watch *watch, unsigned int number)
{
	struct watch_statistics statistics;
	double share;

	watch_statistics(watch->watches, number, ARBITER_ALL_VCPUS, &statistics);
	share = statistics.times.enabled
			? 100.0 * (double)statistics.times.running / (double)statistics.times.enabled
			: 0;
	if (!watch->list[number].armed)
		log_info("%s was never watched: it could not be told where it is", watch->list[number].name);
	else
		log_info(
			"%s: %llu hits, watched for %.1f %% of the time; held back %llu times as a storm, suspended %llu times for the guest",
			watch->list[number].name, (unsigned long long)statistics.hits, share,
			(unsigned long long)statistics.throttled, (unsigned long long)statistics.suspended);
}

void run_watch_summarize(struct run_watch *watch)
{
	if (!watch)
		return;
	for (unsigned int i = 0; i < watch->count; i++)
		summarize(watch, i);
	if (watches_guest_lost(watch->watches))
		log_warning("%llu times a breakpoint of the guest's own did not work for it",
			    (unsigned long long)watches_guest_lost(watch->watches));
}

struct watches *run_watch_watches(struct run_watch *watch)
{
	return watch ? watch->watches : NULL;
}

const char *run_watch_name(const struct run_watch *watch, unsigned int number)
{
	return watch->list[number].name;
}

unsigned int run_watch_vcpus(const struct run_watch *watch)
{
	return watch->vcpus;
}
