/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vmm/disk/sandbox_parts.h"

/* The system calls of code that reads files. */
static const int reading[] = {
	/* the end */
	SYS_exit, SYS_exit_group,
	/* memory, signals, locks, random numbers for the heap */
	SYS_brk, SYS_munmap, SYS_mremap, SYS_madvise, SYS_futex, SYS_rt_sigaction,
	SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_getrandom,
	/* files */
	SYS_read, SYS_pread64, SYS_lseek, SYS_close, SYS_fstat, SYS_stat, SYS_lstat, SYS_newfstatat,
	SYS_statx, SYS_statfs, SYS_fstatfs, SYS_access, SYS_faccessat, SYS_faccessat2, SYS_readlink,
	SYS_readlinkat, SYS_getdents64, SYS_getcwd, SYS_fadvise64,
	/* what libraries read about the process and the machine */
	SYS_getpid, SYS_gettid, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_clock_gettime,
	SYS_gettimeofday, SYS_uname
};

/* A program starts, and is linked. */
static const int starting[] = { SYS_execve,          SYS_arch_prctl, SYS_set_tid_address,
				SYS_set_robust_list, SYS_rseq,       SYS_mmap,
				SYS_mprotect };

/* A function: open descriptors, also of the broker's socket, and what the C library calls. */
static const int function_calls[] = {
	SYS_write,           SYS_writev,    SYS_pwrite64,     SYS_readv,
	SYS_ftruncate,       SYS_dup,       SYS_poll,         SYS_ppoll,
	SYS_sendto,          SYS_recvfrom,  SYS_shutdown,     SYS_sendfile,
	SYS_clock_nanosleep, SYS_nanosleep, SYS_sched_yield,  SYS_sched_getaffinity,
	SYS_sysinfo,         SYS_getrusage, SYS_memfd_create, SYS_restart_syscall,
	SYS_membarrier,      SYS_rseq,      SYS_getppid
};

/* Landlock has the list of the files. */
static const int writing[] = {
	SYS_mkdir,     SYS_mkdirat,         SYS_rmdir,     SYS_unlink, SYS_unlinkat,
	SYS_rename,    SYS_renameat,        SYS_renameat2, SYS_link,   SYS_linkat,
	SYS_symlink,   SYS_symlinkat,       SYS_fchmod,    SYS_fsync,  SYS_fdatasync,
	SYS_fallocate, SYS_copy_file_range, SYS_utimensat, SYS_umask,  SYS_flock
};

/* libcurl and the C library's resolver */
static const int connecting[] = {
	SYS_socket,      SYS_socketpair, SYS_connect,    SYS_bind,     SYS_getsockname,
	SYS_getpeername, SYS_getsockopt, SYS_setsockopt, SYS_sendmsg,  SYS_sendmmsg,
	SYS_recvmsg,     SYS_recvmmsg,   SYS_pipe2,      SYS_eventfd2, SYS_epoll_create1,
	SYS_epoll_ctl,   SYS_epoll_wait, SYS_pselect6,   SYS_select,   SYS_set_robust_list
};

/* Flags of open() that allow more than reading. */
#define OPENS_TO_WRITE (O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY))

/* The descriptor for an error before execve(). */
#define REPORT (STDERR_FILENO + 1)

struct rule {
	int call;
	struct scmp_arg_cmp condition;
};

static const struct rule read_only[] = {
	{ SYS_openat, SCMP_A2(SCMP_CMP_MASKED_EQ, OPENS_TO_WRITE, O_RDONLY) },
	{ SYS_open, SCMP_A1(SCMP_CMP_MASKED_EQ, OPENS_TO_WRITE, O_RDONLY) },
};

/* Reading limits is allowed, setting them is not. */
#define READS_LIMITS                                                                               \
	{                                                                                          \
		SYS_prlimit64, SCMP_A2(SCMP_CMP_EQ, 0, 0)                                          \
	}

static const struct rule program_rules[] = {
	{ SYS_write, SCMP_A0(SCMP_CMP_LE, REPORT, 0) },
	READS_LIMITS,
	{ SYS_ioctl, SCMP_A1(SCMP_CMP_EQ, TCGETS, 0) },
	{ SYS_ioctl, SCMP_A1(SCMP_CMP_EQ, BLKGETSIZE64, 0) },
	{ SYS_ioctl, SCMP_A1(SCMP_CMP_EQ, BLKSSZGET, 0) },
};

/* F_SETOWN would direct signals to other processes of the user. */
static const struct rule function_rules[] = {
	READS_LIMITS,
	{ SYS_fcntl, SCMP_A1(SCMP_CMP_LE, F_SETFL, 0) }, /* F_DUPFD, F_GETFD, F_SETFD, F_GETFL */
	{ SYS_fcntl, SCMP_A1(SCMP_CMP_EQ, F_DUPFD_CLOEXEC, 0) },
	{ SYS_ioctl, SCMP_A1(SCMP_CMP_EQ, TCGETS, 0) },
	{ SYS_ioctl, SCMP_A1(SCMP_CMP_EQ, TIOCGWINSZ, 0) },
	{ SYS_ioctl, SCMP_A1(SCMP_CMP_EQ, FICLONE, 0) },
	{ SYS_mmap, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0) },
	{ SYS_mprotect, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0) },
};

/* Libraries of the resolver are loaded, and threads started. */
static const struct rule network_rules[] = {
	{ SYS_mmap, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_WRITE | PROT_EXEC, PROT_EXEC) },
	{ SYS_mprotect, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_WRITE | PROT_EXEC, PROT_EXEC) },
	{ SYS_clone, SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD) },
	{ SYS_ioctl, SCMP_A1(SCMP_CMP_EQ, FIONREAD, 0) },
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int allow_calls(scmp_filter_ctx filter, const int *calls, size_t count)
{
	int error = 0;

	for (size_t i = 0; i < count && !error; i++)
		error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
	return error;
}

static int allow_rules(scmp_filter_ctx filter, const struct rule *rules, size_t count)
{
	int error = 0;

	for (size_t i = 0; i < count && !error; i++)
		error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, rules[i].call, 1,
					 rules[i].condition);
	return error;
}

int sandbox_restrict_program(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int error = filter ? allow_calls(filter, reading, COUNT(reading)) : -ENOMEM;

	if (!error)
		error = allow_calls(filter, starting, COUNT(starting));
	if (!error)
		error = allow_rules(filter, read_only, COUNT(read_only));
	if (!error)
		error = allow_rules(filter, program_rules, COUNT(program_rules));
	if (!error)
		error = seccomp_load(filter);
	seccomp_release(filter);
	return error;
}

static int allow_writing(scmp_filter_ctx filter)
{
	int error = allow_calls(filter, writing, COUNT(writing));

	if (!error)
		error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SYS_open, 0);
	return error ? error : seccomp_rule_add(filter, SCMP_ACT_ALLOW, SYS_openat, 0);
}

/* A thread's flags of clone3() are in memory, so the C library must use clone(). */
static int allow_connecting(scmp_filter_ctx filter)
{
	int error = allow_calls(filter, connecting, COUNT(connecting));

	if (!error)
		error = allow_rules(filter, network_rules, COUNT(network_rules));
	return error ? error : seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SYS_clone3, 0);
}

int sandbox_restrict_function(bool writes, bool network)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int error = filter ? allow_calls(filter, reading, COUNT(reading)) : -ENOMEM;

	if (!error)
		error = allow_calls(filter, function_calls, COUNT(function_calls));
	if (!error)
		error = allow_rules(filter, function_rules, COUNT(function_rules));
	/* A message before abort() */
	if (!error)
		error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SYS_tgkill, 1,
					 SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0));
	if (!error)
		error = writes ? allow_writing(filter)
			       : allow_rules(filter, read_only, COUNT(read_only));
	if (!error && network)
		error = allow_connecting(filter);
	if (!error)
		error = seccomp_load(filter);
	seccomp_release(filter);
	return error;
}
