/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/exit_counter.h"

#include <asm/kvm.h>
#include <asm/svm.h>
#include <asm/vmx.h>
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/array.h"
#include "shared/error.h"
#include "vmm/attach/bpf_library.h"
#include "vmm/attach/proc_files.h"

#include "exit_program.skel.h"

#define ISA_VMX 1 /* arch/x86/kvm/trace.h, KVM_ISA_VMX */
#define ISA_SVM 2

struct exit_counter {
	struct exit_program *programs;
	struct bpf_link *exit, *entry;
};

/* The tracepoint */

/* A descriptor of tracefs. If it is not mounted, it is mounted for this process only. */
static int open_tracefs(void)
{
	static const char *const usual[] = { "/sys/kernel/tracing", "/sys/kernel/debug/tracing" };
	int context, mounted = -1;

	for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++) {
		int fd = open(usual[i], O_PATH | O_DIRECTORY | O_CLOEXEC);

		if (fd >= 0 && !faccessat(fd, "events", F_OK, 0))
			return fd;
		if (fd >= 0)
			close(fd);
	}
	context = (int)syscall(SYS_fsopen, "tracefs", FSOPEN_CLOEXEC);
	if (context < 0)
		return -errno;
	if (!syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		mounted = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, 0);
	mounted = mounted < 0 ? -errno : mounted;
	close(context);
	return mounted;
}

/* The offset of the 4-byte field NAME in a tracepoint's FORMAT; 0: there is none. */
static uint32_t field_offset(const char *format, const char *name)
{
	char pattern[32];
	const char *field;
	unsigned int offset, size;

	snprintf(pattern, sizeof(pattern), " %s;", name);
	field = strstr(format, pattern);
	if (!field || sscanf(field + strlen(pattern), " offset:%u; size:%u", &offset, &size) != 2)
		return 0;
	return size == 4 ? offset : 0;
}

struct tracepoint {
	unsigned int id;
	uint32_t reason, isa, vcpu; /* offsets */
};

static int read_tracepoint(int tracefs, struct tracepoint *tracepoint)
{
	char id[32], format[4096]; /* the fields come first */
	ssize_t got = proc_read(tracefs, "events/kvm/kvm_exit/id", id, sizeof(id));

	if (got >= 0)
		got = proc_read(tracefs, "events/kvm/kvm_exit/format", format, sizeof(format));
	if (got == -ENOENT)
		return error_set(-ENOENT, "this kernel has no tracepoint kvm:kvm_exit: KVM is not "
					  "loaded (modprobe kvm_intel or kvm_amd)");
	if (got < 0)
		return error_set((int)got,
				 "cannot read the tracepoint kvm:kvm_exit: %s (run as root)",
				 strerror((int)-got));
	*tracepoint = (struct tracepoint){ .id = (unsigned int)strtoul(id, NULL, 10),
					   .reason = field_offset(format, "exit_reason"),
					   .isa = field_offset(format, "isa"),
					   .vcpu = field_offset(format, "vcpu_id") };
	return tracepoint->reason && tracepoint->isa && tracepoint->vcpu
		       ? 0
		       : error_set(-ENOTSUP, "this kernel's tracepoint kvm:kvm_exit lacks the exit "
					     "reason or the vCPU: a newer kernel has them");
}

/* Other implementations of KVM do not reach its tracepoints: no exits would mean nothing. */
static bool kvm_reports_exits(void)
{
	return !access("/sys/module/kvm_intel", F_OK) || !access("/sys/module/kvm_amd", F_OK);
}

static int find_tracepoint(struct tracepoint *tracepoint)
{
	int tracefs, error;

	if (!kvm_reports_exits())
		return error_set(-ENOTSUP, "this host's KVM does not report exits: only those of "
					   "kvm_intel and kvm_amd can be counted");
	tracefs = open_tracefs();
	if (tracefs < 0)
		return error_set(tracefs == -EPERM ? -EACCES : tracefs,
				 "cannot open tracefs, which describes KVM's tracepoints: %s (run "
				 "as root)",
				 strerror(-tracefs));
	error = read_tracepoint(tracefs, tracepoint);
	close(tracefs);
	return error;
}

/* The programs */

/* The kernel calls the program on all CPUs, whatever CPU the event is for. */
static int attach_exit(struct exit_counter *counter, unsigned int id)
{
	const struct perf_event_attr attribute = { .size = sizeof(attribute),
						   .type = PERF_TYPE_TRACEPOINT,
						   .config = id };
	int fd = (int)syscall(SYS_perf_event_open, &attribute, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		return -errno;
	counter->exit = bpf_program__attach_perf_event(counter->programs->progs.count_exit, fd);
	if (counter->exit)
		return 0; /* the link owns the descriptor */
	close(fd);
	return -errno;
}

/* The entry first, so that each exit that is seen has its entry seen. */
static int attach_programs(struct exit_counter *counter, unsigned int id)
{
	int error;

	counter->entry = bpf_program__attach(counter->programs->progs.count_entry);
	error = counter->entry ? attach_exit(counter, id) : -errno;
	return error ? error_set(error == -EPERM ? -EACCES : error,
				 "cannot attach to KVM's tracepoints: %s (run as root, or with "
				 "CAP_BPF and CAP_PERFMON)",
				 strerror(-error))
		     : 0;
}

static int load(struct exit_counter *counter, pid_t pid, const struct tracepoint *tracepoint)
{
	struct btf *kernel = bpf_library_types(); /* also directs libbpf's messages */
	struct stat namespace;
	int error;

	bpf_library_free_types(kernel);
	if (!kernel)
		return error_set(-ENOTSUP, "this kernel has no BTF, which BPF programs need");
	if (stat("/proc/self/ns/pid", &namespace))
		return error_set(-errno, "cannot read /proc/self/ns/pid: %s", strerror(errno));
	counter->programs = exit_program__open();
	if (!counter->programs)
		return error_set(-ENOTSUP, "libbpf cannot open the BPF program: %s",
				 strerror(errno));
	counter->programs->rodata->pid_wanted = (uint32_t)pid;
	counter->programs->rodata->namespace_wanted = (uint32_t) namespace.st_ino;
	counter->programs->rodata->reason_offset = tracepoint->reason;
	counter->programs->rodata->isa_offset = tracepoint->isa;
	counter->programs->rodata->vcpu_offset = tracepoint->vcpu;
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

int exit_counter_open(struct exit_counter **result, pid_t pid)
{
	struct exit_counter *counter = calloc(1, sizeof(*counter));
	struct tracepoint tracepoint;
	int error;

	if (!counter)
		return error_set(-ENOMEM, "no memory for counting exits");
	error = find_tracepoint(&tracepoint);
	if (!error)
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
	bpf_link__destroy(counter->exit);
	bpf_link__destroy(counter->entry);
	exit_program__destroy(counter->programs);
	free(counter);
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

void exit_row_add(struct exit_row *row, const struct exit_row *more)
{
	struct exit_counts *to = &row->counts;
	const struct exit_counts *from = &more->counts;

	to->count += from->count;
	to->ns += from->ns;
	to->ns_max = from->ns_max > to->ns_max ? from->ns_max : to->ns_max;
	for (unsigned int i = 0; i < EXIT_BUCKETS; i++)
		to->buckets[i] += from->buckets[i];
}

void exit_row_subtract(struct exit_row *row, const struct exit_row *earlier)
{
	row->counts.count -= earlier->counts.count;
	row->counts.ns -= earlier->counts.ns;
	row->counts.ns_max = 0;
	for (unsigned int i = 0; i < EXIT_BUCKETS; i++)
		row->counts.buckets[i] -= earlier->counts.buckets[i];
}

/* The largest time of bucket INDEX, as bucket_of() in bpf/exit_program.c counts them. */
static uint64_t bucket_end(unsigned int index)
{
	return index < 8 ? index : ((8ull + index % 8 + 1) << (index / 8 - 1)) - 1;
}

uint64_t exit_row_percentile(const struct exit_row *row, double share)
{
	uint64_t total = 0, seen = 0;

	for (unsigned int i = 0; i < EXIT_BUCKETS; i++)
		total += row->counts.buckets[i];
	for (unsigned int i = 0; total && i < EXIT_BUCKETS; i++) {
		seen += row->counts.buckets[i];
		if ((double)seen >= share * (double)total)
			return row->counts.ns_max && bucket_end(i) > row->counts.ns_max
				       ? row->counts.ns_max
				       : bucket_end(i);
	}
	return 0;
}

/* <asm/svm.h> uses it, and no header for user space has it: SDM vol. 3A 6.15. */
#ifndef XM_VECTOR
#define XM_VECTOR 19
#endif

static const struct reason {
	uint32_t number;
	const char *name;
} vmx_reasons[] = { VMX_EXIT_REASONS }, svm_reasons[] = { SVM_EXIT_REASONS };

static const char *find_reason(const struct reason *reasons, size_t count, uint32_t number)
{
	for (size_t i = 0; i < count; i++)
		if (reasons[i].number == number)
			return reasons[i].name;
	return NULL;
}

const char *exit_reason_name(uint32_t isa, uint32_t reason, char name[EXIT_NAME_SIZE])
{
	const char *found = NULL, *failed = "";

	if (isa == ISA_VMX) {
		found = find_reason(vmx_reasons, sizeof(vmx_reasons) / sizeof(vmx_reasons[0]),
				    reason & 0xffff);
		failed = reason & VMX_EXIT_REASONS_FAILED_VMENTRY ? " FAILED_VMENTRY" : "";
	} else if (isa == ISA_SVM) {
		found = find_reason(svm_reasons, sizeof(svm_reasons) / sizeof(svm_reasons[0]),
				    reason);
	}
	if (found)
		snprintf(name, EXIT_NAME_SIZE, "%s%s", found, failed);
	else
		snprintf(name, EXIT_NAME_SIZE, "reason 0x%x", reason);
	return name;
}
