/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/process.h"

#include <errno.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/attach/kvm_debugfs.h"
#include "vmm/attach/proc_files.h"

/* A running vCPU is rarely inside KVM_RUN when polled: it is polled this often, with PAUSE us in
 * between. */
#define CALL_POLLS 20
#define PAUSE      1000

/*
 * The thread of each vCPU, from the first source that has it:
 *
 *	KVM	kvm_debugfs.h
 *	name	of the thread: "CPU 0/KVM" of QEMU, "vCPU 0", "fc_vcpu 0", ...
 *	call	it is in ioctl(KVM_RUN) on the vCPU's descriptor
 *
 * Unknown threads are not guessed. A vCPU whose thread has exited, according to KVM, was unplugged:
 * it is left out until another thread is known.
 */

struct process_vcpu {
	struct vmm_vcpu is;
	int fd;     /* the first one in the process */
	bool ended; /* according to KVM, its thread has exited */
};

/* A VM with its vCPUs, by the descriptors of its process. */
struct process_vm {
	int fd;     /* the first one in the process */
	bool alone; /* the only VM of the process: names and descriptors identify its vCPUs */
	struct process_vcpu vcpus[VMM_VCPUS_MAX]; /* with different ids */
	size_t vcpu_count;
};

struct thread_search {
	struct process_vm *vm;
	const struct vmm_process *process;
	bool misnamed; /* a thread name has an id without a vCPU */
};

static struct process_vcpu *process_vm_vcpu(struct process_vm *vm, unsigned int id)
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

/* The first source wins. */
static void set_thread(struct process_vm *vm, struct process_vcpu *vcpu, pid_t tid,
		       const char *found)
{
	if (vcpu->is.tid || is_taken(vm, tid))
		return;
	vcpu->is.tid = tid;
	vcpu->is.found = found;
}

/* Threads found before stay: the busier a thread is, the harder it is to detect. */
static void keep_threads(const struct thread_search *search)
{
	const struct vmm_process *process = search->process;

	for (size_t i = 0; i < process->vcpu_count; i++) {
		const struct vmm_vcpu *before = &process->vcpus[i];
		struct process_vcpu *vcpu = process_vm_vcpu(search->vm, before->id);

		if (vcpu && before->tid && proc_has_thread(process->directory, before->tid))
			set_thread(search->vm, vcpu, before->tid, before->found);
	}
}

static void threads_from_kvm(const struct thread_search *search)
{
	struct process_vm *vm = search->vm;
	struct kvm_directory directory;
	bool is_ours = false;

	if (!kvm_directory_find(&directory, search->process->directory, vm->fd))
		return;
	for (size_t i = 0; i < vm->vcpu_count; i++) {
		pid_t tid = kvm_directory_thread(&directory, vm->vcpus[i].is.id);

		vm->vcpus[i].ended = tid > 0 && !proc_has_thread(search->process->directory, tid);
		if (tid > 0 && !vm->vcpus[i].ended)
			set_thread(vm, &vm->vcpus[i], tid, "KVM");
		is_ours |= tid > 0 && !vm->vcpus[i].ended;
	}
	/* TIDs are of the initial PID namespace, and may be another VM's. */
	for (size_t i = 0; i < vm->vcpu_count && !is_ours; i++)
		vm->vcpus[i].ended = false;
}

static void drop_unplugged(struct process_vm *vm)
{
	size_t kept = 0;

	for (size_t i = 0; i < vm->vcpu_count; i++)
		if (vm->vcpus[i].is.tid || !vm->vcpus[i].ended)
			vm->vcpus[kept++] = vm->vcpus[i];
	vm->vcpu_count = kept;
}

static const char by_name[] = "its name", by_several_names[] = "";

/* Names are arbitrary: an id claimed by several threads is ignored. */
static void claim(struct process_vm *vm, struct process_vcpu *vcpu, pid_t tid)
{
	struct vmm_vcpu *claimed = &vcpu->is;

	if (claimed->found == by_name && claimed->tid != tid)
		*claimed = (struct vmm_vcpu){ .id = claimed->id, .found = by_several_names };
	else if (!claimed->found)
		set_thread(vm, vcpu, tid, by_name);
}

/* A VMM that names some vCPU threads names all: a vCPU without one was unplugged, or is yet to
 * come. */
static bool names_suffice(const struct process_vm *vm)
{
	bool known = false;

	for (size_t i = 0; i < vm->vcpu_count; i++) {
		if (vm->vcpus[i].is.found == by_several_names)
			return false;
		known |= vm->vcpus[i].is.found == by_name;
	}
	return known;
}

static bool read_name(const struct thread_search *search, int tid, unsigned int *id)
{
	char path[48], name[32];

	snprintf(path, sizeof(path), "task/%d/comm", tid);
	if (proc_read(search->process->directory, path, name, sizeof(name)) <= 0)
		return false;
	name[strcspn(name, "\n")] = '\0';
	return proc_parse_thread_name(name, id);
}

/* QEMU's names count vCPUs, while KVM uses APIC ids, which have gaps unless the topology is a
 * power of two: if one name has an unknown id, all names are ignored. */
static bool check_name(void *context, int tid)
{
	struct thread_search *search = context;
	unsigned int id;

	search->misnamed |= read_name(search, tid, &id) && !process_vm_vcpu(search->vm, id);
	return !search->misnamed;
}

static bool thread_from_name(void *context, int tid)
{
	const struct thread_search *search = context;
	struct process_vcpu *vcpu;
	unsigned int id;

	vcpu = read_name(search, tid, &id) ? process_vm_vcpu(search->vm, id) : NULL;
	if (vcpu)
		claim(search->vm, vcpu, tid);
	return true;
}

static void threads_from_names(struct thread_search *search)
{
	proc_each_number(search->process->directory, "task", check_name, search);
	if (!search->misnamed)
		proc_each_number(search->process->directory, "task", thread_from_name, search);
}

static bool thread_from_call(void *context, int tid)
{
	const struct thread_search *search = context;
	struct process_vm *vm = search->vm;
	char path[48], text[256];
	int fd;

	snprintf(path, sizeof(path), "task/%d/syscall", tid);
	if (proc_read(search->process->directory, path, text, sizeof(text)) <= 0 ||
	    !proc_parse_run_call(text, &fd))
		return true;
	for (size_t i = 0; i < vm->vcpu_count; i++)
		if (vm->vcpus[i].fd == fd)
			set_thread(vm, &vm->vcpus[i], tid, "its system call");
	return true;
}

static void process_vm_find_threads(struct process_vm *vm, const struct vmm_process *process)
{
	struct thread_search search = { .vm = vm, .process = process };

	keep_threads(&search);
	threads_from_kvm(&search);
	if (vm->alone && !all_known(vm))
		threads_from_names(&search);
	drop_unplugged(vm);
	for (int i = 0; vm->alone && !process->quick && i < CALL_POLLS && !all_known(vm) &&
			(search.misnamed || !names_suffice(vm));
	     i++) {
		proc_each_number(process->directory, "task", thread_from_call, &search);
		usleep(PAUSE);
	}
}

struct vm_list {
	int fds[VMM_VMS_MAX]; /* the first one of each VM */
	size_t count;
};

/* Results of one scan. */
struct scan {
	struct vmm_process *process;
	struct vm_list vms;
	struct process_vm
		vm;  /* the selected one; before the selection, with the vCPUs of all VMs */
	bool hidden; /* a descriptor's link may not be read */
};

/* The index of the VM with that descriptor; vms->count: none. A VMM may have several descriptors of
 * one VM (dup(), or inherited by exec). */
static size_t find_vm(const struct vm_list *vms, pid_t pid, int fd)
{
	size_t i = 0;

	while (i < vms->count && vms->fds[i] != fd &&
	       syscall(SYS_kcmp, pid, pid, KCMP_FILE, vms->fds[i], fd))
		i++;
	return i;
}

static void add_vm(struct vm_list *vms, pid_t pid, int fd)
{
	if (find_vm(vms, pid, fd) == vms->count && vms->count < VMM_VMS_MAX)
		vms->fds[vms->count++] = fd;
}

static void add_vcpu(struct process_vm *vm, unsigned int id, int fd)
{
	if (!process_vm_vcpu(vm, id) && vm->vcpu_count < VMM_VCPUS_MAX)
		vm->vcpus[vm->vcpu_count++] = (struct process_vcpu){ .is.id = id, .fd = fd };
}

static bool add_descriptor(void *context, int fd)
{
	struct scan *scan = context;
	unsigned int id;
	char link[64];

	if (!proc_read_link(scan->process->directory, fd, link, sizeof(link)))
		scan->hidden |= errno == EACCES;
	else if (proc_is_vm_link(link))
		add_vm(&scan->vms, scan->process->pid, fd);
	else if (proc_parse_vcpu_link(link, &id))
		add_vcpu(&scan->vm, id, fd);
	return true;
}

static int check(const struct scan *scan, int error)
{
	pid_t pid = scan->process->pid;

	if (error == -EACCES || error == -EPERM || (!scan->vm.vcpu_count && scan->hidden))
		return error_set(
			-EACCES,
			"process %d may not be inspected: run as root, or as its user with "
			"CAP_SYS_PTRACE",
			pid);
	if (error == -ESRCH || error == -ENOENT)
		return error_set(-ESRCH, "process %d has ended", pid);
	if (error)
		return error_set(error, "cannot inspect process %d: %s", pid, strerror(-error));
	if (!scan->vms.count || !scan->vm.vcpu_count)
		return error_set(-ENOENT, "process %d (%s) runs no VM: it has no open KVM %s", pid,
				 scan->process->name, scan->vms.count ? "vCPU" : "VM");
	return 0;
}

static int list_vms(const struct scan *scan, int error, const char *what)
{
	char list[128] = "";

	for (size_t i = 0; i < scan->vms.count; i++) {
		size_t used = strlen(list);

		snprintf(list + used, sizeof(list) - used, "%s%d", i ? ", " : "", scan->vms.fds[i]);
	}
	return error_set(error, "process %d (%s) %s: --vm selects one by its descriptor, of %s",
			 scan->process->pid, scan->process->name, what, list);
}

/* A VM that is already followed stays selected. 0: any. */
static int requested_vm(const struct scan *scan)
{
	const struct vmm_process *process = scan->process;

	return process->requested_vm || scan->vms.count < 2 || !process->vcpu_count
		       ? process->requested_vm
		       : process->vm_fd;
}

static int choose_vm(struct scan *scan)
{
	int wanted = requested_vm(scan);
	size_t vm = wanted ? find_vm(&scan->vms, scan->process->pid, wanted) : 0;

	if (!wanted && scan->vms.count > 1)
		return list_vms(scan, -E2BIG, "runs several VMs");
	if (vm == scan->vms.count)
		return list_vms(scan, -ENOENT, "has no such VM");
	scan->vm.fd = scan->vms.fds[vm];
	scan->vm.alone = scan->vms.count == 1;
	return 0;
}

static bool had_vcpu(const struct vmm_process *process, unsigned int id)
{
	for (size_t i = 0; i < process->vcpu_count; i++)
		if (process->vcpus[i].id == id)
			return true;
	return false;
}

/* Keeps the vCPUs of the selected VM; an id that another VM has, too, is listed once. Without
 * KVM's directory, keeps those from when the VM was the only one. */
static int keep_own_vcpus(struct scan *scan)
{
	const struct vmm_process *process = scan->process;
	struct process_vm *vm = &scan->vm;
	struct kvm_directory directory;
	bool known = kvm_directory_find(&directory, process->directory, vm->fd);
	size_t count = 0;

	if (!known && !process->vcpu_count)
		return error_set(-ENOTSUP,
				 "only KVM shows which vCPUs of process %d (%s) belong to VM %d: "
				 "mount debugfs at /sys/kernel/debug (since Linux 5.19)",
				 process->pid, process->name, vm->fd);
	for (size_t i = 0; i < vm->vcpu_count; i++) {
		unsigned int id = vm->vcpus[i].is.id;

		if (known ? kvm_directory_has_vcpu(&directory, id) : had_vcpu(process, id))
			vm->vcpus[count++] = vm->vcpus[i];
	}
	vm->vcpu_count = count;
	return count ? 0
		     : error_set(-ENOENT, "VM %d of process %d (%s) has no vCPU", vm->fd,
				 process->pid, process->name);
}

static void publish(const struct scan *scan)
{
	struct vmm_process *process = scan->process;
	const struct process_vm *vm = &scan->vm;

	process->vm_fd = vm->fd;
	process->vms = scan->vms.count;
	if (!vm->alone)
		process->requested_vm = vm->fd;
	for (size_t i = 0; i < vm->vcpu_count; i++)
		process->vcpus[i] = vm->vcpus[i].is;
	process->vcpu_count = vm->vcpu_count;
}

static int scan_all(struct scan *scan)
{
	int error =
		check(scan, proc_each_number(scan->process->directory, "fd", add_descriptor, scan));

	if (!error)
		error = choose_vm(scan);
	if (!error && !scan->vm.alone)
		error = keep_own_vcpus(scan);
	if (error)
		return error;
	process_vm_find_threads(&scan->vm, scan->process);
	publish(scan);
	return 0;
}

int process_scan_vm(struct vmm_process *process)
{
	struct scan *scan = calloc(1, sizeof(*scan));
	int error;

	if (!scan)
		return error_set(-ENOMEM, "no memory to inspect process %d", process->pid);
	scan->process = process;
	error = scan_all(scan);
	free(scan);
	return error;
}

struct vm_search {
	pid_t pid;
	int directory;
	struct vm_list vms;
};

static bool add_vm_descriptor(void *context, int fd)
{
	struct vm_search *search = context;
	char link[64];

	if (proc_read_link(search->directory, fd, link, sizeof(link)) && proc_is_vm_link(link))
		add_vm(&search->vms, search->pid, fd);
	return true;
}

size_t process_list_vms(pid_t pid, int vm_fds[VMM_VMS_MAX])
{
	struct vm_search search = { .pid = pid, .directory = proc_open(pid) };

	if (search.directory < 0)
		return 0;
	proc_each_number(search.directory, "fd", add_vm_descriptor, &search);
	close(search.directory);
	memcpy(vm_fds, search.vms.fds, sizeof(search.vms.fds));
	return search.vms.count;
}
