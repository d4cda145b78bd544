/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/process.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/attach/proc_files.h"

static int by_id(const void *left, const void *right)
{
	const struct vmm_vcpu *one = left, *other = right;

	return one->id < other->id ? -1 : one->id > other->id;
}

static void sort_vcpus(struct vmm_process *process)
{
	qsort(process->vcpus, process->vcpu_count, sizeof(process->vcpus[0]), by_id);
}

int vmm_process_scan(struct vmm_process *process)
{
	int error;

	if (process->monitored)
		return vmm_process_ended(process)
			       ? error_set(-ESRCH, "process %d has ended", process->pid)
			       : 0;
	error = process_scan_vm(process);
	if (!error)
		sort_vcpus(process);
	return error;
}

/* The links of a directory count its subdirectories, itself and its entry in the parent
 * (fs/proc/base.c, proc_task_getattr()). */
struct vmm_process_size vmm_process_size(const struct vmm_process *process)
{
	struct stat tasks = { 0 }, descriptors = { 0 };

	fstatat(process->directory, "task", &tasks, 0);
	fstatat(process->directory, "fd", &descriptors, 0);
	return (struct vmm_process_size){ tasks.st_nlink, (unsigned long)descriptors.st_size };
}

/* Names of processes have no line breaks here (fs/proc/array.c, proc_task_name()). */
void vmm_process_user(const struct vmm_process *process, uid_t *uid, gid_t *gid)
{
	char text[4096];
	const char *users, *groups;

	if (proc_read(process->directory, "status", text, sizeof(text)) < 0)
		return;
	users = strstr(text, "\nUid:");
	groups = strstr(text, "\nGid:");
	if (users && groups && sscanf(users, "\nUid: %*u %u", uid) == 1)
		sscanf(groups, "\nGid: %*u %u", gid);
}

uint64_t vmm_process_cpu_time(const struct vmm_process *process)
{
	struct timespec time;
	clockid_t clock;

	if (clock_getcpuclockid(process->pid, &clock) || clock_gettime(clock, &time))
		return 0;
	return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

static bool set_thread(struct vmm_process *process, unsigned int id, pid_t tid, const char *found)
{
	if (!proc_has_thread(process->directory, tid))
		return false;
	for (size_t i = 0; i < process->vcpu_count; i++)
		if (process->vcpus[i].id == id) {
			process->vcpus[i].tid = tid;
			process->vcpus[i].found = found;
			return true;
		}
	return false;
}

bool vmm_process_set_thread(struct vmm_process *process, unsigned int id, pid_t tid)
{
	return set_thread(process, id, tid, "KVM by BPF");
}

void vmm_process_drop_vcpu(struct vmm_process *process, unsigned int id)
{
	size_t kept = 0;

	for (size_t i = 0; i < process->vcpu_count; i++)
		if (process->vcpus[i].id != id || process->vcpus[i].tid)
			process->vcpus[kept++] = process->vcpus[i];
	process->vcpu_count = kept;
}

void vmm_process_set_vcpus(struct vmm_process *process, const struct vmm_vcpu *vcpus, size_t count)
{
	assert(count <= VMM_VCPUS_MAX);
	if (process->monitored) {
		memcpy(process->vcpus, vcpus, count * sizeof(vcpus[0]));
		process->vcpu_count = count;
		sort_vcpus(process);
		return;
	}
	for (size_t i = 0; i < count; i++)
		if (vcpus[i].tid)
			set_thread(process, vcpus[i].id, vcpus[i].tid, vcpus[i].found);
}

struct own_tid {
	const struct vmm_process *process;
	pid_t own, found;
};

static bool is_own_tid(void *context, int tid)
{
	struct own_tid *search = context;
	char path[48], text[4096];

	snprintf(path, sizeof(path), "task/%d/status", tid);
	if (proc_read(search->process->directory, path, text, sizeof(text)) > 0 &&
	    proc_parse_inner_tid(text) == search->own)
		search->found = tid;
	return !search->found;
}

pid_t vmm_process_find_thread(const struct vmm_process *process, pid_t tid)
{
	struct own_tid search = { .process = process, .own = tid };

	proc_each_number(process->directory, "task", is_own_tid, &search);
	return search.found;
}

static void read_name(struct vmm_process *process)
{
	if (proc_read(process->directory, "comm", process->name, sizeof(process->name)) < 0)
		process->name[0] = '\0';
	process->name[strcspn(process->name, "\n")] = '\0';
	for (char *at = process->name; *at; at++)
		if (!isprint((unsigned char)*at))
			*at = '?';
}

static int open_process(struct vmm_process *process)
{
	process->pid_fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
	if (process->pid_fd < 0)
		return error_set(-errno, "there is no process %d: %s", process->pid,
				 strerror(errno));
	process->directory = proc_open(process->pid);
	if (process->directory < 0)
		return error_set(process->directory, "cannot open /proc/%d: %s", process->pid,
				 strerror(-process->directory));
	read_name(process);
	return vmm_process_scan(process);
}

static int open_as(struct vmm_process **result, pid_t pid, int vm_fd, bool monitored)
{
	struct vmm_process *process = calloc(1, sizeof(*process));
	int error;

	if (!process)
		return error_set(-ENOMEM, "no memory to inspect process %d", pid);
	process->pid = pid;
	process->monitored = monitored;
	process->requested_vm = vm_fd;
	process->pid_fd = process->directory = process->vm_fd = -1;
	error = open_process(process);
	if (error)
		vmm_process_close(process);
	else
		*result = process;
	return error;
}

int vmm_process_open(struct vmm_process **process, pid_t pid, int vm_fd)
{
	return open_as(process, pid, vm_fd, false);
}

int vmm_process_open_monitored(struct vmm_process **process, pid_t pid)
{
	return open_as(process, pid, 0, true);
}

bool vmm_process_ended(const struct vmm_process *process)
{
	struct pollfd end = { .fd = process->pid_fd, .events = POLLIN };

	return poll(&end, 1, 0) > 0;
}

void vmm_process_close(struct vmm_process *process)
{
	if (!process)
		return;
	if (process->pid_fd >= 0)
		close(process->pid_fd);
	if (process->directory >= 0)
		close(process->directory);
	free(process);
}

struct list {
	pid_t *pids;
	size_t count, max;
	int directory; /* of the process being checked */
	bool has_vm;
};

static bool check_descriptor(void *context, int fd)
{
	struct list *list = context;
	char link[64];

	list->has_vm =
		proc_read_link(list->directory, fd, link, sizeof(link)) && proc_is_vm_link(link);
	return !list->has_vm;
}

static bool check_process(void *context, int pid)
{
	struct list *list = context;

	list->directory = proc_open(pid);
	list->has_vm = false;
	if (list->directory < 0)
		return true;
	proc_each_number(list->directory, "fd", check_descriptor, list);
	close(list->directory);
	if (list->has_vm)
		list->pids[list->count++] = pid;
	return list->count < list->max;
}

size_t vmm_process_list(pid_t *pids, size_t max)
{
	struct list list = { .pids = pids, .max = max };

	if (max)
		proc_each_number(AT_FDCWD, "/proc", check_process, &list);
	return list.count;
}
