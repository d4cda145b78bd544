/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/proc_files.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vmm/attach/process_types.h"

int proc_open(pid_t pid)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

ssize_t proc_read(int directory, const char *path, char *text, size_t size)
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

int proc_each_number(int directory, const char *path, bool (*each)(void *context, int number),
		     void *context)
{
	int fd = openat(directory, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!entries) {
		int error = -errno;

		if (fd >= 0)
			close(fd);
		return error;
	}
	while ((entry = readdir(entries)))
		if (isdigit((unsigned char)*entry->d_name) && !each(context, atoi(entry->d_name)))
			break;
	closedir(entries);
	return 0;
}

bool proc_read_link(int directory, int fd, char *link, size_t size)
{
	char path[32];
	ssize_t length;

	snprintf(path, sizeof(path), "fd/%d", fd);
	errno = 0; /* of an empty one it stays so */
	length = readlinkat(directory, path, link, size - 1);
	link[length > 0 ? length : 0] = '\0';
	return length > 0;
}

#define VM_LINK   "anon_inode:kvm-vm"
#define VCPU_LINK "anon_inode:kvm-vcpu"

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

bool proc_is_vm_link(const char *link)
{
	return !strcmp(link, VM_LINK);
}

bool proc_parse_vcpu_link(const char *link, unsigned int *id)
{
	const char *end;

	if (strncmp(link, VCPU_LINK, strlen(VCPU_LINK)) != 0)
		return false;
	link += strlen(VCPU_LINK);
	return *link == ':' && parse_id(link + 1, &end, id) && !*end;
}

bool proc_parse_thread_name(const char *name, unsigned int *id)
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
 * "16 0xc 0xae80 0x0 0x0 0x0 0x0 0x7ffc... 0x7f12...": the number of the call, its six arguments,
 * RSP and RIP; "running" while it is in none. KVM's own workers in the process show the call that
 * made them, without RIP.
 */
bool proc_parse_run_call(const char *text, int *fd)
{
	unsigned long number, descriptor, request, stack, code;

	if (sscanf(text, "%lu %lx %lx %*x %*x %*x %*x %lx %lx", &number, &descriptor, &request,
		   &stack, &code) != 5 ||
	    number != SYS_ioctl || request != KVM_RUN || descriptor > INT32_MAX || !stack || !code)
		return false;
	*fd = (int)descriptor;
	return true;
}

/* "NSpid:\t4711\t22\t3": from our namespace inwards. */
pid_t proc_parse_inner_tid(const char *text)
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

int proc_open_thread_file(int directory, pid_t tid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "task/%d/%s", tid, name);
	return openat(directory, path, O_RDONLY | O_CLOEXEC);
}

bool proc_has_thread(int directory, pid_t tid)
{
	char path[32];

	snprintf(path, sizeof(path), "task/%d", tid);
	return !faccessat(directory, path, F_OK, 0);
}

/* What follows NAME at the start of a line; NULL: there is no such line. The first line is the
 * thread's name, in which the kernel writes newlines as "\n" (string_escape_str()). */
static const char *value_of(const char *text, const char *name)
{
	const char *line = strstr(text, name);

	return line ? line + strlen(name) : NULL;
}

static unsigned int number_of(const char *text, const char *name)
{
	const char *value = value_of(text, name);

	return value ? (unsigned int)strtoul(value, NULL, 10) : 0;
}

/* A text that does not come to the context switches, near its end, is not whole: what it has not
 * said is not to be taken for absent. Kernels before 5.9 do not count the filters: they are then
 * taken for one. */
bool thread_status_parse(const char *text, struct thread_status *status)
{
	const char *state = value_of(text, "\nState:\t"),
		   *features = value_of(text, "\nx86_Thread_features:\t");

	if (!state || !*state || !value_of(text, "\nnonvoluntary_ctxt_switches:\t"))
		return false;
	*status = (struct thread_status){
		.state = *state,
		.seccomp = number_of(text, "\nSeccomp:\t"),
		.filters = number_of(text, "\nSeccomp_filters:\t"),
		.shadow_stack = features && !strncmp(features, "shstk", strlen("shstk")),
	};
	if (status->seccomp == SECCOMP_MODE_FILTER && !status->filters)
		status->filters = 1;
	return true;
}

bool thread_cpu_times_parse(const char *text, struct thread_cpu_times *times)
{
	return sscanf(text, "%" SCNu64 " %" SCNu64, &times->ran, &times->waited) == 2;
}

/* To its end; false also if there is no room for it. */
static bool read_text(int fd, char *text, size_t size)
{
	size_t done = 0;
	ssize_t length;

	do {
		length = pread(fd, text + done, size - done, (off_t)done);
		done += length > 0 ? (size_t)length : 0;
	} while (length > 0 && done < size);
	if (length || !done)
		return false;
	text[done] = '\0';
	return true;
}

/* A process may be in 65536 groups, which are listed before what is wanted. */
bool thread_status_read(int fd, struct thread_status *status)
{
	char text[64 << 10];

	return read_text(fd, text, sizeof(text)) && thread_status_parse(text, status);
}

bool thread_cpu_times_read(int fd, struct thread_cpu_times *times)
{
	char text[128];

	return read_text(fd, text, sizeof(text)) && thread_cpu_times_parse(text, times);
}
