/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_watch.h"

#include <errno.h>
#include <linux/hw_breakpoint.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/run_watch_address.h"
#include "vmm/cli/run_watch_probe.h"
#include "vmm/guest/linux/task.h"

struct one {
	struct watch_spec spec;
	char name[sizeof(((struct run_watch_description *)NULL)->name)];
	bool armed;     /* now */
	bool was_armed; /* at some time */
	bool removed;
	bool per_cpu;
	bool of_image; /* its symbol is of the image of a kernel that is not Linux */
	bool unloaded; /* its module is gone, which the newest kernel's symbols do not show yet */
	char module[sizeof(((struct run_watch_address *)NULL)->module)]; /* "": the kernel */
	uint64_t module_start;
	bool complete;                /* has an address on each vCPU */
	bool missing_reported;        /* that there is no such symbol, or no register */
	uint64_t address;             /* while it is armed */
	atomic_flag suspend_reported; /* that the guest needs its register */
	atomic_flag storm_reported;   /* that it has too many hits */
};

struct run_watch {
	unsigned int vcpus;
	bool excluded; /* other events have the numbers of watches */
	struct watches *watches;
	struct sampler *sampler; /* NULL before run_watch_join(), as the next two */
	const struct guest_view *view;
	struct vm *vm;
	const struct symbols *image; /* of a kernel that is not Linux; else NULL */
	struct perf_data_watches events;
	struct one list[WATCHES_MAX]; /* one per event; their spec and name never change */
	pthread_mutex_t lock; /* protects what follows, the list's state, and adding to the list */
	struct run_watch_probe probe;
	const struct guest_kernel *kernel; /* the newest; NULL until it is found */
	bool modules_unknown;              /* which modules the kernel has loaded */
	bool ended;
};

/* A number that differs for watches that are bound differently. */
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

/* Adds to the error message which watches hold the registers that a new one needs. */
static int add_holders(const struct run_watch *watch, const struct watch_spec *spec, int error)
{
	char holders[512] = "", name[sizeof(watch->list[0].name)];
	size_t used = 0;

	watch_spec_name(spec, name, sizeof(name));
	for (unsigned int i = 0; i < perf_data_watches_count(&watch->events); i++) {
		const struct one *one = &watch->list[i];

		if (one->removed || used >= sizeof(holders) ||
		    (one->spec.vcpu >= 0 && spec->vcpu >= 0 && one->spec.vcpu != spec->vcpu))
			continue;
		used += (size_t)snprintf(holders + used, sizeof(holders) - used, "%s%u %s%s",
					 used ? ", " : "; the watches are ", i, one->name,
					 one->spec.pinned ? " (pinned)" : "");
	}
	return error_set(error, "cannot watch %s: %s%s", name, error_message(),
			 error == -ENOSPC ? holders : "");
}

/* Converts hits per second to hits per WATCH_STORM_PERIOD. */
static unsigned int storm_limit_of(const struct watch_spec *spec)
{
	return (unsigned int)(spec->limit * WATCH_STORM_PERIOD / NS_PER_S);
}

static struct watch_request request_of(const struct watch_spec *spec)
{
	return (struct watch_request){ .kind = spec->kind,
				       .length = spec->length,
				       .pinned = spec->pinned,
				       .vcpu = spec->vcpu < 0 ? ARBITER_ALL_VCPUS : spec->vcpu,
				       .cr3 = spec->cr3,
				       .space = space_of(spec),
				       .period = spec->period,
				       .storm_limit = storm_limit_of(spec) };
}

/* Sets the name and adds the event, which must exist before the first hit. */
static void add_event(struct run_watch *watch, const struct watch_spec *spec)
{
	struct one *one = &watch->list[perf_data_watches_count(&watch->events)];

	one->spec = *spec;
	watch_spec_name(spec, one->name, sizeof(one->name));
	perf_data_watches_add(
		&watch->events,
		&(struct perf_data_watch){
			.name = one->name,
			.type = type_of(spec->kind),
			.length = spec->kind == BREAKPOINT_EXECUTE ? sizeof(long) : spec->length,
			.period = spec->period,
		});
}

/* As run_watch_locate(), without modules if it is unknown which are loaded. */
static int locate(const struct run_watch *watch, const struct watch_spec *spec,
		  struct run_watch_address *found)
{
	const struct run_watch_guest guest = { .kernel = watch->kernel,
					       .image = watch->image,
					       .view = watch->view,
					       .sampler = watch->sampler,
					       .vcpus = watch->vcpus };
	int result = run_watch_locate(&guest, spec, found);

	if (result < 0 || !*found->module || !watch->modules_unknown)
		return result;
	return error_set(
		-ENOENT,
		"%s is in the module %s, and it is no longer known which modules are loaded",
		spec->symbol, found->module);
}

static uint64_t start_of(const struct guest_kernel *kernel, const char *module)
{
	for (size_t i = 0; *module && i < kernel->module_count; i++)
		if (!strcmp(kernel->modules[i].name, module))
			return kernel->modules[i].start;
	return 0;
}

static int arm(struct run_watch *watch, unsigned int number, const struct run_watch_address *found)
{
	struct one *one = &watch->list[number];
	int error;

	for (unsigned int i = 0; found->per_cpu && i < watch->vcpus; i++)
		if (found->on[i])
			watch_set_address_on(watch->watches, number, i, found->on[i]);
	one->per_cpu = found->per_cpu;
	snprintf(one->module, sizeof(one->module), "%s", found->module);
	one->module_start = start_of(watch->kernel, one->module);
	one->complete = found->complete;
	one->of_image = found->of_image;
	perf_data_watches_set_address(&watch->events, number, found->address);
	error = watch_arm(watch->watches, number, found->address);
	if (error)
		return error;
	one->address = found->address;
	one->armed = one->was_armed = true;
	one->missing_reported = false;
	return 0;
}

static void remove_locked(struct run_watch *watch, unsigned int number)
{
	watch->list[number].removed = true;
	watch_remove(watch->watches, number);
}

static int add_locked(struct run_watch *watch, const struct watch_spec *spec)
{
	struct watch_request request = request_of(spec);
	struct run_watch_address found;
	int number, result = watch->ended ? error_set(-ESRCH, "the guest has ended") : 0;

	if (!result)
		result = run_watch_probe_check(&watch->probe, spec);
	if (!result)
		result = locate(watch, spec, &found);
	if (result < 0)
		return add_holders(watch, spec, result);
	number = watch_add(watch->watches, &request);
	if (number < 0)
		return add_holders(watch, spec, number);
	add_event(watch, spec);
	if (!result) {
		watch_disarm(watch->watches, (unsigned int)number);
		return number;
	}
	result = arm(watch, (unsigned int)number, &found);
	if (!result)
		return number;
	remove_locked(watch, (unsigned int)number);
	return add_holders(watch, spec, result);
}

static void kick_all(const struct run_watch *watch)
{
	for (unsigned int i = 0; watch->vm && i < watch->vm->vcpu_count; i++)
		vcpu_kick(watch->vm->vcpus[i]);
}

int run_watch_add(struct run_watch *watch, const struct watch_spec *spec)
{
	int number;

	if (watch->excluded)
		return error_set(-ENOTSUP, "--event kvm:exit and kvm:off-cpu exclude watches");
	pthread_mutex_lock(&watch->lock);
	number = add_locked(watch, spec);
	if (number >= 0)
		kick_all(watch);
	pthread_mutex_unlock(&watch->lock);
	return number;
}

static bool exists(const struct run_watch *watch, unsigned int number)
{
	return number < perf_data_watches_count(&watch->events) && !watch->list[number].removed;
}

int run_watch_remove(struct run_watch *watch, unsigned int number)
{
	int error = 0;

	pthread_mutex_lock(&watch->lock);
	if (exists(watch, number)) {
		remove_locked(watch, number);
		kick_all(watch);
	} else {
		error = error_set(-ENOENT, "there is no watch %u; bp list shows them", number);
	}
	pthread_mutex_unlock(&watch->lock);
	return error;
}

static void on_hit(void *context, struct vcpu *vcpu, const struct watch_hit *hit)
{
	struct run_watch *watch = context;

	sampler_record_hit(
		watch->sampler, vcpu,
		&(struct sampler_hit){ .event = (uint16_t)(hit->watch + 1),
				       .length = hit->kind == BREAKPOINT_EXECUTE ? 0 : hit->length,
				       .per_cpu = watch->list[hit->watch].per_cpu,
				       .address = hit->address,
				       .period = hit->period,
				       .hits = hit->hits });
}

/* False if the task is unknown, and for a symbol of a kernel that no longer runs: its address is
 * now something else. */
static bool is_selected(void *context, struct vcpu *vcpu, unsigned int number)
{
	struct run_watch *watch = context;
	const struct one *one = &watch->list[number];
	const struct watch_spec *spec = &one->spec;
	struct guest_task task;

	if (*spec->symbol && !one->of_image && !sampler_kernel_runs(watch->sampler, vcpu))
		return false;
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

	sampler_report_event(watch->sampler, vcpu, (uint16_t)(number + 1), state != WATCH_RUNNING);
	if (state == WATCH_SUSPENDED && !atomic_flag_test_and_set(&one->suspend_reported))
		log_warning(
			"%s is suspended on vCPU %u while the guest uses its debug registers itself; "
			"--bp-priority host gives the watch priority",
			one->name, vcpu->index);
	if (state == WATCH_THROTTLED && !atomic_flag_test_and_set(&one->storm_reported))
		log_warning("%s has too many hits on vCPU %u: it is throttled", one->name,
			    vcpu->index);
}

static void on_guest_lost(void *context, struct vcpu *vcpu, unsigned int count)
{
	sampler_report_guest_lost(((struct run_watch *)context)->sampler, vcpu, count);
}

int run_watch_create(struct run_watch **result, const struct run_options *options)
{
	struct watches_options watches = { .vcpus = options->cpus,
					   .priority = options->breakpoint_priority,
					   .hit = on_hit,
					   .matches = is_selected,
					   .changed = on_change,
					   .guest_lost = on_guest_lost };
	struct run_watch *watch;
	int error;

	*result = NULL;
	watch = calloc(1, sizeof(*watch));
	if (!watch)
		return error_set(-ENOMEM, "no memory for watches");
	watch->vcpus = options->cpus;
	watch->excluded = options->outside;
	watches.context = watch;
	pthread_mutex_init(&watch->lock, NULL);
	watch->probe.fd = -1;
	error = watches_create(&watch->watches, &watches);
	if (!error && (options->control || options->watch_count))
		error = run_watch_probe_start(&watch->probe);
	for (size_t i = 0; i < options->watch_count && error >= 0; i++)
		error = run_watch_add(watch, &options->watches[i]);
	if (error < 0)
		run_watch_destroy(watch);
	else
		*result = watch;
	return error < 0 ? error : 0;
}

void run_watch_destroy(struct run_watch *watch)
{
	if (!watch)
		return;
	watches_destroy(watch->watches);
	run_watch_probe_end(&watch->probe);
	pthread_mutex_destroy(&watch->lock);
	free(watch);
}

const struct perf_data_watches *run_watch_events(const struct run_watch *watch)
{
	return &watch->events;
}

void run_watch_join(struct run_watch *watch, struct sampler *sampler, const struct guest_view *view,
		    struct vm *vm)
{
	watch->sampler = sampler;
	watch->view = view;
	watch->vm = vm;
}

static void report_missing(struct one *one)
{
	if (!one->missing_reported)
		log_warning("%s is not watched: %s", one->name, error_message());
	one->missing_reported = true;
}

/* Logs after the vCPUs are kicked: a reader of the message may let the guest continue. */
static void disarm(struct run_watch *watch, unsigned int number, const char *until)
{
	struct one *one = &watch->list[number];

	watch_disarm(watch->watches, number);
	one->armed = false;
	kick_all(watch);
	log_warning("%s is not watched until %s", one->name, until);
}

static void arm_late(struct run_watch *watch, unsigned int number,
		     const struct run_watch_address *found)
{
	struct one *one = &watch->list[number];
	bool again = !one->armed && (one->was_armed || one->missing_reported);

	if (arm(watch, number, found)) {
		report_missing(one);
		return;
	}
	kick_all(watch);
	if (again)
		log_info("%s is watched again, at %#llx", one->name,
			 (unsigned long long)found->address);
}

/* RESULT and FOUND are of a lookup now: true if the module was unloaded or moved. */
static bool has_moved(const struct one *one, int result, const struct run_watch_address *found)
{
	return one->armed && *one->module &&
	       (result < 0 ||
		(result > 0 && found->complete == one->complete && found->address != one->address));
}

/* Symbols of a module can change with each list of modules. */
static void update(struct run_watch *watch, unsigned int number)
{
	struct one *one = &watch->list[number];
	struct run_watch_address found;
	int result;

	if (one->removed || one->unloaded || (one->armed && one->complete && !*one->module))
		return;
	result = locate(watch, &one->spec, &found);
	if (has_moved(one, result, &found)) {
		disarm(watch, number, "its module is loaded again");
		one->missing_reported = true;
	}
	if (result > 0 && (!one->armed || (found.complete && !one->complete)))
		arm_late(watch, number, &found);
	else if (result < 0)
		report_missing(one);
}

void run_watch_image(struct run_watch *watch, const struct symbols *symbols, const char *path)
{
	pthread_mutex_lock(&watch->lock);
	watch->image = symbols;
	for (unsigned int i = 0; i < perf_data_watches_count(&watch->events); i++) {
		update(watch, i);
		if (!watch->list[i].armed && !watch->list[i].missing_reported)
			log_warning("%s is not watched: %s has no symbol %s; it waits for Linux",
				    watch->list[i].name, path, watch->list[i].spec.symbol);
	}
	pthread_mutex_unlock(&watch->lock);
}

static bool is_complete(const struct run_watch *watch)
{
	bool complete = true;

	for (unsigned int i = 0; i < perf_data_watches_count(&watch->events); i++)
		complete &= watch->list[i].removed || watch->list[i].missing_reported ||
			    (watch->list[i].armed && watch->list[i].complete);
	return complete;
}

void run_watch_kernel(struct run_watch *watch, const struct guest_kernel *kernel)
{
	pthread_mutex_lock(&watch->lock);
	if (!watch->ended)
		watch->kernel = kernel;
	for (unsigned int i = 0; !watch->ended && i < perf_data_watches_count(&watch->events);
	     i++) {
		watch->list[i].unloaded = false;
		update(watch, i);
	}
	kick_all(watch);
	pthread_mutex_unlock(&watch->lock);
}

static bool is_loaded(const struct one *one, const struct guest_module *list, size_t count)
{
	for (size_t i = 0; list && i < count; i++)
		if (list[i].start == one->module_start && !strcmp(list[i].name, one->module))
			return true;
	return false;
}

void run_watch_modules(struct run_watch *watch, const struct guest_module *list, size_t count)
{
	pthread_mutex_lock(&watch->lock);
	watch->modules_unknown = !list;
	for (unsigned int i = 0; !watch->ended && i < perf_data_watches_count(&watch->events);
	     i++) {
		struct one *one = &watch->list[i];

		if (one->removed || !one->armed || !*one->module || is_loaded(one, list, count))
			continue;
		disarm(watch, i,
		       list ? "its module is loaded again"
			    : "another kernel runs: the guest's modules are unknown");
		one->missing_reported = one->unloaded = true;
	}
	pthread_mutex_unlock(&watch->lock);
}

static void forget_address(struct run_watch *watch, unsigned int number)
{
	struct one *one = &watch->list[number];

	if (!*one->spec.symbol || one->of_image || !one->armed || one->removed)
		return;
	disarm(watch, number,
	       "its new address is known: the guest's kernel no longer runs (reset, kexec)");
	one->missing_reported = false;
}

void run_watch_no_kernel(struct run_watch *watch)
{
	pthread_mutex_lock(&watch->lock);
	watch->kernel = NULL;
	watch->modules_unknown = false;
	for (unsigned int i = 0; i < perf_data_watches_count(&watch->events); i++)
		forget_address(watch, i);
	kick_all(watch);
	pthread_mutex_unlock(&watch->lock);
}

void run_watch_turn(struct run_watch *watch)
{
	pthread_mutex_lock(&watch->lock);
	if (watch->kernel && !is_complete(watch)) {
		for (unsigned int i = 0; i < perf_data_watches_count(&watch->events); i++)
			update(watch, i);
		kick_all(watch);
	}
	pthread_mutex_unlock(&watch->lock);
}

void run_watch_end(struct run_watch *watch)
{
	pthread_mutex_lock(&watch->lock);
	watch->ended = true;
	watch->kernel = NULL;
	pthread_mutex_unlock(&watch->lock);
}

bool run_watch_describe(struct run_watch *watch, unsigned int number,
			struct run_watch_description *description)
{
	const struct one *one;

	if (number >= perf_data_watches_count(&watch->events))
		return false;
	one = &watch->list[number];
	pthread_mutex_lock(&watch->lock);
	*description = (struct run_watch_description){
		.state = one->removed ? RUN_WATCH_REMOVED
			 : one->armed ? RUN_WATCH_WATCHING
				      : RUN_WATCH_WAITING,
		.spec = one->spec,
	};
	memcpy(description->name, one->name, sizeof(description->name));
	pthread_mutex_unlock(&watch->lock);
	return true;
}

bool run_watch_ran(struct run_watch *watch, unsigned int vcpu, struct guest_registers *registers,
		   struct guest_task *task)
{
	uint64_t time;
	bool known;

	pthread_mutex_lock(&watch->lock);
	known = watch->sampler && watch->kernel &&
		sampler_registers(watch->sampler, vcpu, registers, &time) &&
		guest_task_current(&watch->kernel->tasks, watch->view, &watch->kernel->paging,
				   registers, task);
	pthread_mutex_unlock(&watch->lock);
	return known;
}

/* False if it was never armed. */
static bool summarize(struct run_watch *watch, unsigned int number)
{
	const struct one *one = &watch->list[number];
	struct watch_statistics statistics;
	double share;

	if (one->removed && !one->was_armed)
		return true;
	if (!one->was_armed) {
		log_error("%s was never watched: its address was not found", one->name);
		return false;
	}
	watch_statistics(watch->watches, number, ARBITER_ALL_VCPUS, &statistics);
	share = statistics.times.enabled ? 100.0 * (double)statistics.times.running /
						   (double)statistics.times.enabled
					 : 0;
	log_info(
		"%s: %llu hits, watched for %.1f %% of the time; throttled %llu times, suspended %llu times for the guest, disarmed %llu times with its kernel",
		one->name, (unsigned long long)statistics.hits, share,
		(unsigned long long)statistics.throttled, (unsigned long long)statistics.suspended,
		(unsigned long long)statistics.disarmed);
	return true;
}

bool run_watch_summarize(struct run_watch *watch)
{
	bool watched = true;

	for (unsigned int i = 0; i < perf_data_watches_count(&watch->events); i++)
		watched &= summarize(watch, i);
	if (watches_guest_lost(watch->watches))
		log_warning("%llu times a breakpoint of the guest itself did not work",
			    (unsigned long long)watches_guest_lost(watch->watches));
	return watched;
}

struct watches *run_watch_watches(struct run_watch *watch)
{
	return watch->watches;
}

unsigned int run_watch_vcpus(const struct run_watch *watch)
{
	return watch->vcpus;
}
