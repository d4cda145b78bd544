/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/confine_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/cli/command.h"

/* Numbers of system calls are below. */
#define CALLS_MAX 512

/* Newer than the headers of Debian 12 */
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_setxattrat
#define SYS_setxattrat 463
#endif

struct rule {
	int call;
	struct scmp_arg_cmp condition;
};

/* Flags of open() that allow more than reading. */
#define OPENS_TO_WRITE (O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY))

/* --- vCPUs and devices: what they may call -------------------------------------------- */

static const int common_calls[] = {
	/* memory of the heap; PROT_EXEC is excluded below */
	SYS_brk, SYS_munmap, SYS_mremap, SYS_madvise,
	/* locks, signals, the end of a thread, assert() */
	SYS_futex, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigaction, SYS_sigaltstack,
	SYS_tgkill, SYS_getpid, SYS_gettid, SYS_exit, SYS_exit_group, SYS_restart_syscall,
	SYS_sched_yield, SYS_rseq, SYS_set_robust_list, SYS_membarrier,
	/* the C library: malloc() for its ninth heap, the message before abort() */
	SYS_sched_getaffinity, SYS_writev,
	/* times */
	SYS_clock_gettime, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday,
	/* open files: eventfds, the console, the log, statistics */
	SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_close, SYS_lseek, SYS_fstat,
	SYS_newfstatat, SYS_poll, SYS_ppoll, SYS_fcntl, SYS_getrandom
};

/* A vCPU's own clocks: perf events, whose signals it gets, and POSIX timers. */
static const int vcpu_calls[] = { SYS_perf_event_open, SYS_timer_create, SYS_timer_settime,
				  SYS_timer_gettime,   SYS_timer_delete, SYS_timer_getoverrun,
				  SYS_timerfd_settime, SYS_eventfd2,     SYS_epoll_ctl };

/* The kernel ignores the upper half of these arguments, so a filter must, too. */
#define INT(value) SCMP_CMP_MASKED_EQ, UINT32_MAX, (value)

/* ioctl requests by their type (Documentation/userspace-api/ioctl/ioctl-number.rst). */
#define REQUESTS(type) SCMP_A1(SCMP_CMP_MASKED_EQ, 0xff00, (type) << 8)

static const struct rule vcpu_rules[] = {
	{ SYS_ioctl, REQUESTS(KVMIO) }, { SYS_ioctl, REQUESTS('$') }, /* perf events */
};

/* The event loop, disks, sockets of console ports whose listeners are open. */
static const int device_calls[] = {
	SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_ctl, SYS_timerfd_settime, SYS_preadv,
	SYS_preadv2,    SYS_pwritev,     SYS_pwritev2,  SYS_readv,           SYS_fdatasync,
	SYS_fsync,      SYS_accept4,     SYS_recvmsg,   SYS_recvfrom,        SYS_sendmsg,
	SYS_sendto,     SYS_getsockopt,  SYS_shutdown,  SYS_fallocate,       SYS_perf_event_open
};

static const struct rule device_rules[] = {
	{ SYS_ioctl, REQUESTS(KVMIO) }, /* interrupts */
};

/* --- the other threads: forbidden calls ----------------------------------------------- */

static const int forbidden[] = {
	/* programs */
	SYS_execve, SYS_execveat,
	/* other processes */
	SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_process_madvise,
	SYS_pidfd_getfd, SYS_kcmp, SYS_migrate_pages, SYS_move_pages,
	/* services, such as D-Bus, that trust the user: listeners are open */
	SYS_socket, SYS_socketpair, SYS_connect,
	/* files that Landlock does not protect from their owner */
	SYS_truncate, SYS_chmod, SYS_fchmodat, SYS_fchmodat2, SYS_chown, SYS_lchown, SYS_fchown,
	SYS_fchownat, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_setxattrat,
	/* namespaces and file systems */
	SYS_unshare, SYS_setns, SYS_chroot, SYS_pivot_root, SYS_mount, SYS_umount2, SYS_open_tree,
	SYS_move_mount, SYS_fsopen, SYS_fspick, SYS_fsmount, SYS_mount_setattr,
	SYS_open_by_handle_at, SYS_name_to_handle_at, SYS_fanotify_init, SYS_quotactl, SYS_mknod,
	SYS_mknodat,
	/* users and rights, which no longer change */
	SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid,
	SYS_setfsuid, SYS_setfsgid, SYS_setgroups, SYS_personality, SYS_keyctl, SYS_add_key,
	SYS_request_key,
	/* the kernel and the machine */
	SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_kexec_file_load,
	SYS_reboot, SYS_swapon, SYS_swapoff, SYS_acct, SYS_syslog, SYS_settimeofday,
	SYS_clock_settime, SYS_adjtimex, SYS_clock_adjtime, SYS_iopl, SYS_ioperm, SYS_modify_ldt,
	SYS_sethostname, SYS_setdomainname,
	/* large and unused parts of the kernel */
	SYS_pkey_mprotect, SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter,
	SYS_io_uring_register, SYS_io_setup, SYS_vmsplice, SYS_lookup_dcookie, SYS_uselib,
	SYS_ustat, SYS_sysfs
};

static const struct rule forbidden_rules[] = {
	{ SYS_mprotect, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, PROT_EXEC) },
	{ SYS_mmap, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_WRITE | PROT_EXEC, PROT_WRITE | PROT_EXEC) },
	{ SYS_clone, SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER) },
	/* Landlock before Linux 6.2 and opening for reading do not prevent truncation. */
	{ SYS_open, SCMP_A1(SCMP_CMP_MASKED_EQ, O_ACCMODE | O_TRUNC, O_RDONLY | O_TRUNC) },
	{ SYS_open, SCMP_A1(SCMP_CMP_MASKED_EQ, O_ACCMODE | O_TRUNC, O_ACCMODE | O_TRUNC) },
	{ SYS_openat, SCMP_A2(SCMP_CMP_MASKED_EQ, O_ACCMODE | O_TRUNC, O_RDONLY | O_TRUNC) },
	{ SYS_openat, SCMP_A2(SCMP_CMP_MASKED_EQ, O_ACCMODE | O_TRUNC, O_ACCMODE | O_TRUNC) },
	/* for programs of /usr that are open for reading */
	{ SYS_fchmod, SCMP_A1(SCMP_CMP_MASKED_EQ, S_ISUID, S_ISUID) },
	{ SYS_fchmod, SCMP_A1(SCMP_CMP_MASKED_EQ, S_ISGID, S_ISGID) },
	{ SYS_fchmod, SCMP_A1(SCMP_CMP_MASKED_EQ, S_IWGRP, S_IWGRP) },
	{ SYS_fchmod, SCMP_A1(SCMP_CMP_MASKED_EQ, S_IWOTH, S_IWOTH) },
	/* input for the shell that started kvmscope */
	{ SYS_ioctl, SCMP_A1(INT(TIOCSTI)) },
	{ SYS_ioctl, SCMP_A1(INT(TIOCLINUX)) },
};

/* With BPF, maps may be used; only the thread "attach" loads programs. */
static const struct rule bpf_rules[] = {
	{ SYS_bpf, SCMP_A0(INT(BPF_PROG_LOAD)) },
	{ SYS_bpf, SCMP_A0(INT(BPF_PROG_ATTACH)) },
	{ SYS_bpf, SCMP_A0(INT(BPF_BTF_LOAD)) },
	{ SYS_bpf, SCMP_A0(INT(BPF_RAW_TRACEPOINT_OPEN)) },
	{ SYS_bpf, SCMP_A0(INT(BPF_LINK_CREATE)) },
};

/* --- compiling ----------------------------------------------------------------------- */

enum role { ROLE_OTHER, ROLE_ATTACH, ROLE_VCPU, ROLE_DEVICES, ROLES };

/* Compiled before the first thread starts, constant afterwards. */
static struct sock_fprog programs[ROLES];
static char *call_names[CALLS_MAX];

static int add_calls(scmp_filter_ctx filter, uint32_t action, const int *calls, size_t count)
{
	int error = 0;

	for (size_t i = 0; i < count && !error; i++)
		error = seccomp_rule_add(filter, action, calls[i], 0);
	return error;
}

static int add_rules(scmp_filter_ctx filter, uint32_t action, const struct rule *rules,
		     size_t count)
{
	int error = 0;

	for (size_t i = 0; i < count && !error; i++)
		error = seccomp_rule_add(filter, action, rules[i].call, 1, rules[i].condition);
	return error;
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int forbid(scmp_filter_ctx filter, enum role role, bool bpf)
{
	int error = add_calls(filter, SCMP_ACT_TRAP, forbidden, COUNT(forbidden));

	if (!error)
		error = add_rules(filter, SCMP_ACT_TRAP, forbidden_rules, COUNT(forbidden_rules));
	/* Their flags are in memory; the C library uses clone() and openat() then. */
	if (!error)
		error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SYS_clone3, 0);
	if (!error)
		error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SYS_openat2, 0);
	if (error || (bpf && role == ROLE_ATTACH))
		return error;
	return bpf ? add_rules(filter, SCMP_ACT_TRAP, bpf_rules, COUNT(bpf_rules))
		   : seccomp_rule_add(filter, SCMP_ACT_TRAP, SYS_bpf, 0);
}

static int allow(scmp_filter_ctx filter, enum role role)
{
	static const struct rule common_rules[] = {
		/* malloc() reads files of /proc/sys and /sys; Landlock has the list. */
		{ SYS_openat, SCMP_A2(SCMP_CMP_MASKED_EQ, OPENS_TO_WRITE, 0) },
		{ SYS_mmap, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0) },
		{ SYS_mprotect, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0) },
		{ SYS_prctl, SCMP_A0(INT(PR_GET_NAME)) }, /* on_violation() */
		/* the terminal, which a thread that crashes restores */
		{ SYS_ioctl, SCMP_A1(INT(TCGETS)) },
		{ SYS_ioctl, SCMP_A1(INT(TCSETS)) },
	};
	bool vcpu = role == ROLE_VCPU;
	int error = add_calls(filter, SCMP_ACT_ALLOW, common_calls, COUNT(common_calls));

	if (!error)
		error = add_rules(filter, SCMP_ACT_ALLOW, common_rules, COUNT(common_rules));
	if (!error)
		error = vcpu ? add_calls(filter, SCMP_ACT_ALLOW, vcpu_calls, COUNT(vcpu_calls))
			     : add_calls(filter, SCMP_ACT_ALLOW, device_calls, COUNT(device_calls));
	if (error)
		return error;
	return vcpu ? add_rules(filter, SCMP_ACT_ALLOW, vcpu_rules, COUNT(vcpu_rules))
		    : add_rules(filter, SCMP_ACT_ALLOW, device_rules, COUNT(device_rules));
}

/* libseccomp 2.5 writes programs to files only. */
static int export(scmp_filter_ctx filter, struct sock_fprog *program)
{
	int fd = memfd_create("filter", MFD_CLOEXEC);
	int error = fd < 0 ? -errno : seccomp_export_bpf(filter, fd);
	off_t size = error ? 0 : lseek(fd, 0, SEEK_END);

	program->filter = size > 0 ? malloc((size_t)size) : NULL;
	program->len = (unsigned short)((size_t)size / sizeof(struct sock_filter));
	if (!error && (!program->filter || pread(fd, program->filter, (size_t)size, 0) != size))
		error = -ENOMEM;
	if (fd >= 0)
		close(fd);
	return error;
}

static int compile(enum role role, bool bpf)
{
	bool listed = role == ROLE_VCPU || role == ROLE_DEVICES;
	scmp_filter_ctx filter = seccomp_init(listed ? SCMP_ACT_TRAP : SCMP_ACT_ALLOW);
	int error = -ENOMEM;

	if (filter)
		error = listed ? allow(filter, role) : forbid(filter, role, bpf);
	if (!error)
		error = export(filter, &programs[role]);
	seccomp_release(filter);
	return error;
}

/* Async-signal-safe: the names were looked up before. */
static void on_violation(int signal, siginfo_t *info, void *context)
{
	int call = info->si_syscall;
	char text[256], thread[16] = "";
	int size;

	(void)signal;
	(void)context;
	prctl(PR_GET_NAME, thread);
	size = snprintf(text, sizeof(text),
			"kvmscope: error: the thread '%s' called %s (%d), which its seccomp filter "
			"forbids; --no-sandbox runs without filters\n",
			thread,
			call >= 0 && call < CALLS_MAX && call_names[call] ? call_names[call] : "?",
			call);
	if (size > 0 && write(STDERR_FILENO, text, (size_t)size) < 0)
		_exit(EXIT_FAILED);
	_exit(EXIT_FAILED);
}

static int handle_violations(void)
{
	struct sigaction action = { .sa_sigaction = on_violation, .sa_flags = SA_SIGINFO };

	for (int i = 0; i < CALLS_MAX; i++)
		call_names[i] = seccomp_syscall_resolve_num_arch(SCMP_ARCH_X86_64, i);
	return sigaction(SIGSYS, &action, NULL) ? -errno : 0;
}

int confine_calls_prepare(bool bpf)
{
	int error = handle_violations();

	for (enum role role = 0; role < ROLES && !error; role++)
		error = compile(role, bpf);
	return error ? error_set(error, "cannot make seccomp filters: %s", strerror(-error)) : 0;
}

int confine_calls(const char *thread)
{
	enum role role = !strncmp(thread, "vCPU ", 5) ? ROLE_VCPU
			 : !strcmp(thread, "devices") ? ROLE_DEVICES
			 : !strcmp(thread, "attach")  ? ROLE_ATTACH
						      : ROLE_OTHER;

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &programs[role])
		       ? error_set(-errno, "seccomp: %m")
		       : 0;
}
