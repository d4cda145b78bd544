/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a VMM's process says of itself in /proc, in words: its descriptors' links, and its threads'
 * names, calls and numbers. Anybody may have written them; they end with NUL. What is not told
 * stays as it was. Any thread.
 */
#ifndef KVMSCOPE_ATTACH_PROCESS_WORDS_H
#define KVMSCOPE_ATTACH_PROCESS_WORDS_H

#include <stdbool.h>
#include <sys/types.h>

/* Is LINK, of a descriptor, that of a VM? "anon_inode:kvm-vm" (virt/kvm/kvm_main.c,
 * kvm_dev_ioctl_create_vm()). */
bool process_words_are_vm(const char *link);

/*
 * Is LINK, of a descriptor, that of vCPU ID, below VMM_VCPUS_MAX? "anon_inode:kvm-vcpu:3" (the same
 * file, create_vcpu_fd()); kernels before 4.19 do not say which one it is: then it is none.
 */
bool process_words_vcpu(const char *link, unsigned int *id);

/* Does the NAME of a thread end with the number of a vCPU, ID, below VMM_VCPUS_MAX? "CPU 3/KVM" of
 * QEMU, "vCPU 3", "fc_vcpu 3" of Firecracker, "crosvm_vcpu3", "kvm-vcpu-3". */
bool process_words_thread(const char *name, unsigned int *id);

/*
 * Does TEXT, of a thread's file "syscall", say that it is in ioctl(KVM_RUN), and of which
 * descriptor, FD? (fs/proc/base.c, proc_pid_syscall())
 */
bool process_words_run_call(const char *text, int *fd);

/* The thread's number in the innermost PID namespace that it is in, as TEXT, of its file "status",
 * tells it in its line "NSpid:" (fs/proc/array.c, task_state()); 0: there is none. */
pid_t process_words_own_tid(const char *text);

#endif
