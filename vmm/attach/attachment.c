/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/thread_start.h"
#include "vmm/attach/attach_state.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <sys/resource.h>
#include <unistd.h>

#include "shared/log.h"
#include "vmm/attach/memory_layout.h"
#include "vmm/attach/qemu_command_line.h"
#include "vmm/attach/vmm_encryption.h"

/* Hot-plugged vCPUs that get a ring if QEMU does not limit their number. */
#define VCPUS_TO_COME 8
/* Rings of vCPUs that do not exist yet use at most this fraction of the descriptor limit. */
#define DESCRIPTORS_SHARE 16

const struct attach_backend *const attach_backends[] = { &attach_bpf, &attach_perf, &attach_ptrace,
							 &attach_qmp, NULL };

const struct attach_backend *attach_backend_find(const char *name)
{
	for (size_t i = 0; attach_backends[i]; i++)
		if (!strcmp(attach_backends[i]->name, name))
			return attach_backends[i];
	return NULL;
}

/* Opening */

/* A VM without KVM, or in a process that cannot be inspected, is reachable by its monitor only. */
static int check_process(const struct attach *attach, const struct attach_backend *backend)
{
	const struct vmm_process *process = attach->process;

	if (backend->emulated || !process->monitored)
		return 0;
	return error_set(-ENOTSUP, "process %d (%s) has no KVM VM, or may not be inspected",
			 process->pid, process->name);
}

/* Each possible vCPU has a ring: one page of memory and two descriptors. */
static unsigned int affordable_vcpus(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) ||
			       limit.rlim_cur / DESCRIPTORS_SHARE > VMM_VCPUS_MAX
		       ? VMM_VCPUS_MAX
		       : (unsigned int)limit.rlim_cur / DESCRIPTORS_SHARE;
}

/* Present and hot-pluggable vCPUs. */
/* us between tries to find a vCPU thread */
#define FIND_PAUSE 10000
#define FIND_TRIES 10

static unsigned int vcpus_max(const struct vmm_process *process, bool own)
{
	unsigned int last = process->vcpu_count ? process->vcpus[process->vcpu_count - 1].id : 0;
	unsigned int affordable = affordable_vcpus(), to_come = qemu_vcpu_ids(process->pid);

	if (own)
		return last + 1;
	to_come = MAX(last + 1 + VCPUS_TO_COME, MIN(to_come, affordable));
	return MIN(to_come, VMM_VCPUS_MAX);
}

/* Only events of perf count cycles. */
static int check_event(const struct attach *attach, const struct attach_backend *backend)
{
	if (attach->target.event == ATTACH_CYCLES && !backend->has_cycles)
		return error_set(-ENOTSUP, "%s samples by cpu-clock only, not by cycles",
				 backend->name);
	if (attach->target.host_stacks && !backend->has_outside)
		return error_set(-ENOTSUP, "%s has no call chains of the host (--host-stacks)",
				 backend->name);
	return attach->target.outside && !backend->has_outside
		       ? error_set(-ENOTSUP, "%s has no events kvm:exit and kvm:off-cpu",
				   backend->name)
		       : 0;
}

static bool hides_registers(const struct attach *attach)
{
	return attach->encryption > GUEST_SEV;
}

/* Backend perf needs no registers to know when the guest runs. Others would show what KVM last saw
 * of them. */
static int check_encryption(const struct attach *attach, const struct attach_backend *backend)
{
	return hides_registers(attach) && backend != &attach_perf
		       ? error_set(-ENOTSUP,
				   "%s reads the guest's registers, which are encrypted: use "
				   "--backend perf",
				   backend->name)
		       : 0;
}

static const char *const encryptions[] = {
	[GUEST_SEV] = "SEV",
	[GUEST_SEV_ANY] = "SEV, of whatever kind: the VMM has /dev/sev open",
	[GUEST_SEV_ES] = "SEV-ES",
	[GUEST_SEV_SNP] = "SEV-SNP",
	[GUEST_TDX] = "TDX",
};

static void detect_encryption(struct attach *attach)
{
	const char *name;

	attach->encryption = attach->own ? GUEST_PLAIN : vmm_encryption(attach->process);
	name = encryptions[attach->encryption];
	if (attach->encryption == GUEST_PLAIN)
		return;
	attach->target.callchains = false;
	if (hides_registers(attach))
		log_warning("the guest's memory and registers are encrypted (%s): samples show "
			    "when it ran and the host's part, without addresses and processes; "
			    "kvmscope stat counts its exits",
			    name);
	else
		log_warning("the guest's memory is encrypted (%s): samples have addresses, but no "
			    "call chains and processes, and symbols by --kallsyms only",
			    name);
}

static int try_backend(struct attach *attach, const struct attach_backend *backend)
{
	int error = check_process(attach, backend);

	if (!error)
		error = check_event(attach, backend);
	if (!error)
		error = check_encryption(attach, backend);

	attach->target.vcpus_max = vcpus_max(attach->process, attach->own);
	attach->target.frequency = attach->frequency;
	if (backend->frequency_max && attach->frequency > backend->frequency_max)
		attach->target.frequency = backend->frequency_max;
	atomic_store(&attach->hertz, attach->target.frequency);
	if (!error)
		error = backend->open(&attach->source, &attach->target);
	if (!error)
		attach->backend = backend;
	return error;
}

static void record_refusal(struct attach *attach, const struct attach_backend *backend)
{
	size_t used = strlen(attach->refused);

	snprintf(attach->refused + used, sizeof(attach->refused) - used, "%s%s: %s",
		 used ? "\n" : "", backend->name, error_message());
}

static int choose_backend(struct attach *attach, const char *name)
{
	const struct attach_backend *wanted = attach_backend_find(name);
	int error = -ENOTSUP;

	if (wanted)
		return try_backend(attach, wanted);
	if (strcmp(name, "auto") != 0)
		return error_set(-EINVAL, "unknown backend '%s'", name);
	for (size_t i = 0; attach_backends[i] && error; i++) {
		error = try_backend(attach, attach_backends[i]);
		if (error)
			record_refusal(attach, attach_backends[i]);
	}
	return error ? error_set(error, "no backend works here:\n%s", attach->refused) : 0;
}

/* Without memslots from KVM, guesses from the mappings of the process. Without memory, samples are
 * unsymbolized. */
static void find_memory(struct attach *attach)
{
	struct vmm_slot slots[VMM_SLOTS_MAX];
	int count =
		attach->backend->slots ? attach->backend->slots(attach->source, slots) : -ENOTSUP;

	if (attach->encryption != GUEST_PLAIN)
		return; /* unknown memory is not searched for a kernel */
	if (count >= 0) {
		vmm_memory_set_slots(&attach->memory, slots, (size_t)count);
		return;
	}
	if (attach->process->vms > 1) {
		log_info("only backend bpf can determine which memory of process %d belongs to VM "
			 "%d: samples by %s are unsymbolized",
			 attach->process->pid, attach->process->vm_fd, attach->backend->name);
		return;
	}
	attach->layout_guessed = true;
	if (memory_layout_guess(&attach->memory, attach->process))
		log_debug("%s", error_message());
}

static int make_rings(struct attach *attach, const struct attach_options *options)
{
	const struct vmm_process *process = attach->process;
	const struct ring_options ring = {
		.size = options->ring_size,
		.mode = options->overwrite ? RING_MODE_OVERWRITE : RING_MODE_CONSUMER,
	};
	size_t count;

	if (process->monitored) /* its vCPUs are known only since the backend is open */
		attach->target.vcpus_max = vcpus_max(process, false);
	count = attach->target.vcpus_max;
	attach->rings = calloc(count, sizeof(struct ring *));
	attach->sampled = calloc(VMM_VCPUS_MAX, sizeof(attach->sampled[0]));
	attach->cpus = calloc(count, sizeof(attach->cpus[0]));
	attach->clocks = calloc(count, sizeof(attach->clocks[0]));
	if (!attach->rings || !attach->sampled || !attach->cpus || !attach->clocks ||
	    wall_clock_open(&attach->wall, count))
		return error_set(-ENOMEM, "no memory for the vCPUs");
	for (; attach->ring_count < count; attach->ring_count++) {
		int error = ring_create_with(&attach->rings[attach->ring_count], &ring);

		if (error)
			return error_set(error, "cannot create the ring of vCPU %zu: %s",
					 attach->ring_count, strerror(-error));
	}
	return 0;
}

static int check_threads(const struct attach *attach)
{
	const struct vmm_process *process = attach->process;
	size_t unknown = 0;

	for (size_t i = 0; i < process->vcpu_count; i++)
		unknown += !process->vcpus[i].tid;
	if (unknown == process->vcpu_count)
		return error_set(
			-ENOENT,
			"no thread of process %d (%s) is known to run a vCPU: mount debugfs at "
			"/sys/kernel/debug, where KVM shows them (since Linux 5.19), or let "
			"the VMM name its threads (QEMU: -name debug-threads=on)",
			process->pid, process->name);
	if (unknown)
		log_warning("%zu of %zu vCPUs are not sampled (yet): their threads are unknown; "
			    "unplugged ones have none",
			    unknown, process->vcpu_count);
	return 0;
}

static int make_events(struct attach *attach)
{
	attach->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	attach->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return attach->stop_fd < 0 || attach->end_fd < 0
		       ? error_set(-errno, "cannot create an eventfd: %s", strerror(errno))
		       : request_open(&attach->request);
}

static bool may_monitor(const char *backend)
{
	const struct attach_backend *wanted = attach_backend_find(backend);

	return !wanted || wanted->emulated;
}

/* A VM without KVM can still have a monitor. */
static int open_process(struct attach *attach, const struct attach_options *options)
{
	char message[ERROR_MESSAGE_SIZE];
	pid_t pid = options->pid;
	int error = pid ? 0 : monitor_find_process(&options->monitor, &pid);

	if (error)
		return error;
	error = vmm_process_open(&attach->process, pid, options->vm);
	if ((error != -ENOENT && error != -EACCES) || options->vm || !may_monitor(options->backend))
		return error;
	snprintf(message, sizeof(message), "%s", error_message());
	if (!monitor_is_known(&options->monitor, pid))
		return error_set(
			error,
			"%s; a QEMU without KVM, or that may not be inspected, can be sampled "
			"through its monitor by kvmscope attach --qmp or --domain",
			message);
	return vmm_process_open_monitored(&attach->process, pid);
}

/* For users of libvirt without access to the domain's process. */
static int open_remote_memory(struct attach *attach, const struct monitor_address *address)
{
	char message[ERROR_MESSAGE_SIZE];
	int error;

	snprintf(message, sizeof(message), "%s", error_message());
	error = vmm_memory_open_remote(&attach->memory, address->domain, address->uri);
	if (!error)
		log_info("%s; reading it through libvirt, which is slow", message);
	return error;
}

static int open_memory(struct attach *attach, const struct attach_options *options)
{
	int error = vmm_memory_open(&attach->memory, attach->process);

	return error && options->monitor.domain && may_monitor(options->backend)
		       ? open_remote_memory(attach, &options->monitor)
		       : error;
}

static bool has_thread(const struct vmm_process *process)
{
	for (size_t i = 0; i < process->vcpu_count; i++)
		if (process->vcpus[i].tid)
			return true;
	return false;
}

/* A VMM that runs its vCPUs on new threads may have none at the moment. */
static void find_threads(struct attach *attach)
{
	attach_update_threads(attach);
	for (int tries = 0; tries < FIND_TRIES && !attach->own && !has_thread(attach->process);
	     tries++) {
		usleep(FIND_PAUSE);
		if (vmm_process_scan(attach->process))
			return;
		attach_update_threads(attach);
	}
}

static int open_all(struct attach *attach, const struct attach_options *options)
{
	int error = open_process(attach, options);

	if (!error)
		error = open_memory(attach, options);
	attach->target = (struct attach_target){
		.process = attach->process,
		.memory = &attach->memory,
		.callchains = options->callchains,
		.event = options->event,
		.outside = options->outside,
		.host_stacks = options->host_stacks,
		.own = options->own,
		.monitor = options->monitor,
		.stop_limit =
			1000ull * (options->stop_limit ? options->stop_limit : ATTACH_STOP_LIMIT),
		.sink = { .sample = attach_record_sample,
			  .lost = attach_record_lost,
			  .context = attach },
	};
	attach->frequency = options->frequency;
	attach->own = options->own;
	if (!error)
		detect_encryption(attach);
	if (!error)
		error = choose_backend(attach, options->backend);
	if (!error)
		find_threads(attach);
	if (!error && !attach->own)
		error = check_threads(attach);
	if (!error)
		error = make_rings(attach, options);
	if (!error)
		error = make_events(attach);
	if (!error)
		error = thread_exits_open(&attach->exits);
	if (!error)
		find_memory(attach);
	return error;
}

int attach_open(struct attach **result, const struct attach_options *options)
{
	struct attach *attach = calloc(1, sizeof(*attach));
	int error;

	if (!attach)
		return error_set(-ENOMEM, "no memory to attach to process %d", options->pid);
	attach->stop_fd = attach->end_fd = attach->request.fd = attach->exits.fd = -1;
	attach->memory.memory_fd = attach->memory.pagemap_fd = -1;
	pthread_mutex_init(&attach->kernel_lock, NULL);
	error = open_all(attach, options);
	thread_check_release(&attach->owner);
	if (error)
		attach_close(attach);
	else
		*result = attach;
	return error;
}

const struct vmm_process *attach_process(const struct attach *attach)
{
	return attach->process;
}

const struct attach_backend *attach_backend(const struct attach *attach)
{
	return attach->backend;
}

enum attach_event attach_event(const struct attach *attach)
{
	return attach->backend->event(attach->source);
}

unsigned int attach_frequency(const struct attach *attach)
{
	return atomic_load(&attach->hertz);
}

const char *attach_refused(const struct attach *attach)
{
	return attach->refused;
}

struct ring *const *attach_rings(const struct attach *attach, size_t *count)
{
	*count = attach->ring_count;
	return attach->rings;
}

const struct guest_view *attach_view(const struct attach *attach)
{
	return &attach->memory.view;
}

int attach_start(struct attach *attach)
{
	int error = attach_update_vcpus(attach);

	attach->request.frequency = attach->ticks = attach->target.frequency;
	/* The thread detects a VM that has ended meanwhile. */
	if (error && !attach_process_exited(error) && !vmm_process_ended(attach->process))
		return error;
	thread_check_release(&attach->owner);
	error = thread_start(&attach->thread, "attach", attach_run, attach);
	if (error)
		return error_set(error, "cannot start the attach thread: %s", strerror(-error));
	attach->started = true;
	return 0;
}

int attach_end_fd(const struct attach *attach)
{
	return attach->end_fd;
}

void attach_statistics(struct attach *attach, struct attach_statistics *statistics)
{
	*statistics = (struct attach_statistics){
		.guest = atomic_load(&attach->guest),
		.host = atomic_load(&attach->host),
		.outside = atomic_load(&attach->outside),
		.lost = atomic_load(&attach->lost),
		.vcpus = atomic_load(&attach->vcpus),
		.ended = atomic_load(&attach->ended),
		.times = wall_clock_read(&attach->wall),
	};
	pthread_mutex_lock(&attach->kernel_lock);
	statistics->stops = attach->stops;
	pthread_mutex_unlock(&attach->kernel_lock);
}

int attach_times(struct attach *attach, struct vcpu_times_rows *rows)
{
	return wall_clock_rows(&attach->wall, rows);
}

static void log_callchains(struct attach *attach)
{
	const struct kernel_callchains *chains = &attach->chains;

	if (attach_needs_callchains(attach))
		log_debug("kernel call chains: %llu complete, %llu truncated, %llu missing "
			  "without a copy of the stack, %llu missing before the kernel was known",
			  (unsigned long long)chains->whole, (unsigned long long)chains->cut,
			  (unsigned long long)chains->without_stack,
			  (unsigned long long)chains->without_kernel);
}

void attach_stop(struct attach *attach)
{
	const uint64_t one = 1;

	if (attach->started) {
		if (write(attach->stop_fd, &one, sizeof(one)) < 0)
			log_debug("the attach thread ends with the VM");
		pthread_join(attach->thread, NULL);
		thread_check_release(&attach->owner);
		attach->started = false;
	}
	if (attach->source) {
		attach_drain(attach);
		log_callchains(attach);
		attach->hangs = !attach->backend->close(attach->source);
		attach->source = NULL;
	}
}

int attach_error(const struct attach *attach)
{
	assert(!attach->started);
	return attach->error ? error_set(attach->error, "%s", attach->error_text) : 0;
}

void attach_close(struct attach *attach)
{
	if (!attach)
		return;
	if (attach->source && attach->ring_count)
		attach_stop(attach);
	else if (attach->source)
		attach->hangs = !attach->backend->close(attach->source);
	if (attach->hangs)
		return;
	while (attach->ring_count)
		ring_destroy(attach->rings[--attach->ring_count]);
	free(attach->rings);
	free(attach->sampled);
	free(attach->cpus);
	free(attach->clocks);
	wall_clock_close(&attach->wall);
	if (attach->memory.memory_fd >= 0 || attach->memory.remote)
		vmm_memory_close(&attach->memory);
	vmm_process_close(attach->process);
	if (attach->stop_fd >= 0)
		close(attach->stop_fd);
	if (attach->end_fd >= 0)
		close(attach->end_fd);
	if (attach->request.fd >= 0)
		request_close(&attach->request);
	thread_exits_close(&attach->exits);
	pthread_mutex_destroy(&attach->kernel_lock);
	free(attach);
}
