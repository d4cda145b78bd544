/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether guests of the guest may have run, by what KVM counts of a VM in debugfs (Linux:
 * virt/kvm/kvm_main.c, kvm_create_vm_debugfs(); arch/x86/kvm/x86.c): "nested_run", how often one
 * was entered, from Linux 5.11 on, and "guest_mode", how many vCPUs are in one now, from 5.13 on.
 * One thread at a time.
 */
#ifndef KVMSCOPE_ATTACH_NESTED_RUNS_H
#define KVMSCOPE_ATTACH_NESTED_RUNS_H

#include <stdbool.h>
#include <stdint.h>

struct nested_count {
	uint64_t entered, inside;
	bool known;
};

struct nested_runs {
	int entered_fd, inside_fd; /* -1: KVM does not tell */
};

/* Of the VM whose directory is DIRECTORY. False: it does not tell, and nested_runs_look() neither.
 */
bool nested_runs_open(struct nested_runs *runs, const char *directory);
/* Works on descriptors that are -1. */
void nested_runs_close(struct nested_runs *runs);

struct nested_count nested_runs_look(const struct nested_runs *runs);

/* May one have run between the looks FIRST and LAST? If KVM tells nothing, none is thought to. */
bool nested_runs_between(const struct nested_count *first, const struct nested_count *last);

#endif
