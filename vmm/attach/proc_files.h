/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads /proc/PID: proc(5). Files are opened below a descriptor of that directory, which keeps
 * referring to the process after its PID is reused: reads then fail (ESRCH). The process, or its
 * creator, controls most of the contents. Any thread.
 */
#ifndef KVMSCOPE_ATTACH_PROC_FILES_H
#define KVMSCOPE_ATTACH_PROC_FILES_H

#include <dirent.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Opens /proc/PID. Negative errors of open(2); -ENOENT: no such process. */
int proc_open(pid_t pid);

/*
 * Reads the beginning of file PATH below DIRECTORY (or AT_FDCWD) into TEXT, SIZE bytes with a
 * terminating NUL. Returns the length without the NUL, or negative errors of open(2) and read(2).
 */
ssize_t proc_read(int directory, const char *path, char *text, size_t size);

/*
 * Calls EACH for every numeric entry of the directory PATH below DIRECTORY (or AT_FDCWD):
 * processes, threads or descriptors, in any order, until EACH returns false. 0, or negative errors
 * of open(2).
 */
int proc_each_number(int directory, const char *path, bool (*each)(void *context, int number),
		     void *context);

/*
 * Reads the link of descriptor FD of the process at DIRECTORY into LINK, SIZE bytes with a NUL,
 * truncated if necessary. False: LINK is empty; errno as of readlink(2) (EACCES: the link may not
 * be read).
 */
bool proc_read_link(int directory, int fd, char *link, size_t size);

/* Parsers. Texts end with NUL and are untrusted. Results are unchanged if the parser fails. */

/* True if LINK, of a descriptor, is that of a VM: "anon_inode:kvm-vm" (virt/kvm/kvm_main.c,
 * kvm_dev_ioctl_create_vm()). */
bool proc_is_vm_link(const char *link);

/* Parses LINK, of a descriptor of vCPU ID, below VMM_VCPUS_MAX: "anon_inode:kvm-vcpu:3" (same
 * file, create_vcpu_fd()). False also for kernels before 4.19, which do not show the id. */
bool proc_parse_vcpu_link(const char *link, unsigned int *id);

/* Parses the vCPU ID, below VMM_VCPUS_MAX, at the end of a thread's NAME: "CPU 3/KVM" of QEMU,
 * "vCPU 3", "fc_vcpu 3" of Firecracker, "crosvm_vcpu3", "kvm-vcpu-3". */
bool proc_parse_thread_name(const char *name, unsigned int *id);

/* True if TEXT, of a thread's file "syscall", shows ioctl(KVM_RUN); FD gets its descriptor
 * (fs/proc/base.c, proc_pid_syscall()). */
bool proc_parse_run_call(const char *text, int *fd);

/* The thread's TID in its innermost PID namespace, from "NSpid:" in TEXT, its file "status"
 * (fs/proc/array.c, task_state()); 0: not found. */
pid_t proc_parse_inner_tid(const char *text);

/* What the kernel shows of a running thread. */

struct thread_status {
	char state;           /* 'R': running, or waiting for a CPU; 'S': sleeping; ... */
	unsigned int seccomp; /* SECCOMP_MODE_* */
	unsigned int filters; /* number of seccomp filters */
	bool shadow_stack;    /* return addresses are checked (since Linux 6.6) */
};

/* ns since the thread's start */
struct thread_cpu_times {
	uint64_t ran;    /* on a CPU */
	uint64_t waited; /* for a CPU */
};

/* Open the file or the directory PATH below DIRECTORY for reading, with close-on-exec. NULL: errno
 * as of openat(2). */
FILE *proc_open_file(int directory, const char *path);
DIR *proc_open_directory(int directory, const char *path);

/* Opens task/TID/NAME below DIRECTORY; -1: the thread has exited, or belongs to another process. */
int proc_open_thread_file(int directory, pid_t tid, const char *name);

/* True if TID, in our PID namespace, is a thread of the process now. */
bool proc_has_thread(int directory, pid_t tid);

/* Read a thread's open file "status" or "schedstat". False: the thread has exited, or the file
 * cannot be read completely (64 KiB). */
bool thread_status_read(int fd, struct thread_status *status);
bool thread_cpu_times_read(int fd, struct thread_cpu_times *times);

/* Opens "schedstat" of thread TID of the process at DIRECTORY, and reads it. */
bool thread_cpu_times_of(int directory, pid_t tid, struct thread_cpu_times *times);

/* CPU time of the process's guests, in ns: KVM's runs of all vCPUs, those of exited threads
 * included, as the host's ticks found them. 0: unknown. */
uint64_t proc_guest_time(int directory);

/* Parse the text of these files. */
bool thread_status_parse(const char *text, struct thread_status *status);
bool thread_cpu_times_parse(const char *text, struct thread_cpu_times *times);
/* "guest_time" of the file "stat", in ticks of sysconf(_SC_CLK_TCK); 0: not found. */
uint64_t proc_parse_guest_ticks(const char *text);

#endif
