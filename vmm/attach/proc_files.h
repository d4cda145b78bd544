/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What /proc/PID has of a process: proc(5). It is asked for below a descriptor of that directory,
 * which stays that process's when its number is given to another one: then all of it is gone
 * (ESRCH). What is read was written by the process, or by whoever began it. Any thread.
 */
#ifndef KVMSCOPE_ATTACH_PROC_FILES_H
#define KVMSCOPE_ATTACH_PROC_FILES_H

#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Opens /proc/PID, for the caller to close; else the errors of open(2), negative: -ENOENT, there is
 * no such process. */
int proc_open(pid_t pid);

/*
 * The begin of file PATH below DIRECTORY, or AT_FDCWD, with a NUL behind it: SIZE bytes of TEXT at
 * the most. Its bytes without the NUL; else the errors of open(2) and read(2), negative, and TEXT
 * is empty or as it was.
 */
ssize_t proc_read(int directory, const char *path, char *text, size_t size);

/*
 * EACH for every entry of the directory PATH below DIRECTORY, or AT_FDCWD, whose name is a number:
 * of a process, a thread or a descriptor, in no order. It ends where EACH returns false. 0, or the
 * errors of open(2), negative.
 */
int proc_each_number(int directory, const char *path, bool (*each)(void *context, int number),
		     void *context);

/*
 * Where descriptor FD of the process at DIRECTORY leads, as far as it fits, into SIZE bytes at
 * LINK, which end with NUL. False: LINK is empty, as there is no such descriptor, or what it is may
 * not be seen; errno is that of readlink(2) then (EACCES: the latter).
 */
bool proc_read_link(int directory, int fd, char *link, size_t size);

/*
 * What a VMM's process says of itself in /proc, in words: its descriptors' links, and its threads'
 * names, calls and numbers. Anybody may have written them; they end with NUL. What is not told
 * stays as it was. Any thread.
 */

/* Is LINK, of a descriptor, that of a VM? "anon_inode:kvm-vm" (virt/kvm/kvm_main.c,
 * kvm_dev_ioctl_create_vm()). */
bool proc_is_vm_link(const char *link);

/*
 * Is LINK, of a descriptor, that of vCPU ID, below VMM_VCPUS_MAX? "anon_inode:kvm-vcpu:3" (the same
 * file, create_vcpu_fd()); kernels before 4.19 do not say which one it is: then it is none.
 */
bool proc_parse_vcpu_link(const char *link, unsigned int *id);

/* Does the NAME of a thread end with the number of a vCPU, ID, below VMM_VCPUS_MAX? "CPU 3/KVM" of
 * QEMU, "vCPU 3", "fc_vcpu 3" of Firecracker, "crosvm_vcpu3", "kvm-vcpu-3". */
bool proc_parse_thread_name(const char *name, unsigned int *id);

/*
 * Does TEXT, of a thread's file "syscall", say that it is in ioctl(KVM_RUN), and of which
 * descriptor, FD? (fs/proc/base.c, proc_pid_syscall())
 */
bool proc_parse_run_call(const char *text, int *fd);

/* The thread's number in the innermost PID namespace that it is in, as TEXT, of its file "status",
 * tells it in its line "NSpid:" (fs/proc/array.c, task_state()); 0: there is none. */
pid_t proc_parse_inner_tid(const char *text);

/* What the kernel says of a thread without stopping it: proc(5). Any thread. */

struct thread_status {
	char state; /* 'R': it runs, or would if a processor was free; 'S': it sleeps; ... */
	unsigned int seccomp; /* SECCOMP_MODE_* */
	unsigned int filters; /* of seccomp */
	bool shadow_stack;    /* its returns are checked (from Linux 6.6) */
};

/* ns since it began. */
struct thread_cpu_times {
	uint64_t ran;    /* on a processor */
	uint64_t waited; /* for one */
};

/* Opens task/TID/NAME below DIRECTORY; -1: the thread has exited, or is not one of the process. */
int proc_open_thread_file(int directory, pid_t tid, const char *name);

/* True if TID, in our PID namespace, is a thread of the process now. */
bool proc_has_thread(int directory, pid_t tid);

/* Of such a file "status", "schedstat"; false: the thread has ended, or it can not be read, or not
 * all of it (64 KiB). */
bool thread_status_read(int fd, struct thread_status *status);
bool thread_cpu_times_read(int fd, struct thread_cpu_times *times);

/* Parsers of their texts. */
bool thread_status_parse(const char *text, struct thread_status *status);
bool thread_cpu_times_parse(const char *text, struct thread_cpu_times *times);

#endif
