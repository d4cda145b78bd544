// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/process_scan.h"

#include <errno.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/attach/kvm_directory.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/process_threads.h"
#include "vmm/attach/process_words.h"

struct vm_list {
	int fds[VMM_VMS_MAX]; /* the first of each VM */
	size_t count;
};

/* What one look finds. */
struct scan {
	struct vmm_process *process;
	struct vm_list vms;
	struct process_vm vm; /* the one that is meant; until it is chosen, with the vCPUs of all */
	bool hidden;          /* what a descriptor is may not be seen */
};

/* A VMM may have several descriptors of its one VM (dup(), or by an exec that was given it). */
static bool is_same_file(pid_t pid, int one, int other)
{
	return !syscall(SYS_kcmp, pid, pid, KCMP_FILE, one, other);
}

/* Which of the VMs is behind that descriptor? Their number: none. */
static size_t find_vm(const struct vm_list *vms, pid_t pid, int fd)
{
	size_t i = 0;

	while (i < vms->count && vms->fds[i] != fd && !is_same_file(pid, vms->fds[i], fd))
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

static bool take_descriptor(void *context, int fd)
{
	struct scan *scan = context;
	unsigned int id;
	char link[64];

	if (!proc_read_link(scan->process->directory, fd, link, sizeof(link)))
		scan->hidden |= errno == EACCES;
	else if (process_words_are_vm(link))
		add_vm(&scan->vms, scan->process->pid, fd);
	else if (process_words_vcpu(link, &id))
		add_vcpu(&scan->vm, id, fd);
	return true;
}

static int check(const struct scan *scan, int error)
{
	pid_t pid = scan->process->pid;

	if (error == -EACCES || error == -EPERM || (!scan->vm.vcpu_count && scan->hidden))
		return error_set(
			-EACCES,
			"process %d may not be looked at: be root, or its user and with CAP_SYS_PTRACE",
			pid);
	if (error == -ESRCH || error == -ENOENT)
		return error_set(-ESRCH, "process %d has ended", pid);
	if (error)
		return error_set(error, "can not look at process %d: %s", pid, strerror(-error));
	if (!scan->vms.count || !scan->vm.vcpu_count)
		return error_set(-ENOENT, "process %d (%s) runs no VM: it has no %s of KVM open",
				 pid, scan->process->name, scan->vms.count ? "vCPU" : "VM");
	return 0;
}

static int say_vms(const struct scan *scan, int error, const char *what)
{
	char list[128] = "";

	for (size_t i = 0; i < scan->vms.count; i++) {
		size_t used = strlen(list);

		snprintf(list + used, sizeof(list) - used, "%s%d", i ? ", " : "", scan->vms.fds[i]);
	}
	return error_set(error, "process %d (%s) %s: --vm names one by its descriptor, of %s",
			 scan->process->pid, scan->process->name, what, list);
}

/* The one that is followed is so when others come, too. 0: any. */
static int wanted_vm(const struct scan *scan)
{
	const struct vmm_process *process = scan->process;

	return process->wanted_vm || scan->vms.count < 2 || !process->vcpu_count
		       ? process->wanted_vm
		       : process->vm_fd;
}

static int choose_vm(struct scan *scan)
{
	int wanted = wanted_vm(scan);
	size_t vm = wanted ? find_vm(&scan->vms, scan->process->pid, wanted) : 0;

	if (!wanted && scan->vms.count > 1)
		return say_vms(scan, -E2BIG, "runs several VMs");
	if (vm == scan->vms.count)
		return say_vms(scan, -ENOENT, "has no such VM");
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

/* Of the VM's vCPUs: ids that another one's has, too, are told once. Without KVM's directory those
 * that it had when it was alone. */
static int keep_own_vcpus(struct scan *scan)
{
	const struct vmm_process *process = scan->process;
	struct process_vm *vm = &scan->vm;
	struct kvm_directory directory;
	bool told = kvm_directory_find(&directory, process, vm->fd);
	size_t count = 0;

	if (!told && !process->vcpu_count)
		return error_set(
			-ENOTSUP,
			"which vCPUs of process %d (%s) are those of its VM %d only KVM tells: mount "
			"debugfs at /sys/kernel/debug (from Linux 5.19)",
			process->pid, process->name, vm->fd);
	for (size_t i = 0; i < vm->vcpu_count; i++) {
		unsigned int id = vm->vcpus[i].is.id;

		if (told ? kvm_directory_has_vcpu(&directory, id) : had_vcpu(process, id))
			vm->vcpus[count++] = vm->vcpus[i];
	}
	vm->vcpu_count = count;
	return count ? 0
		     : error_set(-ENOENT, "VM %d of process %d (%s) has no vCPU", vm->fd,
				 process->pid, process->name);
}

static void tell(const struct scan *scan)
{
	struct vmm_process *process = scan->process;
	const struct process_vm *vm = &scan->vm;

	process->vm_fd = vm->fd;
	process->vms = scan->vms.count;
	if (!vm->alone)
		process->wanted_vm = vm->fd;
	for (size_t i = 0; i < vm->vcpu_count; i++)
		process->vcpus[i] = vm->vcpus[i].is;
	process->vcpu_count = vm->vcpu_count;
}

static int look(struct scan *scan)
{
	int error = check(scan,
			  proc_each_number(scan->process->directory, "fd", take_descriptor, scan));

	if (!error)
		error = choose_vm(scan);
	if (!error && !scan->vm.alone)
		error = keep_own_vcpus(scan);
	if (error)
		return error;
	process_vm_find_threads(&scan->vm, scan->process);
	tell(scan);
	return 0;
}

int process_scan_vm(struct vmm_process *process)
{
	struct scan *scan = calloc(1, sizeof(*scan));
	int error;

	if (!scan)
		return error_set(-ENOMEM, "no memory to look at process %d", process->pid);
	scan->process = process;
	error = look(scan);
	free(scan);
	return error;
}

struct vm_search {
	pid_t pid;
	int directory;
	struct vm_list vms;
};

static bool take_vm(void *context, int fd)
{
	struct vm_search *search = context;
	char link[64];

	if (proc_read_link(search->directory, fd, link, sizeof(link)) && process_words_are_vm(link))
		add_vm(&search->vms, search->pid, fd);
	return true;
}

size_t process_list_vms(pid_t pid, int vm_fds[VMM_VMS_MAX])
{
	struct vm_search search = { .pid = pid, .directory = proc_open(pid) };

	if (search.directory < 0)
		return 0;
	proc_each_number(search.directory, "fd", take_vm, &search);
	close(search.directory);
	memcpy(vm_fds, search.vms.fds, sizeof(search.vms.fds));
	return search.vms.count;
}
