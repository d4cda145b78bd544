/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_profile.h"

#include <cpuid.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "shared/ring.h"
#include "vmm/cli/run_agent.h"
#include "vmm/cli/run_bpf.h"
#include "vmm/cli/run_watch.h"
#include "vmm/guest/linux/kernel_identity.h"
#include "vmm/sample/sampler.h"
#include "vmm/sample/vm_view.h"
#include "vmm/session/session.h"
#include "vmm/symbols/elf_symbols.h"

/* ns: stops are of the same kernel if they are not further apart. */
#define RECENT (100 * NS_PER_MS)

struct run_profile {
	const struct run_options *options;
	struct machine *machine;
	struct ring *rings[VM_CPUS_MAX];
	unsigned int ring_count;
	struct vm_view view;
	struct sampler *sampler; /* paused while BPF samples: for watches alone */
	struct attach *attach;   /* what samples by BPF; NULL: the sampler does, by kicks */
	struct ring *collected[2 * VM_CPUS_MAX]; /* of both, as far as they are in use */
	struct run_agent *agent;                 /* NULL without --agent */
	struct ring *sideband_ring;              /* the agent's */
	struct collector *collector;             /* NULL before and after it runs */
	struct collector_statistics last;        /* as they were when it was stopped */
	pthread_mutex_t collector_lock;          /* of both, once it runs */
	struct flight_requests *flight;          /* NULL without one */
	struct run_watch *watch;
	pthread_mutex_t rate_lock; /* of the next two, and of telling the sampler of them */
	unsigned int frequency;    /* Hz while it is not paused */
	bool paused;
	atomic_flag line_seen; /* options->from_line was printed */
	char cpu_description[49];
};

int run_profile_create(struct run_profile **profile, const struct run_options *options)
{
	int error;

	*profile = calloc(1, sizeof(**profile));
	if (!*profile)
		return error_set(-ENOMEM, "no memory for the profile");
	(*profile)->options = options;
	(*profile)->frequency = options->frequency;
	(*profile)->paused = options->from_line;
	pthread_mutex_init(&(*profile)->rate_lock, NULL);
	pthread_mutex_init(&(*profile)->collector_lock, NULL);
	error = run_watch_create(&(*profile)->watch, options);
	if (!error && options->flight)
		error = run_flight_create(&(*profile)->flight, options);
	if (!error && options->agent)
		error = run_agent_create(&(*profile)->agent, options);
	if (error) {
		run_profile_destroy(*profile);
		*profile = NULL;
	}
	return error;
}

static void on_vcpu_start(void *context, struct vcpu *vcpu)
{
	struct run_profile *profile = context;

	if (!sampler_attach(profile->sampler, vcpu) && !run_watch_enter(profile->watch, vcpu) &&
	    (!profile->attach || !run_bpf_enter(profile->attach, vcpu)))
		return;
	log_error("vCPU %u can not be sampled: %s", vcpu->index, error_message());
	machine_stop(profile->machine);
}

static void on_vcpu_end(void *context, struct vcpu *vcpu)
{
	struct run_profile *profile = context;

	run_watch_leave(profile->watch, vcpu);
	sampler_detach(profile->sampler, vcpu);
}

static void on_sample(void *context, struct vcpu *vcpu)
{
	struct run_profile *profile = context;

	sampler_take(profile->sampler, vcpu);
}

static void on_kicked(void *context, struct vcpu *vcpu)
{
	struct run_profile *profile = context;

	sampler_kicked(profile->sampler, vcpu);
	run_watch_kicked(profile->watch, vcpu);
}

static void on_debug(void *context, struct vcpu *vcpu)
{
	struct run_profile *profile = context;

	run_watch_debug(profile->watch, vcpu);
}

/* A vCPU that is kicked takes the frequency over at once. */
static int set_frequency(struct run_profile *profile, unsigned int frequency)
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
	int error = set_frequency(profile, paused ? 0 : frequency);

	if (error)
		return error;
	profile->frequency = frequency;
	profile->paused = paused;
	return 0;
}

int run_profile_set_frequency(struct run_profile *profile, unsigned int frequency)
{
	int error;

	if (!frequency || frequency > RUN_FREQUENCY_MAX)
		return error_set(-EINVAL,
				 "a sampling frequency of %u Hz is not possible: 1 to %u are",
				 frequency, RUN_FREQUENCY_MAX);
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

static void on_console_line(void *context, const char *line)
{
	struct run_profile *profile = context;

	if (strstr(line, profile->options->from_line) &&
	    !atomic_flag_test_and_set(&profile->line_seen))
		run_profile_pause(profile, false);
}

void run_profile_join(struct run_profile *profile, struct machine_options *machine)
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
		run_agent_join(profile->agent, machine);
}

static int make_rings(struct run_profile *profile)
{
	const struct ring_options options = {
		.size = profile->options->ring_size,
		.mode = profile->options->flight ? RING_MODE_OVERWRITE : RING_MODE_CONSUMER,
	};

	for (unsigned int i = 0; i < profile->options->cpus; i++) {
		int error = ring_create_with(&profile->rings[i], &options);

		if (error)
			return error_set(error, "can not make the ring of vCPU %u: %s", i,
					 strerror(-error));
		profile->ring_count++;
	}
	return 0;
}

static int make_sampler(struct run_profile *profile)
{
	struct sampler_options options = {
		.rings = profile->rings,
		.vcpus = profile->options->cpus,
		.view = &profile->view.view,
		.clock = profile->options->wall_clock ? SAMPLING_CLOCK_WALL : SAMPLING_CLOCK_CPU,
		.frequency = profile->options->frequency,
		.callchains = profile->options->callchains,
		.stack_time = profile->options->stack_time,
		.paused = profile->attach || profile->options->from_line,
	};

	return sampler_create(&profile->sampler, &options);
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

/* A stop at CPL 0 has a CR3 that maps all of the kernel also under KPTI; a vCPU that only starts
 * has none. */
static unsigned int worth(const struct guest_registers *registers)
{
	return guest_kernel_can_run(registers) ? 1 + (registers->cpl == 0) : 0;
}

/*
 * For finding the kernel: the best of the latest stops. A vCPU that did not run since may have been
 * stopped in a kernel that is gone.
 */
static bool best_stop(const struct run_profile *profile, struct guest_registers *registers)
{
	uint64_t latest = latest_stop(profile), time;
	struct guest_registers one;
	bool found = false;

	for (unsigned int i = 0; i < profile->ring_count; i++) {
		if (!sampler_registers(profile->sampler, i, &one, &time) || time + RECENT < latest)
			continue;
		if (!found || worth(&one) > worth(registers))
			*registers = one;
		found = true;
	}
	return found;
}

static bool latest_registers(void *context, struct guest_registers *registers)
{
	struct run_profile *profile = context;

	return profile->attach ? attach_registers(profile->attach, registers)
			       : best_stop(profile, registers);
}

static void take_kernel(void *context, const struct guest_kernel *kernel)
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
		sampler_forget_registers(profile->sampler);
}

/* Samples of kicks and watches are taken on the vCPU threads, attach's beside them. A vCPU that the
 * guest has not started takes none: there is no waiting for its next one. */
static void settle(void *context)
{
	struct run_profile *profile = context;

	if (profile->attach)
		attach_wait_for_users(profile->attach);
	sampler_wait_for_users(profile->sampler);
}

static void take_modules(void *context, const struct guest_module *list, size_t count)
{
	run_watch_modules(((struct run_profile *)context)->watch, list, count);
}

static void lose_kernel(void *context)
{
	struct run_profile *profile = context;

	if (profile->attach)
		attach_drop_kernel(profile->attach);
	run_watch_no_kernel(profile->watch);
}

static bool count_watch(void *context, unsigned int watch, unsigned int vcpu,
			struct perf_data_count *count)
{
	struct run_profile *profile = context;
	struct watch_statistics statistics;

	watch_statistics(run_watch_watches(profile->watch), watch, (int)vcpu, &statistics);
	*count = (struct perf_data_count){ statistics.hits, statistics.times.enabled,
					   statistics.times.running };
	return count->enabled;
}

static void turn(void *context)
{
	struct run_profile *profile = context;

	run_watch_turn(profile->watch);
	if (profile->agent)
		run_agent_turn(profile->agent);
}

static void see_mapping(void *context, const struct sideband_mmap *mapping)
{
	struct run_profile *profile = context;

	run_agent_see_mapping(profile->agent, mapping);
}

static struct reported_kernel *hear_of_kernel(void *context, uint64_t modules_hash)
{
	struct run_profile *profile = context;

	return run_agent_kernel(profile->agent, modules_hash);
}

static int hear_of_tasks(void *context, bool ask, struct reported_tasks *told)
{
	return run_agent_tasks(((struct run_profile *)context)->agent, ask, told);
}

/* The processor's brand string, which the guest sees too (SDM vol. 2A, CPUID 0x80000002 to 4). */
static void describe_cpu(char *text)
{
	unsigned int words[3][4];

	*text = '\0';
	for (unsigned int i = 0; i < 3; i++) {
		unsigned int *part = words[i];

		if (!__get_cpuid(0x80000002 + i, &part[0], &part[1], &part[2], &part[3]))
			return;
	}
	memcpy(text, words, sizeof(words));
	text[sizeof(words)] = '\0';
}

static bool is_linux(const char *image)
{
	struct symbols *symbols = NULL;
	struct symbol start;
	bool found;

	if (elf_symbols_load(&symbols, image, ELF_VIRTUAL_ADDRESSES, NULL, 0))
		return false;
	found = symbols_find_name(symbols, "start_kernel", &start);
	symbols_free(symbols);
	return found;
}

/* A kernel that is no Linux can not be asked for its names: they are in its image, if that is an
 * ELF file. */
static const char *symbol_file(const struct run_profile *profile)
{
	const struct boot_start *start = machine_boot_start(profile->machine);

	if (profile->options->vmlinux || profile->options->kallsyms || !start->image ||
	    is_linux(start->image))
		return profile->options->vmlinux;
	return start->image;
}

/* BPF's first: the number of a ring is its vCPU's as far as there are vCPUs. */
static size_t collect_rings(struct run_profile *profile)
{
	struct ring *const *rings;
	size_t count = 0;

	if (profile->attach) {
		rings = attach_rings(profile->attach, &count);
		memcpy(profile->collected, rings, count * sizeof(struct ring *));
	}
	memcpy(&profile->collected[count], profile->rings,
	       profile->ring_count * sizeof(struct ring *));
	return count + profile->ring_count;
}

static int start_collector(struct run_profile *profile)
{
	const struct run_options *options = profile->options;
	size_t rings = collect_rings(profile);
	struct collector_options collector = {
		.rings = profile->collected,
		.ring_count = rings,
		.sideband_rings = &profile->sideband_ring,
		.sideband_ring_count = profile->agent ? 1 : 0,
		.view = &profile->view.view,
		.registers = latest_registers,
		.publish = take_kernel,
		.settle = settle,
		.lost = lose_kernel,
		.modules = take_modules,
		.turn = turn,
		.count = count_watch,
		.mapped = profile->agent ? see_mapping : NULL,
		.told = profile->agent ? hear_of_kernel : NULL,
		.tasks = profile->agent ? hear_of_tasks : NULL,
		.context = profile,
		.delay = profile->attach ? SESSION_DELAY : 0,
		.output = { .path = options->output,
			    .host_samples = profile->attach,
			    .perspective = options->perspective,
			    .wall_clock = options->wall_clock,
			    .frequency = options->frequency,
			    .callchains = options->callchains,
			    .compression = options->compression,
			    .vcpus = options->cpus,
			    .vmm_pid = getpid(),
			    .command_line = options->command_line,
			    .hostname = "",
			    .release = "",
			    .arch = "x86_64",
			    .cpu_description = profile->cpu_description,
			    .memory_kib = options->memory_size >> 10 },
		.kallsyms = options->kallsyms,
		.symfs = options->symfs,
		.vmlinux = symbol_file(profile),
		.btf = options->btf,
		.btf_hint = "--btf FILE gives it",
		.buildid_cache = options->buildid_cache,
		.flight = profile->flight ? flight_requests_for(profile->flight) : NULL,
	};

	if (profile->agent) {
		profile->sideband_ring = run_agent_ring(profile->agent);
		collector.account = run_agent_account(profile->agent);
	}
	collector.output.watches = run_watch_events(profile->watch);
	describe_cpu(profile->cpu_description);
	return collector_start(&profile->collector, &collector);
}

int run_profile_start(struct run_profile *profile, struct machine *machine)
{
	int error = make_rings(profile);

	profile->machine = machine;
	if (error)
		return error;
	if (profile->flight)
		log_info(
			"flight recorder: samples stay in memory, up to %zu KiB of each vCPU; kvmscope dump "
			"or SIGUSR2 to process %d writes them",
			(size_t)profile->options->ring_size >> 10, getpid());
	vm_view_init(&profile->view, &machine_vm(machine)->memory);
	error = run_bpf_start(&profile->attach, profile->options);
	if (!error)
		error = make_sampler(profile);
	run_watch_join(profile->watch, profile->sampler, &profile->view.view, machine_vm(machine));
	if (!error && profile->agent)
		error = run_agent_start(profile->agent, machine_vm(machine));
	return error ? error : start_collector(profile);
}

struct flight_requests *run_profile_flight(const struct run_profile *profile)
{
	return profile->flight;
}

struct run_watch *run_profile_watch(struct run_profile *profile)
{
	return profile->watch;
}

void run_profile_summarize_watches(struct run_profile *profile)
{
	run_watch_summarize(profile->watch);
}

void run_profile_statistics(struct run_profile *profile, struct collector_statistics *statistics)
{
	pthread_mutex_lock(&profile->collector_lock);
	if (profile->collector)
		collector_statistics(profile->collector, statistics);
	else
		*statistics = profile->last;
	pthread_mutex_unlock(&profile->collector_lock);
}

bool run_profile_by_bpf(const struct run_profile *profile)
{
	return profile->attach;
}

/* What BPF has sampled is to be in the rings. */
void run_profile_reset(struct run_profile *profile)
{
	if (profile->attach && attach_rescan(profile->attach))
		log_warning("%s", error_message());
	collector_reset(profile->collector);
}

static struct collector *take_collector(struct run_profile *profile)
{
	struct collector *collector = profile->collector;

	run_profile_statistics(profile, &profile->last);
	pthread_mutex_lock(&profile->collector_lock);
	profile->collector = NULL;
	pthread_mutex_unlock(&profile->collector_lock);
	return collector;
}

int run_profile_stop(struct run_profile *profile, struct collector_statistics *statistics)
{
	struct collector *collector;
	char message[ERROR_MESSAGE_SIZE] = "";
	int error = 0, collected;

	if (profile->attach) {
		attach_stop(profile->attach);
		error = attach_error(profile->attach);
		snprintf(message, sizeof(message), "%s", error ? error_message() : "");
	}
	collector = take_collector(profile);
	run_watch_end(profile->watch);
	if (profile->agent)
		run_agent_stop(profile->agent);
	collected = collector_stop(collector, statistics);
	return error ? error_set(error, "%s", message) : collected;
}

void run_profile_destroy(struct run_profile *profile)
{
	if (!profile)
		return;
	if (profile->attach) /* it uses the collector's kernel */
		attach_stop(profile->attach);
	if (profile->collector)
		collector_stop(profile->collector, NULL);
	flight_requests_destroy(profile->flight);
	run_agent_destroy(profile->agent);
	run_watch_destroy(profile->watch);
	sampler_destroy(profile->sampler);
	attach_close(profile->attach);
	while (profile->ring_count)
		ring_destroy(profile->rings[--profile->ring_count]);
	pthread_mutex_destroy(&profile->rate_lock);
	pthread_mutex_destroy(&profile->collector_lock);
	free(profile);
}
