/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/confine_table.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/kvm.h>
#include <linux/landlock.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define VCPU      CONFINE_VCPU
#define DEVICES   CONFINE_DEVICES
#define COLLECTOR CONFINE_COLLECTOR
#define PARSER    CONFINE_PARSER
#define AGENT     CONFINE_AGENT
#define WATCHDOG  CONFINE_WATCHDOG
#define CONTROL   CONFINE_CONTROL
#define ATTACH    CONFINE_ATTACH
#define MAIN      CONFINE_MAIN
/* The main thread starts the vCPUs' threads, which inherit its filter, and so on. */
#define VCPUS    (VCPU | MAIN)
#define FILES    (COLLECTOR | MAIN) /* They write recordings and the build-id cache. */
#define STARTERS MAIN               /* Its threads are started while it is confined. */
#define EVERY    (~0u)

#define INT(value) CONFINE_INT((unsigned int)(value))
/* The bits of MASK have the values that they have in BITS. */
#define BITS(mask, bits) SCMP_CMP_MASKED_EQ, (unsigned int)(mask), (unsigned int)(bits)

#define CALL(name)                                                                                 \
	SYS_##name,                                                                                \
	{                                                                                          \
		0                                                                                  \
	}
#define CALL_IF(name, cond) SYS_##name, cond
#define IOCTL(request)      SYS_ioctl, SCMP_A1(INT(request))
#define FCNTL(command)      SYS_fcntl, SCMP_A1(INT(command))
#define PRCTL(option)       SYS_prctl, SCMP_A0(INT(option))
#define BPF(command)        SYS_bpf, SCMP_A0(INT(command))

/* Flags of open() that allow more than reading. */
#define OPENS_TO_WRITE (O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY))
/* Modes that give others the rights of the file's owner. */
#define UNSAFE_MODES (S_ISUID | S_ISGID | S_IWGRP | S_IWOTH)
/* Flags of pthread_create(), so that nothing else is created. */
#define OF_THREADS (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD)
#define NAMESPACES                                                                                 \
	(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | \
	 CLONE_NEWCGROUP)

const struct confine_rule confine_table[] = {
	/* The heap, and files that are mapped for reading; nothing becomes executable. */
	{ EVERY, CALL(brk) },
	{ EVERY, CALL_IF(mmap, SCMP_A2(BITS(PROT_EXEC, 0))) },
	{ EVERY, CALL_IF(mprotect, SCMP_A2(BITS(PROT_EXEC, 0))) },
	{ EVERY, CALL(munmap) },
	{ EVERY, CALL(mremap) },
	{ EVERY, CALL(madvise) },
	{ EVERY, CALL(sched_getaffinity) }, /* malloc(), for its ninth heap */
	{ EVERY, CALL(sysinfo) },           /* qsort(), for the size of its buffer */
	{ EVERY, CALL(getrandom) },         /* keys of hash tables */
	/* Locks, signals, the end of a thread, assert(). */
	{ EVERY, CALL(futex) },
	{ EVERY, CALL(sched_yield) },
	{ EVERY, CALL(rt_sigaction) },
	{ EVERY, CALL(rt_sigprocmask) },
	{ EVERY, CALL(rt_sigreturn) },
	{ EVERY, CALL(restart_syscall) },
	{ EVERY, CALL(getpid) },
	{ EVERY, CALL(geteuid) }, /* the owners of files, and clients */
	{ EVERY, CALL(gettid) },
	{ EVERY, CALL(exit) },
	{ EVERY, CALL(exit_group) },
	{ EVERY, CALL(writev) },       /* the message of assert() */
	{ EVERY, PRCTL(PR_GET_NAME) }, /* the message of a violation */
	{ EVERY, IOCTL(TCGETS) },      /* standard I/O; the terminal, which a thread that */
	{ EVERY, IOCTL(TCSETS) },      /* crashes restores */
	{ EVERY, IOCTL(TIOCGWINSZ) },  /* messages that fit on a line */
	/* Times. */
	{ EVERY, CALL(clock_gettime) },
	{ EVERY, CALL(gettimeofday) },
	{ EVERY, CALL(clock_getres) }, /* clock_getcpuclockid() */
	{ EVERY, CALL(clock_nanosleep) },
	/* Open files: eventfds, the console, the recording, statistics of KVM. */
	{ EVERY, CALL(read) },
	{ EVERY, CALL(write) },
	{ EVERY, CALL(pread64) },
	{ EVERY, CALL(pwrite64) },
	{ EVERY, CALL(lseek) },
	{ EVERY, CALL(close) },
	{ EVERY, CALL(fstat) },
	{ EVERY, CALL(poll) },
	{ EVERY, FCNTL(F_GETFD) },
	{ EVERY, FCNTL(F_SETFD) },
	{ EVERY, FCNTL(F_GETFL) },
	/* Files of /proc/sys and /sys, for malloc(), and of the run; Landlock has the list. */
	{ EVERY, CALL(newfstatat) },
	{ EVERY, CALL_IF(openat, SCMP_A2(BITS(OPENS_TO_WRITE, 0))) },
	{ FILES | CONTROL, CALL(readlink) },
	{ FILES | CONTROL, CALL(getcwd) }, /* realpath() */
	{ FILES | CONTROL, CALL(access) },
	{ FILES | ATTACH, CALL(getdents64) },

	/* Recordings and the build-id cache. */
	{ FILES, CALL_IF(openat, SCMP_A2(BITS(O_ACCMODE, O_WRONLY))) },
	{ FILES, CALL_IF(openat, SCMP_A2(BITS(O_ACCMODE, O_RDWR))) },
	{ FILES, CALL(ftruncate) },
	{ FILES, CALL(mkdir) },
	{ FILES, CALL(rename) },
	{ FILES, CALL(unlink) },
	{ FILES, CALL(rmdir) },
	{ FILES, CALL(symlink) },
	{ FILES, CALL(utimensat) },
	{ FILES, CALL_IF(fchmod, SCMP_A1(BITS(UNSAFE_MODES, 0))) },
	{ FILES, CALL(uname) }, /* the names of installed kernels */
	/* Rings: for late events of a flight recording, and the end of each. */
	{ FILES, CALL(memfd_create) }, /* also for symbols on the way to a reader of files */
	{ FILES, CALL(eventfd2) },
	{ FILES, FCNTL(F_ADD_SEALS) },
	{ FILES, FCNTL(F_OFD_SETLK) }, /* also the end of a disk's lock */
	{ FILES, FCNTL(F_OFD_GETLK) },
	/* Others for recordings and symbols. */
	{ FILES, CALL(dup) }, /* standard output as the recording */
	{ FILES, FCNTL(F_DUPFD_CLOEXEC) },
	{ MAIN, CALL(statfs) }, /* room for symbols of disks */
	{ MAIN, CALL(sendto) }, /* requests to the process that reads disks */
	{ MAIN, CALL(recvfrom) },
	/* whether that process has Landlock */
	{ MAIN, CALL_IF(landlock_create_ruleset, SCMP_A2(INT(LANDLOCK_CREATE_RULESET_VERSION))) },
	{ MAIN, CALL(wait4) }, /* the end of the process that probes guest debugging */

	/* Threads: see pthread_create(). */
	{ STARTERS, CALL_IF(clone, SCMP_A0(BITS(OF_THREADS | NAMESPACES, OF_THREADS))) },
	{ STARTERS, CALL(set_robust_list) },
	{ STARTERS, CALL(rseq) },
	{ STARTERS, PRCTL(PR_SET_NAME) },
	{ STARTERS, PRCTL(PR_SET_SECCOMP) }, /* a filter of its own */

	/* A vCPU in KVM, and its registers. */
	{ VCPUS, IOCTL(KVM_RUN) },
	{ VCPUS, IOCTL(KVM_CHECK_EXTENSION) },
	{ VCPUS, IOCTL(KVM_GET_REGS) },
	{ VCPUS, IOCTL(KVM_SET_REGS) },
	{ VCPUS, IOCTL(KVM_GET_SREGS) },
	{ VCPUS, IOCTL(KVM_SET_SREGS) },
	{ VCPUS, IOCTL(KVM_GET_MSRS) },
	{ VCPUS, IOCTL(KVM_SET_MSRS) },
	{ VCPUS, IOCTL(KVM_GET_MP_STATE) }, /* halted? */
	{ VCPUS, IOCTL(KVM_GET_NESTED_STATE) },
	/* Watches. */
	{ VCPUS, IOCTL(KVM_SET_GUEST_DEBUG) },
	{ VCPUS, IOCTL(KVM_GET_DEBUGREGS) },
	{ VCPUS, IOCTL(KVM_SET_DEBUGREGS) },
	{ VCPUS, IOCTL(KVM_GET_VCPU_EVENTS) },
	{ VCPUS, IOCTL(KVM_SET_VCPU_EVENTS) },
	{ VCPUS, IOCTL(KVM_TRANSLATE) },
	/* Interrupts of devices and of the emulated PMU. */
	{ VCPUS | DEVICES, IOCTL(KVM_IRQ_LINE) },
	{ VCPUS, IOCTL(KVM_NMI) },
	{ VCPUS, IOCTL(KVM_SIGNAL_MSI) },
	{ VCPUS, IOCTL(KVM_GET_LAPIC) },
	{ VCPUS, IOCTL(KVM_SET_LAPIC) },
	{ VCPUS, IOCTL(KVM_GET_IRQCHIP) },
	/* A reset of the machine. */
	{ MAIN, IOCTL(KVM_SET_MP_STATE) },
	{ MAIN, IOCTL(KVM_SET_XSAVE) },
	{ MAIN, IOCTL(KVM_SET_XCRS) },
	{ MAIN, IOCTL(KVM_SET_NESTED_STATE) },
	{ MAIN, IOCTL(KVM_SET_IRQCHIP) },
	{ MAIN, IOCTL(KVM_SET_PIT2) },
	{ MAIN, IOCTL(KVM_GET_STATS_FD) }, /* counters for --trigger and warnings */

	/* A vCPU's own clocks: perf events of the calling thread, whose signals it gets, and
	   timers. */
	{ VCPUS, CALL_IF(perf_event_open, SCMP_A1(INT(0))) },
	{ VCPUS | ATTACH, IOCTL(PERF_EVENT_IOC_ENABLE) },
	{ VCPUS | ATTACH | MAIN, IOCTL(PERF_EVENT_IOC_DISABLE) }, /* MAIN: --stat */
	{ VCPUS | ATTACH, IOCTL(PERF_EVENT_IOC_PERIOD) },
	{ VCPUS, IOCTL(PERF_EVENT_IOC_REFRESH) },
	{ VCPUS, FCNTL(F_SETFL) },
	{ VCPUS, FCNTL(F_SETOWN_EX) },
	{ VCPUS, FCNTL(F_SETSIG) },
	{ VCPUS, CALL(timer_create) },
	{ VCPUS, CALL(timer_settime) },
	{ VCPUS, CALL(timer_gettime) },
	{ VCPUS, CALL(timer_getoverrun) },
	{ VCPUS, CALL(timer_delete) },

	/* The event loop, also when a device changes what it waits for; disks; console ports. */
	{ DEVICES | ATTACH, CALL(epoll_wait) },
	{ VCPUS | DEVICES | ATTACH, CALL(epoll_ctl) },
	{ VCPUS | DEVICES | COLLECTOR, CALL(timerfd_settime) },
	{ DEVICES, CALL(preadv) },
	{ DEVICES, CALL(pwritev) },
	{ DEVICES, CALL(fdatasync) },
	{ DEVICES, CALL(recvmsg) },
	{ DEVICES, CALL(sendmsg) },

	/* Connections; sockets that listen are open. */
	{ DEVICES | CONTROL, CALL(accept4) },
	{ CONTROL, CALL(getsockopt) }, /* the client's user */
	{ CONTROL | AGENT, CALL(recvfrom) },
	{ CONTROL | AGENT | DEVICES, CALL(sendto) },

	/* Samples by BPF: the kernel's programs are loaded before. */
	{ ATTACH, CALL(perf_event_open) }, /* of vCPU threads */
	{ ATTACH, CALL(faccessat2) },      /* threads of the process, in /proc/self */
	{ ATTACH, CALL(readlinkat) },
	{ ATTACH, BPF(BPF_MAP_CREATE) }, /* chunks of further vCPUs */
	{ ATTACH, BPF(BPF_MAP_UPDATE_ELEM) },
	{ ATTACH | MAIN, BPF(BPF_MAP_DELETE_ELEM) },
	{ ATTACH, BPF(BPF_LINK_CREATE) },
	{ MAIN, BPF(BPF_MAP_GET_NEXT_KEY) }, /* --stat: counts of exits */
	{ MAIN, BPF(BPF_MAP_LOOKUP_ELEM) },
	{ ATTACH, BPF(BPF_ITER_CREATE) }, /* finds the vCPUs */

	{ 0 },
};
