/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/exit_counter.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/array.h"
#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/attach/bpf_library.h"
#include "vmm/attach/kvm_tracepoint.h"

#include "exit_program.skel.h"

#define EXIT_LINKS 9

struct exit_counter {
	struct exit_program *programs;
	struct bpf_link *links[EXIT_LINKS];
	size_t link_count;
	bool exits, accesses;
	char missing[ERROR_MESSAGE_SIZE]; /* why not */
};

/* The programs */

static int keep(struct exit_counter *counter, struct bpf_link *link)
{
	if (!link)
		return -errno;
	counter->links[counter->link_count++] = link;
	return 0;
}

/* The entry before the exit, so that each exit that is seen has its entry seen. */
static int attach_programs(struct exit_counter *counter, unsigned int id)
{
	struct bpf_program *const scheduler[] = { counter->programs->progs.wake_thread,
						  counter->programs->progs.switch_threads },
				  *const kvm[] = { counter->programs->progs.leave_kvm,
						   counter->programs->progs.count_entry },
				  *const accesses[] = { counter->programs->progs.count_mmio,
							counter->programs->progs.count_port,
							counter->programs->progs.count_msr,
							counter->programs->progs.count_hypercall };
	int error = 0;

	for (size_t i = 0; i < 2 && !error; i++)
		error = keep(counter, bpf_program__attach(scheduler[i]));
	for (size_t i = 0; i < 2 && !error && counter->exits; i++)
		error = keep(counter, bpf_program__attach(kvm[i]));
	for (size_t i = 0; i < 4 && !error && counter->accesses; i++)
		error = keep(counter, bpf_program__attach(accesses[i]));
	if (!error && counter->exits)
		error = keep(counter,
			     kvm_exit_tracepoint_attach(id, counter->programs->progs.count_exit));
	return error ? error_set(
			       error == -EPERM ? -EACCES : error,
			       "cannot attach to tracepoints of KVM and the scheduler: %s (run as "
			       "root, or with CAP_BPF and CAP_PERFMON)",
			       strerror(-error))
		     : 0;
}

/* The fields of KVM's types that the programs read. */
static int find_fields(struct exit_program__rodata *fields, struct btf *kernel)
{
	struct btf *module = NULL;
	const struct btf *types = kernel;
	long notifier, id, pid, arch, mp_state;

	if (btf__find_by_name_kind(kernel, "kvm_vcpu", BTF_KIND_STRUCT) < 0)
		types = module = btf__load_module_btf("kvm", kernel);
	notifier = bpf_library_member(types, "kvm_vcpu", "preempt_notifier");
	id = bpf_library_member(types, "kvm_vcpu", "vcpu_id");
	pid = bpf_library_member(types, "kvm_vcpu", "pid");
	arch = bpf_library_member(types, "kvm_vcpu", "arch");
	mp_state = bpf_library_member(types, "kvm_vcpu_arch", "mp_state");
	btf__free(module);
	if (notifier < 0 || id < 0 || pid < 0 || arch < 0 || mp_state < 0)
		return error_set(-ENOTSUP,
				 "this kernel does not describe KVM's types (BTF): KVM is "
				 "not loaded, or the kernel is too old");
	fields->notifier_offset = (uint32_t)notifier;
	fields->vcpu_id_offset = (uint32_t)id;
	fields->pid_offset = (uint32_t)pid;
	fields->mp_state_offset = (uint32_t)(arch + mp_state);
	return 0;
}

static int set_constants(struct exit_counter *counter, pid_t pid,
			 const struct kvm_exit_tracepoint *tracepoint)
{
	struct exit_program__rodata *constants = counter->programs->rodata;
	struct stat namespace;
	struct btf *kernel;
	int error;

	if (stat("/proc/self/ns/pid", &namespace))
		return error_set(-errno, "cannot read /proc/self/ns/pid: %s", strerror(errno));
	constants->pid_wanted = (uint32_t)pid;
	constants->namespace_wanted = (uint32_t) namespace.st_ino;
	constants->reason_offset = tracepoint->reason;
	constants->isa_offset = tracepoint->isa;
	constants->vcpu_offset = tracepoint->vcpu;
	constants->rip_offset = tracepoint->rip;
	constants->sees_entries = counter->exits;
	kernel = bpf_library_types();
	error = kernel ? find_fields(constants, kernel)
		       : error_set(-ENOTSUP, "this kernel has no BTF, which BPF programs need");
	bpf_library_free_types(kernel);
	return error;
}

static int load(struct exit_counter *counter, pid_t pid,
		const struct kvm_exit_tracepoint *tracepoint)
{
	int error;

	bpf_library_free_types(bpf_library_types()); /* directs libbpf's messages */
	counter->programs = exit_program__open();
	if (!counter->programs)
		return error_set(-ENOTSUP, "libbpf cannot open the BPF program: %s",
				 strerror(errno));
	error = set_constants(counter, pid, tracepoint);
	if (error)
		return error;
	bpf_program__set_autoload(counter->programs->progs.count_exit, counter->exits);
	error = exit_program__load(counter->programs);
	if (error == -EPERM)
		return error_set(-EACCES, "BPF programs may not be loaded: run as root, or with "
					  "CAP_BPF and CAP_PERFMON");
	return error ? error_set(-ENOTSUP,
				 "this kernel rejects the BPF program that counts exits "
				 "(%s): see --verbose",
				 strerror(-error))
		     : 0;
}

int exit_counter_open(struct exit_counter **result, pid_t pid, bool accesses)
{
	struct exit_counter *counter = calloc(1, sizeof(*counter));
	struct kvm_exit_tracepoint tracepoint = { 0 };
	int error;

	if (!counter)
		return error_set(-ENOMEM, "no memory for counting exits");
	counter->exits = !kvm_exit_tracepoint_find(&tracepoint);
	counter->accesses = accesses && counter->exits;
	if (!counter->exits)
		snprintf(counter->missing, sizeof(counter->missing), "%s", error_message());
	error = load(counter, pid, &tracepoint);
	if (!error)
		error = attach_programs(counter, tracepoint.id);
	if (error)
		exit_counter_close(counter);
	else
		*result = counter;
	return error;
}

void exit_counter_close(struct exit_counter *counter)
{
	if (!counter)
		return;
	while (counter->link_count)
		bpf_link__destroy(counter->links[--counter->link_count]);
	exit_program__destroy(counter->programs);
	free(counter);
}

const char *exit_counter_missing(const struct exit_counter *counter)
{
	return counter->exits ? NULL : counter->missing;
}

enum vcpu_times_detail exit_counter_detail(const struct exit_counter *counter)
{
	if (!counter)
		return VCPU_TIMES_OF_PROC;
	return exit_counter_missing(counter) ? VCPU_TIMES_OF_SCHEDULER : VCPU_TIMES_ALL;
}

/* Times */

/* Runs the iterator, which adds the known threads. */
static int add_known_threads(struct exit_counter *counter)
{
	struct bpf_link *link = bpf_program__attach_iter(counter->programs->progs.find_vcpus, NULL);
	char none[16];
	int fd;

	if (!link)
		return -errno;
	fd = bpf_iter_create(bpf_link__fd(link));
	if (fd >= 0) {
		while (read(fd, none, sizeof(none)) > 0)
			;
		close(fd);
	}
	bpf_link__destroy(link);
	return fd < 0 ? fd : 0;
}

int exit_counter_follow(struct exit_counter *counter, const struct vmm_process *process)
{
	const int map = bpf_map__fd(counter->programs->maps.known_threads);
	int error;

	for (size_t i = 0; i < process->vcpu_count; i++) {
		const struct vmm_vcpu *vcpu = &process->vcpus[i];
		const __u32 tid = (__u32)vcpu->tid, id = vcpu->id;

		if (tid)
			bpf_map_update_elem(map, &tid, &id, BPF_ANY);
	}
	error = add_known_threads(counter);
	return error ? error_set(error,
				 "cannot run the BPF program that finds the vCPU threads: %s",
				 strerror(-error))
		     : 0;
}

#define TRIES 100 /* a writer takes some ns */

/* Copies a thread as it was at one time. The kernel copies without a lock. */
static bool copy_thread(int map, const __u32 *tid, struct vcpu_thread *thread)
{
	struct vcpu_thread again;

	for (int i = 0; i < TRIES; i++) {
		if (bpf_map_lookup_elem(map, tid, thread) || bpf_map_lookup_elem(map, tid, &again))
			return false;
		if (thread->sequence % 2 == 0 && !memcmp(thread->ns, again.ns, sizeof(again.ns)) &&
		    thread->since == again.since && thread->state == again.state)
			return true;
	}
	return true;
}

static void add_times(struct vcpu_times *to, const struct vcpu_thread *thread, uint64_t now)
{
	for (unsigned int i = 0; i < VCPU_STATES; i++)
		to->ns[i] += thread->ns[i];
	if (thread->state < VCPU_STATES && now > thread->since)
		to->ns[thread->state] += now - thread->since;
	to->user_samples += thread->interrupted[0];
	to->kernel_samples += thread->interrupted[1];
}

int exit_counter_times(const struct exit_counter *counter, struct vcpu_times_rows *rows)
{
	const int map = bpf_map__fd(counter->programs->maps.vcpus);
	__u32 tid, *previous = NULL;

	*rows = (struct vcpu_times_rows){ 0 };
	for (; !bpf_map_get_next_key(map, previous, &tid); previous = &tid) {
		struct vcpu_thread thread;
		struct vcpu_times *row;

		if (!copy_thread(map, &tid, &thread))
			continue;
		row = vcpu_times_row(rows, thread.vcpu);
		if (!row) {
			vcpu_times_free(rows);
			return error_set(-ENOMEM, "no memory for the times of vCPUs");
		}
		add_times(row, &thread, clock_ns(CLOCK_MONOTONIC));
	}
	return 0;
}

/* Counts */

int exit_counter_read(const struct exit_counter *counter, struct exit_rows *rows)
{
	const int map = bpf_map__fd(counter->programs->maps.counts);
	struct exit_key key, *previous = NULL;
	size_t capacity = 0;

	*rows = (struct exit_rows){ .lost = counter->programs->bss->lost };
	for (; !bpf_map_get_next_key(map, previous, &key); previous = &key) {
		struct exit_row *row;

		if (array_reserve(&rows->rows, &capacity, rows->count + 1)) {
			free(rows->rows);
			return error_set(-ENOMEM, "no memory for the counts of exits");
		}
		row = &rows->rows[rows->count];
		row->reason = key.reason;
		rows->count += !bpf_map_lookup_elem(map, &key, &row->counts);
	}
	return 0;
}

int exit_counter_accesses(const struct exit_counter *counter, struct access_rows *rows)
{
	const int map = bpf_map__fd(counter->programs->maps.accesses);
	struct access_key key, *previous = NULL;
	size_t capacity = 0;

	*rows = (struct access_rows){ .lost = counter->programs->bss->accesses_lost };
	for (; !bpf_map_get_next_key(map, previous, &key); previous = &key) {
		struct access_row *row;

		if (array_reserve(&rows->rows, &capacity, rows->count + 1)) {
			free(rows->rows);
			return error_set(-ENOMEM, "no memory for the counts of accesses");
		}
		row = &rows->rows[rows->count];
		row->kind = key.kind;
		row->address = key.address;
		rows->count += !bpf_map_lookup_elem(map, &key, &row->counts);
	}
	return 0;
}
