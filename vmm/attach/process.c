// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/process.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <linux/kvm.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"

#define VM_LINK   "anon_inode:kvm-vm"
#define VCPU_LINK "anon_inode:kvm-vcpu"

/* A thread that runs its guest is seldom seen waiting for it: it is looked at so often. */
#define CALL_LOOKS 20

/* Where KVM tells of VMs, as far as debugfs is mounted. */
#define KVM_DIRECTORY "/sys/kernel/debug/kvm"

struct found_vcpu {
	struct vmm_vcpu vcpu;
	int fd; /* the number of its first descriptor, in that process */
};

/* What one look finds. */
struct scan {
	struct vmm_process *process;
	struct found_vcpu *vcpus;
	size_t count;
	int vm_fds[VMM_VMS_MAX]; /* the first of each VM */
	size_t vms;
	int vm_fd;   /* of the one that is meant */
	bool hidden; /* what a descriptor is may not be seen */
};

/* A decimal number that is a vCPU's id; END is behind it. */
static bool parse_id(const char *text, const char **end, unsigned int *id)
{
	unsigned int value = 0;
	const char *at = text;

	for (; isdigit((unsigned char)*at); at++) {
		value = value * 10 + (unsigned int)(*at - '0');
		if (value >= VMM_VCPUS_MAX)
			return false;
	}
	*end = at;
	*id = value;
	return at > text;
}

/* Kernels before 4.19 do not say which one it is. */
bool vmm_parse_vcpu_link(const char *link, unsigned int *id)
{
	const char *end;

	if (strncmp(link, VCPU_LINK, strlen(VCPU_LINK)) != 0)
		return false;
	link += strlen(VCPU_LINK);
	return *link == ':' && parse_id(link + 1, &end, id) && !*end;
}

/* "CPU 3/KVM", "vCPU 3", "fc_vcpu 3", "crosvm_vcpu3", "kvm-vcpu-3" */
bool vmm_parse_thread_name(const char *name, unsigned int *id)
{
	const char *cpu = strcasestr(name, "cpu"), *end;

	if (!cpu)
		return false;
	cpu += strlen("cpu");
	if (*cpu == ' ' || *cpu == '-' || *cpu == '_' || *cpu == '#')
		cpu++;
	return parse_id(cpu, &end, id) && (!*end || !strcmp(end, "/KVM"));
}

/*
 * "16 0xc 0xae80 0x0 0x0 0x0 0x0 0x7ffc... 0x7f12...": the number of the call, its six arguments, RSP and
 * RIP; "running" while it is in none. KVM's own workers in the process show the call that made them, without
 * RIP.
 */
bool vmm_parse_run_call(const char *text, int *fd)
{
	unsigned long number, descriptor, request, stack, code;

	if (sscanf(text, "%lu %lx %lx %*x %*x %*x %*x %lx %lx", &number, &descriptor, &request, &stack,
		   &code) != 5 ||
	    number != SYS_ioctl || request != KVM_RUN || descriptor > INT32_MAX || !stack || !code)
		return false;
	*fd = (int)descriptor;
	return true;
}

static ssize_t read_file(int directory, const char *path, char *text, size_t size)
{
	int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
	ssize_t length;

	if (fd < 0)
		return -errno;
	length = read(fd, text, size - 1);
	if (length < 0)
		length = -errno;
	close(fd);
	text[length > 0 ? length : 0] = '\0';
	return length;
}

/* EACH for every number that is a name in the directory; false ends it. */
static int each_number(int at, const char *path, bool (*each)(void *context, int number), void *context)
{
	int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!directory) {
		int error = -errno;

		if (fd >= 0)
			close(fd);
		return error;
	}
	while ((entry = readdir(directory)))
		if (isdigit((unsigned char)*entry->d_name) && !each(context, atoi(entry->d_name)))
			break;
	closedir(directory);
	return 0;
}

static bool read_link(int directory, int number, char *link, size_t size)
{
	char path[32];
	ssize_t length;

	snprintf(path, sizeof(path), "fd/%d", number);
	errno = 0; /* of an empty one it stays so */
	length = readlinkat(directory, path, link, size - 1);
	link[length > 0 ? length : 0] = '\0';
	return length > 0;
}

static size_t find_vcpu(const struct scan *scan, unsigned int id)
{
	size_t i = 0;

	while (i < scan->count && scan->vcpus[i].vcpu.id != id)
		i++;
	return i;
}

/* A VMM may have several descriptors of its one VM (dup(), or by an exec that was given it). */
static bool is_same_file(const struct vmm_process *process, int one, int other)
{
	return !syscall(SYS_kcmp, process->pid, process->pid, KCMP_FILE, one, other);
}

/* Which of the VMs is behind that descriptor? Their number: none. */
static size_t find_vm(const struct scan *scan, int number)
{
	size_t i = 0;

	while (i < scan->vms && scan->vm_fds[i] != number &&
	       !is_same_file(scan->process, scan->vm_fds[i], number))
		i++;
	return i;
}

static void add_vm(struct scan *scan, int number)
{
	if (find_vm(scan, number) == scan->vms && scan->vms < VMM_VMS_MAX)
		scan->vm_fds[scan->vms++] = number;
}

static bool take_vm(void *context, int number)
{
	struct scan *scan = context;
	char link[64];

	if (read_link(scan->process->directory, number, link, sizeof(link)) && !strcmp(link, VM_LINK))
		add_vm(scan, number);
	return true;
}

static bool take_descriptor(void *context, int number)
{
	struct scan *scan = context;
	unsigned int id;
	char link[64];

	if (!read_link(scan->process->directory, number, link, sizeof(link))) {
		scan->hidden |= errno == EACCES;
		return true;
	}
	if (!strcmp(link, VM_LINK)) {
		add_vm(scan, number);
	} else if (vmm_parse_vcpu_link(link, &id) && find_vcpu(scan, id) == scan->count &&
		   scan->count < VMM_VCPUS_MAX) {
		scan->vcpus[scan->count++] = (struct found_vcpu){ .vcpu.id = id, .fd = number };
	}
	return true;
}

static bool is_taken(const struct scan *scan, pid_t tid)
{
	for (size_t i = 0; i < scan->count; i++)
		if (scan->vcpus[i].vcpu.tid == tid)
			return true;
	return false;
}

static void set_thread(struct scan *scan, size_t vcpu, pid_t tid, const char *found)
{
	if (vcpu >= scan->count || scan->vcpus[vcpu].vcpu.tid || is_taken(scan, tid))
		return;
	scan->vcpus[vcpu].vcpu.tid = tid;
	scan->vcpus[vcpu].vcpu.found = found;
}

bool vmm_process_has_thread(const struct vmm_process *process, pid_t tid)
{
	char path[32];

	snprintf(path, sizeof(path), "task/%d", tid);
	return !faccessat(process->directory, path, F_OK, 0);
}

/* KVM names a VM's directory by the thread that made it, which may be any of the process, and the descriptor.
 */
static bool find_directory(const struct scan *scan, char *path, size_t size)
{
	DIR *directory = opendir(KVM_DIRECTORY);
	const struct dirent *entry;
	bool found = false;
	int tid, fd;

	while (directory && !found && (entry = readdir(directory)))
		if (sscanf(entry->d_name, "%d-%d", &tid, &fd) == 2 && fd == scan->vm_fd &&
		    vmm_process_has_thread(scan->process, tid))
			found = snprintf(path, size, "%s/%d-%d", KVM_DIRECTORY, tid, fd) < (int)size;
	if (directory)
		closedir(directory);
	return found;
}

/* What KVM itself says, where debugfs is mounted and has it (from Linux 5.19). */
static void ask_kvm(struct scan *scan)
{
	char directory[64], path[96], text[32];

	if (!find_directory(scan, directory, sizeof(directory)))
		return;
	for (size_t i = 0; i < scan->count; i++) {
		snprintf(path, sizeof(path), "%s/vcpu%u/pid", directory, scan->vcpus[i].vcpu.id);
		if (read_file(AT_FDCWD, path, text, sizeof(text)) > 0 &&
		    vmm_process_has_thread(scan->process, atoi(text)))
			set_thread(scan, i, atoi(text), "KVM");
	}
}

static const char by_name[] = "its name", by_several_names[] = "";

/* Names may be anything: what several threads say of themselves is true of none. */
static void claim(struct scan *scan, size_t vcpu, pid_t tid)
{
	struct vmm_vcpu *claimed = &scan->vcpus[vcpu].vcpu;

	if (vcpu >= scan->count)
		return;
	if (claimed->found == by_name && claimed->tid != tid)
		*claimed = (struct vmm_vcpu){ .id = claimed->id, .found = by_several_names };
	else if (!claimed->found)
		set_thread(scan, vcpu, tid, by_name);
}

static bool take_name(void *context, int tid)
{
	struct scan *scan = context;
	char path[48], name[32];
	unsigned int id;

	snprintf(path, sizeof(path), "task/%d/comm", tid);
	if (read_file(scan->process->directory, path, name, sizeof(name)) <= 0)
		return true;
	name[strcspn(name, "\n")] = '\0';
	if (vmm_parse_thread_name(name, &id))
		claim(scan, find_vcpu(scan, id), tid);
	return true;
}

static bool take_call(void *context, int tid)
{
	struct scan *scan = context;
	char path[48], text[256];
	int fd;

	snprintf(path, sizeof(path), "task/%d/syscall", tid);
	if (read_file(scan->process->directory, path, text, sizeof(text)) <= 0 ||
	    !vmm_parse_run_call(text, &fd))
		return true;
	for (size_t i = 0; i < scan->count; i++)
		if (scan->vcpus[i].fd == fd)
			set_thread(scan, i, tid, "its system call");
	return true;
}

static bool all_known(const struct scan *scan)
{
	return !is_taken(scan, 0);
}

static void find_threads(struct scan *scan)
{
	int directory = scan->process->directory;

	ask_kvm(scan);
	if (scan->vms > 1) /* names and descriptors do not tell whose a vCPU is */
		return;
	if (!all_known(scan))
		each_number(directory, "task", take_name, scan);
	for (int i = 0; i < CALL_LOOKS && !all_known(scan); i++) {
		each_number(directory, "task", take_call, scan);
		usleep(1000);
	}
}

static int by_id(const void *left, const void *right)
{
	const struct vmm_vcpu *one = left, *other = right;

	return one->id < other->id ? -1 : one->id > other->id;
}

/* A thread that was found before is still the vCPU's: it is seen less well the busier it is. */
static void keep_threads(struct scan *scan)
{
	const struct vmm_process *process = scan->process;

	for (size_t i = 0; i < process->vcpu_count; i++)
		if (process->vcpus[i].tid && vmm_process_has_thread(process, process->vcpus[i].tid))
			set_thread(scan, find_vcpu(scan, process->vcpus[i].id), process->vcpus[i].tid,
				   process->vcpus[i].found);
}

static int check(const struct scan *scan, int error)
{
	pid_t pid = scan->process->pid;

	if (error == -EACCES || error == -EPERM || (!scan->count && scan->hidden))
		return error_set(
			-EACCES,
			"process %d may not be looked at: be root, or its user and with CAP_SYS_PTRACE", pid);
	if (error == -ESRCH || error == -ENOENT)
		return error_set(-ESRCH, "process %d has ended", pid);
	if (error)
		return error_set(error, "can not look at process %d: %s", pid, strerror(-error));
	if (!scan->vms || !scan->count)
		return error_set(-ENOENT, "process %d (%s) runs no VM: it has no %s of KVM open", pid,
				 scan->process->name, scan->vms ? "vCPU" : "VM");
	return 0;
}

static int say_vms(const struct scan *scan, int error, const char *what)
{
	char list[128] = "";

	for (size_t i = 0; i < scan->vms; i++) {
		size_t used = strlen(list);

		snprintf(list + used, sizeof(list) - used, "%s%d", i ? ", " : "", scan->vm_fds[i]);
	}
	return error_set(error, "process %d (%s) %s: --vm names one by its descriptor, of %s",
			 scan->process->pid, scan->process->name, what, list);
}

/* The one that is followed is so when others come, too. 0: any. */
static int wanted_vm(const struct scan *scan)
{
	const struct vmm_process *process = scan->process;

	return process->wanted_vm || scan->vms < 2 || !process->vcpu_count ? process->wanted_vm
									   : process->vm_fd;
}

static int choose_vm(struct scan *scan)
{
	int wanted = wanted_vm(scan);
	size_t vm = wanted ? find_vm(scan, wanted) : 0;

	if (!wanted && scan->vms > 1)
		return say_vms(scan, -E2BIG, "runs several VMs");
	if (vm == scan->vms)
		return say_vms(scan, -ENOENT, "has no such VM");
	scan->vm_fd = scan->vm_fds[vm];
	return 0;
}

static bool had_vcpu(const struct vmm_process *process, unsigned int id)
{
	for (size_t i = 0; i < process->vcpu_count; i++)
		if (process->vcpus[i].id == id)
			return true;
	return false;
}

/* Without KVM's DIRECTORY (empty) those that it had when it was alone. */
static bool is_own(const struct scan *scan, const char *directory, unsigned int id)
{
	char path[96];

	if (!*directory)
		return had_vcpu(scan->process, id);
	snprintf(path, sizeof(path), "%s/vcpu%u", directory, id);
	return !access(path, F_OK);
}

/* Of the VM's vCPUs: ids that another one's has, too, are told once. */
static int keep_own_vcpus(struct scan *scan)
{
	char directory[64] = "";
	size_t count = 0;

	if (scan->vms == 1)
		return 0;
	if (!find_directory(scan, directory, sizeof(directory)) && !scan->process->vcpu_count)
		return error_set(
			-ENOTSUP,
			"which vCPUs of process %d (%s) are those of its VM %d only KVM tells: mount "
			"debugfs at /sys/kernel/debug (from Linux 5.19)",
			scan->process->pid, scan->process->name, scan->vm_fd);
	for (size_t i = 0; i < scan->count; i++)
		if (is_own(scan, directory, scan->vcpus[i].vcpu.id))
			scan->vcpus[count++] = scan->vcpus[i];
	scan->count = count;
	return count ? 0
		     : error_set(-ENOENT, "VM %d of process %d (%s) has no vCPU", scan->vm_fd,
				 scan->process->pid, scan->process->name);
}

static int look(struct scan *scan)
{
	struct vmm_process *process = scan->process;
	int error = check(scan, each_number(process->directory, "fd", take_descriptor, scan));

	if (!error)
		error = choose_vm(scan);
	if (!error)
		error = keep_own_vcpus(scan);
	if (error)
		return error;
	process->vm_fd = scan->vm_fd;
	process->vms = scan->vms;
	if (scan->vms > 1)
		process->wanted_vm = scan->vm_fd;
	keep_threads(scan);
	find_threads(scan);
	for (size_t i = 0; i < scan->count; i++)
		process->vcpus[i] = scan->vcpus[i].vcpu;
	process->vcpu_count = scan->count;
	qsort(process->vcpus, process->vcpu_count, sizeof(process->vcpus[0]), by_id);
	return 0;
}

static int scan_vm(struct vmm_process *process)
{
	struct scan scan = {
		.process = process,
		.vcpus = calloc(VMM_VCPUS_MAX, sizeof(struct found_vcpu)),
	};
	int error = scan.vcpus ? look(&scan)
			       : error_set(-ENOMEM, "no memory to look at process %d", process->pid);

	free(scan.vcpus);
	return error;
}

int vmm_process_scan(struct vmm_process *process)
{
	if (!process->monitored)
		return scan_vm(process);
	return vmm_process_ended(process) ? error_set(-ESRCH, "process %d has ended", process->pid) : 0;
}

/* A directory's links are those to its own directories, to itself and from its parent (fs/proc/base.c,
 * proc_task_getattr()). */
struct vmm_process_size vmm_process_size(const struct vmm_process *process)
{
	struct stat tasks = { 0 }, descriptors = { 0 };

	fstatat(process->directory, "task", &tasks, 0);
	fstatat(process->directory, "fd", &descriptors, 0);
	return (struct vmm_process_size){ tasks.st_nlink, (unsigned long)descriptors.st_size };
}

uint64_t vmm_process_cpu_time(const struct vmm_process *process)
{
	struct timespec time;
	clockid_t clock;

	if (clock_getcpuclockid(process->pid, &clock) || clock_gettime(clock, &time))
		return 0;
	return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

static bool learn_thread(struct vmm_process *process, unsigned int id, pid_t tid, const char *found)
{
	if (!vmm_process_has_thread(process, tid))
		return false;
	for (size_t i = 0; i < process->vcpu_count; i++)
		if (process->vcpus[i].id == id) {
			process->vcpus[i].tid = tid;
			process->vcpus[i].found = found;
			return true;
		}
	return false;
}

bool vmm_process_learn_thread(struct vmm_process *process, unsigned int id, pid_t tid)
{
	return learn_thread(process, id, tid, "KVM by BPF");
}

void vmm_process_set_vcpus(struct vmm_process *process, const struct vmm_vcpu *vcpus, size_t count)
{
	assert(count <= VMM_VCPUS_MAX);
	if (process->monitored) {
		memcpy(process->vcpus, vcpus, count * sizeof(vcpus[0]));
		process->vcpu_count = count;
		qsort(process->vcpus, count, sizeof(vcpus[0]), by_id);
		return;
	}
	for (size_t i = 0; i < count; i++)
		if (vcpus[i].tid)
			learn_thread(process, vcpus[i].id, vcpus[i].tid, vcpus[i].found);
}

struct own_tid {
	const struct vmm_process *process;
	pid_t own, found;
};

pid_t vmm_parse_own_tid(const char *text)
{
	const char *line = strstr(text, "\nNSpid:");
	long number = 0;
	char *end;

	if (!line)
		return 0;
	line += strlen("\nNSpid:");
	while (*line == '\t' || *line == ' ') {
		number = strtol(line, &end, 10);
		if (end == line)
			break;
		line = end;
	}
	return *line == '\n' && number > 0 && number <= INT_MAX ? (pid_t)number : 0;
}

static bool is_own_tid(void *context, int tid)
{
	struct own_tid *search = context;
	char path[48], text[4096];

	snprintf(path, sizeof(path), "task/%d/status", tid);
	if (read_file(search->process->directory, path, text, sizeof(text)) > 0 &&
	    vmm_parse_own_tid(text) == search->own)
		search->found = tid;
	return !search->found;
}

pid_t vmm_process_find_thread(const struct vmm_process *process, pid_t tid)
{
	struct own_tid search = { .process = process, .own = tid };

	each_number(process->directory, "task", is_own_tid, &search);
	return search.found;
}

static void read_name(struct vmm_process *process)
{
	if (read_file(process->directory, "comm", process->name, sizeof(process->name)) < 0)
		process->name[0] = '\0';
	process->name[strcspn(process->name, "\n")] = '\0';
	for (char *at = process->name; *at; at++)
		if (!isprint((unsigned char)*at))
			*at = '?';
}

static int open_process(struct vmm_process *process)
{
	char path[32];

	process->pid_fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
	if (process->pid_fd < 0)
		return error_set(-errno, "there is no process %d: %s", process->pid, strerror(errno));
	snprintf(path, sizeof(path), "/proc/%d", process->pid);
	process->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (process->directory < 0)
		return error_set(-errno, "can not open %s: %s", path, strerror(errno));
	read_name(process);
	return vmm_process_scan(process);
}

static int open_as(struct vmm_process **result, pid_t pid, int vm_fd, bool monitored)
{
	struct vmm_process *process = calloc(1, sizeof(*process));
	int error;

	if (!process)
		return error_set(-ENOMEM, "no memory to look at process %d", pid);
	process->pid = pid;
	process->monitored = monitored;
	process->wanted_vm = vm_fd;
	process->pid_fd = process->directory = process->vm_fd = -1;
	error = open_process(process);
	if (error)
		vmm_process_close(process);
	else
		*result = process;
	return error;
}

int vmm_process_open(struct vmm_process **process, pid_t pid)
{
	return open_as(process, pid, 0, false);
}

int vmm_process_open_vm(struct vmm_process **process, pid_t pid, int vm_fd)
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
	int directory; /* of the process that is looked at */
	bool has_vm;
};

static bool look_for_vm(void *context, int number)
{
	struct list *list = context;
	char link[64];

	list->has_vm = read_link(list->directory, number, link, sizeof(link)) && !strcmp(link, VM_LINK);
	return !list->has_vm;
}

static bool look_at_process(void *context, int pid)
{
	struct list *list = context;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d", pid);
	list->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	list->has_vm = false;
	if (list->directory < 0)
		return true;
	each_number(list->directory, "fd", look_for_vm, list);
	close(list->directory);
	if (list->has_vm)
		list->pids[list->count++] = pid;
	return list->count < list->max;
}

size_t vmm_process_list(pid_t *pids, size_t max)
{
	struct list list = { .pids = pids, .max = max };

	if (max)
		each_number(AT_FDCWD, "/proc", look_at_process, &list);
	return list.count;
}

size_t vmm_process_list_vms(pid_t pid, int vm_fds[VMM_VMS_MAX])
{
	struct vmm_process process = { .pid = pid };
	struct scan scan = { .process = &process };
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d", pid);
	process.directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (process.directory < 0)
		return 0;
	each_number(process.directory, "fd", take_vm, &scan);
	close(process.directory);
	memcpy(vm_fds, scan.vm_fds, sizeof(scan.vm_fds));
	return scan.vms;
}
