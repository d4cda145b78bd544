/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_profile.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "shared/ring.h"
#include "vmm/cli/run_agent.h"
#include "vmm/cli/run_bpf.h"
#include "vmm/cli/run_times.h"
#include "vmm/cli/run_watch.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/sample/sampler.h"
#include "vmm/sample/vm_view.h"
#include "vmm/session/attach_source.h"
#include "vmm/session/event_options.h"
#include "vmm/session/host_cpu.h"
#include "vmm/session/recorded_times.h"
#include "vmm/symbols/elf_symbols.h"

/* Stops not further apart than these ns are of the same kernel. */
#define RECENT (100 * NS_PER_MS)

struct run_profile {
	const struct run_options *options;
	struct machine *machine;
	struct ring *rings[VM_CPUS_MAX];
	unsigned int ring_count;
	struct vm_view view;
	struct sampler *sampler; /* paused with BPF: then it is for watches only */
	struct attach *attach;   /* samples by BPF; NULL: the sampler does, by kicks */
	struct ring *collected[2 * VM_CPUS_MAX]; /* the rings of both, without unused ones */
	struct run_agent *agent;                 /* NULL without --agent */
	struct session *session;
	struct flight_requests *flight; /* NULL without --flight */
	struct run_watch *watch;
	struct perf_data_watches events; /* of time outside of the guest, instead of watches */
	struct run_times *times;
	const char *image;         /* ELF file of a kernel that is not Linux; NULL: none */
	struct symbols *symbols;   /* of it, or of Linux; or NULL */
	pthread_mutex_t rate_lock; /* protects the next two and setting the sampler's rate */
	unsigned int frequency;    /* Hz while it is not paused */
	bool paused;
	atomic_flag line_seen; /* options->from_line was printed */
};

int run_profile_create(struct run_profile **result, const struct run_options *options)
{
	struct run_profile *profile = calloc(1, sizeof(*profile));
	int error;

	if (!profile)
		return error_set(-ENOMEM, "no memory for the profile");
	profile->options = options;
	profile->frequency = options->record.frequency;
	profile->paused = options->from_line;
	event_options_list(options->outside, &profile->events);
	pthread_mutex_init(&profile->rate_lock, NULL);
	error = run_watch_create(&profile->watch, options);
	if (!error)
		error = run_times_create(&profile->times, options->cpus);
	if (!error && options->flight)
		error = run_flight_create(&profile->flight, options);
	if (!error && options->agent)
		error = run_agent_create(&profile->agent, options);
	if (error)
		run_profile_destroy(profile);
	else
		*result = profile;
	return error;
}

/* The machine's hooks, on the vCPUs' threads. */

/* vCPU threads are followed from before they enter the guest. */
static int enter(struct run_profile *profile, struct vcpu *vcpu)
{
	int error = sampler_attach(profile->sampler, vcpu);

	if (!error)
		error = watch_enter(run_watch_watches(profile->watch), vcpu);
	if (error || !profile->attach)
		return error;
	vcpu_bind_thread(vcpu);
	return attach_rescan(profile->attach);
}

static void on_vcpu_start(void *context, struct vcpu *vcpu)
{
	struct run_profile *profile = context;

	run_times_enter(profile->times, vcpu->index);
	if (!enter(profile, vcpu))
		return;
	log_error("vCPU %u cannot be sampled: %s", vcpu->index, error_message());
	machine_stop(profile->machine);
}

static void on_vcpu_end(void *context, struct vcpu *vcpu)
{
	struct run_profile *profile = context;

	watch_leave(run_watch_watches(profile->watch), vcpu);
	sampler_detach(profile->sampler, vcpu);
	run_times_leave(profile->times, vcpu->index);
}

static void on_sample(void *context, struct vcpu *vcpu)
{
	sampler_record(((struct run_profile *)context)->sampler, vcpu);
}

static void on_kicked(void *context, struct vcpu *vcpu)
{
	struct run_profile *profile = context;

	sampler_kicked(profile->sampler, vcpu);
	watch_kicked(run_watch_watches(profile->watch), vcpu);
}

static void on_debug(void *context, struct vcpu *vcpu)
{
	watch_debug(run_watch_watches(((struct run_profile *)context)->watch), vcpu);
}

static void on_console_line(void *context, const char *line)
{
	struct run_profile *profile = context;

	if (strstr(line, profile->options->from_line) &&
	    !atomic_flag_test_and_set(&profile->line_seen))
		run_profile_pause(profile, false);
}

void run_profile_attach(struct run_profile *profile, struct machine_options *machine)
{
	machine->hooks = (struct machine_hooks){
		.vcpu_start = on_vcpu_start,
		.vcpu_end = on_vcpu_end,
		.sample = on_sample,
		.kicked = on_kicked,
		.debug = on_debug,
		.context = profile,
	};
	if (profile->options->from_line) {
		machine->console_line = on_console_line;
		machine->console_line_context = profile;
	}
	if (profile->agent)
		run_agent_attach(profile->agent, machine);
}

/* The sampling frequency. */

/* A kicked vCPU applies the new frequency at once. */
static int apply_frequency(struct run_profile *profile, unsigned int frequency)
{
	struct vm *vm = machine_vm(profile->machine);
	int error;

	if (profile->attach)
		return attach_set_frequency(profile->attach, frequency);
	error = sampler_set_frequency(profile->sampler, frequency);
	for (unsigned int i = 0; i < vm->vcpu_count && !error; i++)
		vcpu_kick(vm->vcpus[i]);
	return error;
}

/* With rate_lock held. */
static int change_rate(struct run_profile *profile, unsigned int frequency, bool paused)
{
	int error = apply_frequency(profile, paused ? 0 : frequency);

	if (error)
		return error;
	profile->frequency = frequency;
	profile->paused = paused;
	return 0;
}

int run_profile_set_frequency(struct run_profile *profile, unsigned int frequency)
{
	int error;

	pthread_mutex_lock(&profile->rate_lock);
	error = change_rate(profile, frequency, profile->paused);
	pthread_mutex_unlock(&profile->rate_lock);
	return error;
}

int run_profile_pause(struct run_profile *profile, bool paused)
{
	int error;

	pthread_mutex_lock(&profile->rate_lock);
	error = change_rate(profile, profile->frequency, paused);
	pthread_mutex_unlock(&profile->rate_lock);
	return error;
}

unsigned int run_profile_frequency(struct run_profile *profile, bool *paused)
{
	unsigned int frequency;

	pthread_mutex_lock(&profile->rate_lock);
	frequency = profile->frequency;
	*paused = profile->paused;
	pthread_mutex_unlock(&profile->rate_lock);
	return frequency;
}

/* The session's source. */

/* BPF's rings first: a ring's number is that of its vCPU, as long as there are vCPUs. */
static struct ring *const *source_rings(void *context, size_t *count)
{
	struct run_profile *profile = context;

	*count = 0;
	if (profile->attach) {
		struct ring *const *rings = attach_rings(profile->attach, count);

		memcpy(profile->collected, rings, *count * sizeof(struct ring *));
	}
	memcpy(&profile->collected[*count], profile->rings,
	       profile->ring_count * sizeof(struct ring *));
	*count += profile->ring_count;
	return profile->collected;
}

static const struct guest_view *source_view(void *context)
{
	return &((struct run_profile *)context)->view.view;
}

static void source_describe(void *context, struct perf_data_options *output)
{
	struct run_profile *profile = context;
	const struct run_options *options = profile->options;

	output->host_samples = profile->attach;
	output->wall_clock = options->clock == RUN_CLOCK_WALL;
	output->frequency = options->record.frequency;
	output->callchains = true;
	output->vcpus = options->cpus;
	output->vmm_pid = getpid();
	output->cpu_description = host_cpu_description();
	output->cpuid = host_cpu_id();
	output->memory_kib = options->memory_size >> 10;
	output->watches = options->outside ? &profile->events : run_watch_events(profile->watch);
}

/* The time of the latest stop of any vCPU; 0: there was none. */
static uint64_t latest_stop(const struct run_profile *profile)
{
	struct guest_registers registers;
	uint64_t latest = 0, time;

	for (unsigned int i = 0; i < profile->ring_count; i++)
		if (sampler_registers(profile->sampler, i, &registers, &time) && time > latest)
			latest = time;
	return latest;
}

/* At CPL 0, CR3 maps the whole kernel also under KPTI. A vCPU that is just starting has no kernel.
 */
static unsigned int rank(const struct guest_registers *registers)
{
	return guest_kernel_can_run(registers) ? 1 + (registers->cpl == 0) : 0;
}

/* The best of the latest stops for finding the kernel. A vCPU that did not run since may have been
 * stopped in a kernel that no longer runs. */
static bool best_stop(const struct run_profile *profile, struct guest_registers *registers)
{
	uint64_t latest = latest_stop(profile), time;
	struct guest_registers one;
	bool found = false;

	for (unsigned int i = 0; i < profile->ring_count; i++) {
		if (!sampler_registers(profile->sampler, i, &one, &time) || time + RECENT < latest)
			continue;
		if (!found || rank(&one) > rank(registers))
			*registers = one;
		found = true;
	}
	return found;
}

static bool source_registers(void *context, struct guest_registers *registers)
{
	struct run_profile *profile = context;

	return profile->attach ? attach_registers(profile->attach, registers)
			       : best_stop(profile, registers);
}

static void source_publish(void *context, const struct guest_kernel *kernel)
{
	struct run_profile *profile = context;

	sampler_set_kernel(profile->sampler, kernel);
	if (profile->attach) {
		attach_set_kernel(profile->attach, kernel);
		sampler_wait_for_users(profile->sampler);
	}
	if (kernel)
		run_watch_kernel(profile->watch, kernel);
	else
		sampler_discard_registers(profile->sampler);
}

/* Kicks and watches are sampled on the vCPU threads, BPF on the attachment's. This does not wait
 * for a vCPU that the guest has not started: it has no samples. */
static void source_settle(void *context)
{
	struct run_profile *profile = context;

	if (profile->attach)
		attach_wait_for_users(profile->attach);
	sampler_wait_for_users(profile->sampler);
}

static void source_lost(void *context)
{
	struct run_profile *profile = context;

	if (profile->attach)
		attach_drop_kernel(profile->attach);
	run_watch_no_kernel(profile->watch);
}

static void source_modules(void *context, const struct guest_module *list, size_t count)
{
	run_watch_modules(((struct run_profile *)context)->watch, list, count);
}

static bool source_count(void *context, unsigned int watch, unsigned int vcpu,
			 struct perf_data_count *count)
{
	struct run_profile *profile = context;
	struct watch_statistics statistics;

	if (profile->options->outside)
		return false;
	watch_statistics(run_watch_watches(profile->watch), watch, (int)vcpu, &statistics);
	*count = (struct perf_data_count){ statistics.hits, statistics.times.enabled,
					   statistics.times.running };
	return count->enabled;
}

static void source_turn(void *context)
{
	run_watch_turn(((struct run_profile *)context)->watch);
}

static void source_times(void *context, struct perf_data_times *recorded)
{
	struct run_profile *profile = context;
	struct vcpu_times_rows rows;
	enum vcpu_times_detail detail;

	if (!run_times_read(profile->times, &rows, &detail))
		recorded_times(recorded, &rows, detail);
	vcpu_times_free(&rows);
}

static int source_stop(void *context)
{
	struct run_profile *profile = context;

	if (profile->attach)
		attach_stop(profile->attach);
	run_watch_end(profile->watch);
	return profile->attach ? attach_error(profile->attach) : 0;
}

/* Start and end. */

static int create_rings(struct run_profile *profile)
{
	const struct ring_options options = {
		.size = profile->options->ring_size,
		.mode = profile->options->flight ? RING_MODE_OVERWRITE : RING_MODE_CONSUMER,
	};

	for (unsigned int i = 0; i < profile->options->cpus; i++) {
		int error = ring_create_with(&profile->rings[i], &options);

		if (error)
			return error_set(error, "cannot create the ring of vCPU %u: %s", i,
					 strerror(-error));
		profile->ring_count++;
	}
	return 0;
}

static int create_sampler(struct run_profile *profile)
{
	const struct run_options *run = profile->options;
	struct sampler_options options = {
		.rings = profile->rings,
		.vcpus = run->cpus,
		.view = &profile->view.view,
		.clock = run->clock == RUN_CLOCK_WALL ? SAMPLING_CLOCK_WALL : SAMPLING_CLOCK_CPU,
		.frequency = run->record.frequency,
		.callchains = run->record.callchains,
		.stack_time = run->stack_time,
		.paused = profile->attach || run->from_line,
	};

	return sampler_create(&profile->sampler, &options);
}

static bool is_linux(const struct symbols *symbols)
{
	struct symbol start;

	return symbols_find_name(symbols, "start_kernel", &start);
}

/* A kernel that is not Linux has no symbols in memory. They are in its image if that is an ELF
 * file, or in another file that the user gives. */
static void load_image(struct run_profile *profile)
{
	const struct record_options *record = &profile->options->record;

	profile->image =
		record->vmlinux ? record->vmlinux : machine_boot_start(profile->machine)->image;
	if (record->kallsyms || !profile->image ||
	    elf_symbols_load(&profile->symbols, profile->image, ELF_VIRTUAL_ADDRESSES,
			     (struct span){ 0 }))
		profile->image = NULL;
	else if (is_linux(profile->symbols))
		profile->image = NULL;
}

static int start_session(struct run_profile *profile)
{
	static const struct session_source_ops source = {
		.rings = source_rings,
		.view = source_view,
		.describe = source_describe,
		.stop = source_stop,
		.registers = source_registers,
		.publish = source_publish,
		.settle = source_settle,
		.lost = source_lost,
		.modules = source_modules,
		.count = source_count,
		.turn = source_turn,
		.times = source_times,
	};
	struct session_agent_options agent;
	struct session_options session = {
		.source = { &source, profile, profile->attach ? ATTACH_SOURCE_DELAY : 0 },
		.symfs = profile->options->symfs,
		.flight = profile->flight ? flight_requests_options_of(profile->flight) : NULL,
	};
	int error;

	record_options_apply(&profile->options->record, &session);
	if (profile->image)
		session.vmlinux = profile->image;
	if (profile->agent) {
		agent = run_agent_connect(profile->agent, machine_vm(profile->machine));
		session.agent = &agent;
		session.guest_memory = profile->options->agent_memory;
	}
	error = session_open(&profile->session, &session);
	return error ? error : session_start(profile->session);
}

int run_profile_start(struct run_profile *profile, struct machine *machine)
{
	int error = create_rings(profile);

	profile->machine = machine;
	if (error)
		return error;
	if (profile->flight)
		log_info(
			"flight recorder: samples stay in memory, up to %llu KiB for each vCPU; kvmscope dump "
			"or SIGUSR2 to process %d writes them",
			(unsigned long long)profile->options->ring_size >> 10, getpid());
	vm_view_init(&profile->view, &machine_vm(machine)->memory);
	error = run_bpf_start(&profile->attach, profile->options, machine);
	if (!error)
		error = create_sampler(profile);
	run_watch_join(profile->watch, profile->sampler, &profile->view.view, machine_vm(machine));
	load_image(profile);
	if (profile->image)
		run_watch_image(profile->watch, profile->symbols, profile->image);
	return error ? error : start_session(profile);
}

struct flight_requests *run_profile_flight(const struct run_profile *profile)
{
	return profile->flight;
}

struct run_watch *run_profile_watch(struct run_profile *profile)
{
	return profile->watch;
}

void run_profile_statistics(struct run_profile *profile, struct collector_statistics *statistics)
{
	session_statistics(profile->session, statistics);
}

void run_profile_set_times(struct run_profile *profile, const struct vcpu_times_rows *times,
			   enum vcpu_times_detail detail)
{
	if (run_times_replace(profile->times, times, detail))
		log_warning("no memory for the times of vCPUs in the recording");
}

void run_profile_times(struct run_profile *profile, struct vcpu_times *sum)
{
	struct vcpu_times_rows rows;
	enum vcpu_times_detail detail;

	*sum = (struct vcpu_times){ 0 };
	if (!run_times_read(profile->times, &rows, &detail) && detail == VCPU_TIMES_OF_PROC)
		*sum = vcpu_times_sum(&rows);
	vcpu_times_free(&rows);
}

bool run_profile_by_bpf(const struct run_profile *profile)
{
	return profile->attach;
}

void run_profile_reset(struct run_profile *profile)
{
	/* Brings what BPF has sampled into the rings. */
	if (profile->attach && attach_rescan(profile->attach))
		log_warning("%s", error_message());
	session_reset(profile->session);
}

int run_profile_stop(struct run_profile *profile, struct collector_statistics *statistics)
{
	struct agent_statistics agent;
	int error = session_stop(profile->session, statistics);

	if (session_agent_statistics(profile->session, &agent)) {
		run_agent_report(profile->options, &agent);
		session_report_symbols(profile->session);
	}
	return error;
}

void run_profile_destroy(struct run_profile *profile)
{
	if (!profile)
		return;
	session_close(profile->session);
	flight_requests_destroy(profile->flight);
	run_agent_destroy(profile->agent);
	run_watch_destroy(profile->watch);
	run_times_destroy(profile->times);
	symbols_free(profile->symbols);
	sampler_destroy(profile->sampler);
	attach_close(profile->attach);
	while (profile->ring_count)
		ring_destroy(profile->rings[--profile->ring_count]);
	pthread_mutex_destroy(&profile->rate_lock);
	free(profile);
}
