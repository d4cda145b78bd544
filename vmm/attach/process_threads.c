// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/process_threads.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "vmm/attach/kvm_directory.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/process_words.h"

/* A thread that runs its guest is seldom seen waiting for it: it is looked at so often, with a
 * pause of PAUSE us behind each look. */
#define CALL_LOOKS 20
#define PAUSE      1000

struct search {
	struct process_vm *vm;
	const struct vmm_process *process;
	bool misnamed; /* a thread has the number of no vCPU in its name */
};

struct process_vcpu *process_vm_vcpu(struct process_vm *vm, unsigned int id)
{
	for (size_t i = 0; i < vm->vcpu_count; i++)
		if (vm->vcpus[i].is.id == id)
			return &vm->vcpus[i];
	return NULL;
}

static bool is_taken(const struct process_vm *vm, pid_t tid)
{
	for (size_t i = 0; i < vm->vcpu_count; i++)
		if (vm->vcpus[i].is.tid == tid)
			return true;
	return false;
}

static bool all_known(const struct process_vm *vm)
{
	return !is_taken(vm, 0);
}

/* The first who says it is believed. */
static void set_thread(struct process_vm *vm, struct process_vcpu *vcpu, pid_t tid,
		       const char *found)
{
	if (vcpu->is.tid || is_taken(vm, tid))
		return;
	vcpu->is.tid = tid;
	vcpu->is.found = found;
}

/* A thread that was found before is still the vCPU's: it is seen less well the busier it is. */
static void keep_threads(const struct search *search)
{
	const struct vmm_process *process = search->process;

	for (size_t i = 0; i < process->vcpu_count; i++) {
		const struct vmm_vcpu *before = &process->vcpus[i];
		struct process_vcpu *vcpu = process_vm_vcpu(search->vm, before->id);

		if (vcpu && before->tid && vmm_process_has_thread(process, before->tid))
			set_thread(search->vm, vcpu, before->tid, before->found);
	}
}

static void ask_kvm(const struct search *search)
{
	struct process_vm *vm = search->vm;
	struct kvm_directory directory;
	bool is_ours = false;

	if (!kvm_directory_find(&directory, search->process, vm->fd))
		return;
	for (size_t i = 0; i < vm->vcpu_count; i++) {
		pid_t tid = kvm_directory_thread(&directory, vm->vcpus[i].is.id);

		vm->vcpus[i].ended = tid > 0 && !vmm_process_has_thread(search->process, tid);
		if (tid > 0 && !vm->vcpus[i].ended)
			set_thread(vm, &vm->vcpus[i], tid, "KVM");
		is_ours |= tid > 0 && !vm->vcpus[i].ended;
	}
	/* Its numbers are those of the first PID namespace, where another VM's may be alike. */
	for (size_t i = 0; i < vm->vcpu_count && !is_ours; i++)
		vm->vcpus[i].ended = false;
}

static void leave_out_unplugged(struct process_vm *vm)
{
	size_t kept = 0;

	for (size_t i = 0; i < vm->vcpu_count; i++)
		if (vm->vcpus[i].is.tid || !vm->vcpus[i].ended)
			vm->vcpus[kept++] = vm->vcpus[i];
	vm->vcpu_count = kept;
}

static const char by_name[] = "its name", by_several_names[] = "";

/* Names may be anything: what several threads say of themselves is true of none. */
static void claim(struct process_vm *vm, struct process_vcpu *vcpu, pid_t tid)
{
	struct vmm_vcpu *claimed = &vcpu->is;

	if (claimed->found == by_name && claimed->tid != tid)
		*claimed = (struct vmm_vcpu){ .id = claimed->id, .found = by_several_names };
	else if (!claimed->found)
		set_thread(vm, vcpu, tid, by_name);
}

/* Who names the threads of some vCPUs names those of all: one without was unplugged, or is yet to
 * come. */
static bool names_tell(const struct process_vm *vm)
{
	bool told = false;

	for (size_t i = 0; i < vm->vcpu_count; i++) {
		if (vm->vcpus[i].is.found == by_several_names)
			return false;
		told |= vm->vcpus[i].is.found == by_name;
	}
	return told;
}

/* The vCPU that thread TID has in its name. */
static bool read_name(const struct search *search, int tid, unsigned int *id)
{
	char path[48], name[32];

	snprintf(path, sizeof(path), "task/%d/comm", tid);
	if (proc_read(search->process->directory, path, name, sizeof(name)) <= 0)
		return false;
	name[strcspn(name, "\n")] = '\0';
	return process_words_thread(name, id);
}

/*
 * QEMU's names count vCPUs, and KVM has them by their APIC ids, which have gaps where the cores of
 * a socket are no power of two: where a name is of no vCPU, none is believed.
 */
static bool check_name(void *context, int tid)
{
	struct search *search = context;
	unsigned int id;

	search->misnamed |= read_name(search, tid, &id) && !process_vm_vcpu(search->vm, id);
	return !search->misnamed;
}

static bool take_name(void *context, int tid)
{
	const struct search *search = context;
	struct process_vcpu *vcpu;
	unsigned int id;

	vcpu = read_name(search, tid, &id) ? process_vm_vcpu(search->vm, id) : NULL;
	if (vcpu)
		claim(search->vm, vcpu, tid);
	return true;
}

static void ask_names(struct search *search)
{
	proc_each_number(search->process->directory, "task", check_name, search);
	if (!search->misnamed)
		proc_each_number(search->process->directory, "task", take_name, search);
}

static bool take_call(void *context, int tid)
{
	const struct search *search = context;
	struct process_vm *vm = search->vm;
	char path[48], text[256];
	int fd;

	snprintf(path, sizeof(path), "task/%d/syscall", tid);
	if (proc_read(search->process->directory, path, text, sizeof(text)) <= 0 ||
	    !process_words_run_call(text, &fd))
		return true;
	for (size_t i = 0; i < vm->vcpu_count; i++)
		if (vm->vcpus[i].fd == fd)
			set_thread(vm, &vm->vcpus[i], tid, "its system call");
	return true;
}

void process_vm_find_threads(struct process_vm *vm, const struct vmm_process *process)
{
	struct search search = { .vm = vm, .process = process };

	keep_threads(&search);
	ask_kvm(&search);
	if (vm->alone && !all_known(vm))
		ask_names(&search);
	leave_out_unplugged(vm);
	for (int i = 0;
	     vm->alone && i < CALL_LOOKS && !all_known(vm) && (search.misnamed || !names_tell(vm));
	     i++) {
		proc_each_number(process->directory, "task", take_call, &search);
		usleep(PAUSE);
	}
}
