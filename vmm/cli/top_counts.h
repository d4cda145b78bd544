/* SPDX-License-Identifier: Apache-2.0 */
/* The wall time and exits of a VM's vCPUs between two readings, for kvmscope top. One thread at a
 * time. */
#ifndef KVMSCOPE_CLI_TOP_COUNTS_H
#define KVMSCOPE_CLI_TOP_COUNTS_H

#include <jansson.h>
#include <sys/types.h>

struct top_counts;

/* Counts for the VM with descriptor VM (0: the only one) of process PID from now on. Without BPF,
 * only the times that /proc has. The errors of vmm_process_open(), -ENOMEM. */
int top_counts_open(struct top_counts **counts, pid_t pid, int vm);
/* NULL is a no-op. */
void top_counts_close(struct top_counts *counts);

/*
 * Adds what was counted since the last call, or the start, to OBJECT: seconds, vcpus (vcpu, exits,
 * and the ns of each state), exits (reason and number, most first), and missing, why not everything
 * is measured. The errors of exit_counter_read() and vcpu_times_read_proc().
 */
int top_counts_report(struct top_counts *counts, json_t *object);

#endif
