/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/kvm_tracepoint.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/attach/proc_files.h"

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

/* The offset of the field NAME of SIZE bytes in a tracepoint's FORMAT; 0: there is none. */
static uint32_t field_offset(const char *format, const char *name, unsigned int size)
{
	char pattern[32];
	const char *field;
	unsigned int offset, found;

	snprintf(pattern, sizeof(pattern), " %s;", name);
	field = strstr(format, pattern);
	if (!field || sscanf(field + strlen(pattern), " offset:%u; size:%u", &offset, &found) != 2)
		return 0;
	return found == size ? offset : 0;
}

static int read_tracepoint(int tracefs, struct kvm_exit_tracepoint *tracepoint)
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
	*tracepoint =
		(struct kvm_exit_tracepoint){ .id = (unsigned int)strtoul(id, NULL, 10),
					      .reason = field_offset(format, "exit_reason", 4),
					      .isa = field_offset(format, "isa", 4),
					      .vcpu = field_offset(format, "vcpu_id", 4),
					      .rip = field_offset(format, "guest_rip", 8) };
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

int kvm_exit_tracepoint_find(struct kvm_exit_tracepoint *tracepoint)
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

/* The kernel calls the program on all CPUs, whatever CPU the event is for. */
struct bpf_link *kvm_exit_tracepoint_attach(unsigned int id, const struct bpf_program *program)
{
	const struct perf_event_attr attribute = { .size = sizeof(attribute),
						   .type = PERF_TYPE_TRACEPOINT,
						   .config = id };
	struct bpf_link *link;
	int fd = (int)syscall(SYS_perf_event_open, &attribute, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		return NULL;
	link = bpf_program__attach_perf_event(program, fd);
	if (!link) {
		int error = errno;

		close(fd); /* else the link owns it */
		errno = error;
	}
	return link;
}
