/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the exits of a process's vCPUs in the kernel, by BPF on KVM's tracepoints
 * (bpf/exit_program.c), as perf kvm stat does: an exit counts when its vCPU thread enters the guest
 * again, and its time is the time until then. Measures how long each vCPU is in which state, with
 * those of the scheduler. One thread at a time.
 */
#ifndef KVMSCOPE_ATTACH_EXIT_COUNTER_H
#define KVMSCOPE_ATTACH_EXIT_COUNTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/attach/access_row.h"
#include "vmm/attach/exit_row.h"
#include "vmm/attach/process.h"
#include "vmm/attach/vcpu_times.h"

struct exit_counter;

/*
 * Counts the exits and times of process PID, in this PID namespace, from now on. -EACCES: missing
 * rights; -ENOTSUP: the kernel has no BTF, or not of KVM; others; all with the message. Without
 * KVM's tracepoints it measures times only: exit_counter_missing(). With ACCESSES it also counts
 * accesses by address.
 */
int exit_counter_open(struct exit_counter **counter, pid_t pid, bool accesses);

/* NULL is allowed. */
void exit_counter_close(struct exit_counter *counter);

/* Reads the counts since exit_counter_open(), in any order. -ENOMEM and the errors of bpf(2), with
 * the message. */
int exit_counter_read(const struct exit_counter *counter, struct exit_rows *rows);

/*
 * Adds the threads of the vCPUs of PROCESS, the one that is counted, which may cause no event for
 * long; others are found by their first event. The errors of bpf(2), with the message.
 */
int exit_counter_follow(struct exit_counter *counter, const struct vmm_process *process);

/* Reads the accesses since exit_counter_open(), in any order; none without ACCESSES. Errors as
 * exit_counter_read(). */
int exit_counter_accesses(const struct exit_counter *counter, struct access_rows *rows);

/* Why exits are not counted and guest, KVM and VMM not distinguished (VCPU_RUNNING). NULL: they
 * are. */
const char *exit_counter_missing(const struct exit_counter *counter);

/* What the times of COUNTER distinguish; NULL: those of vcpu_times_read_proc(). */
enum vcpu_times_detail exit_counter_detail(const struct exit_counter *counter);

/* Reads the times of each vCPU since it was found. Errors as exit_counter_read(). ROWS are for
 * vcpu_times_free(). */
int exit_counter_times(const struct exit_counter *counter, struct vcpu_times_rows *rows);

#endif
