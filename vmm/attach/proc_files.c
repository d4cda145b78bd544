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

#include "shared/clock_ns.h"
#include "vmm/attach/process.h"

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

FILE *proc_open_file(int directory, const char *path)
{
	int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");

	if (!file && fd >= 0)
		close(fd);
	return file;
}

DIR *proc_open_directory(int directory, const char *path)
{
	int fd = openat(directory, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);

	if (!entries && fd >= 0)
		close(fd);
	return entries;
}

int proc_each_number(int directory, const char *path, bool (*each)(void *context, int number),
		     void *context)
{
	DIR *entries = proc_open_directory(directory, path);
	const struct dirent *entry;

	if (!entries)
		return -errno;
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
	errno = 0; /* stays 0 for an empty link */
	length = readlinkat(directory, path, link, size - 1);
	link[length > 0 ? length : 0] = '\0';
	return length > 0;
}

#define VM_LINK   "anon_inode:kvm-vm"
#define VCPU_LINK "anon_inode:kvm-vcpu"

/* Parses a decimal vCPU id. */
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
 * "16 0xc 0xae80 0x0 0x0 0x0 0x0 0x7ffc... 0x7f12...": number of the system call, its six
 * arguments, RSP and RIP; "running" outside of one. KVM's worker threads show the call that created
 * them, without RIP.
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

/* "NSpid:\t4711\t22\t3": from our namespace to the innermost one. */
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

/* The value of NAME, which begins a line. The first line has the thread's name, in which the
 * kernel escapes newlines (string_escape_str()). */
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

/* A text without the context switches, near its end, is truncated, and absent fields prove
 * nothing. Before 5.9 the kernel does not count filters: they count as one then. */
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

/* Reads to the end; false if it does not fit. */
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

/* The text lists up to 65536 groups before the needed fields. */
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

bool thread_cpu_times_of(int directory, pid_t tid, struct thread_cpu_times *times)
{
	int fd = proc_open_thread_file(directory, tid, "schedstat");
	bool read = fd >= 0 && thread_cpu_times_read(fd, times);

	if (fd >= 0)
		close(fd);
	return read;
}

/* Numbers of fields, proc(5): the name, in parentheses, may contain anything. */
#define FIELD_NAME       2
#define FIELD_GUEST_TIME 43

uint64_t proc_parse_guest_ticks(const char *text)
{
	const char *at = strrchr(text, ')');

	for (int field = FIELD_NAME; at && field < FIELD_GUEST_TIME; field++) {
		at = strchr(at, ' ');
		at = at ? at + 1 : NULL;
	}
	return at ? strtoull(at, NULL, 10) : 0;
}

uint64_t proc_guest_time(int directory)
{
	int fd = openat(directory, "stat", O_RDONLY | O_CLOEXEC);
	char text[1024];
	bool read = fd >= 0 && read_text(fd, text, sizeof(text));

	if (fd >= 0)
		close(fd);
	return read ? proc_parse_guest_ticks(text) * (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK))
		    : 0;
}
