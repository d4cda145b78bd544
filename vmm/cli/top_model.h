/* SPDX-License-Identifier: Apache-2.0 */
/* What kvmscope top shows: VMs with their latest reports, and the functions of all of them, sorted
 * and filtered. One thread at a time. */
#ifndef KVMSCOPE_CLI_TOP_MODEL_H
#define KVMSCOPE_CLI_TOP_MODEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/attach/vcpu_times.h"

struct top_vcpu {
	unsigned int vcpu; /* KVM's id */
	uint64_t ns[VCPU_STATES];
	double exits; /* per second; -1: unknown */
};

struct top_function {
	const struct top_vm *vm;
	const char *function, *image, *process; /* safe to print; process may be "" */
	const char *callers;                    /* lines; "": none are known */
	double percent;                         /* of a CPU */
	uint64_t samples;
	bool kernel;
};

/* The latest report of a VM. Texts are its own. */
struct top_vm {
	pid_t pid;
	int fd;                /* descriptor of the VM in a process with several; 0 */
	const char *name;      /* safe to print, the owner's */
	const char *error;     /* why it is not sampled, or no longer; "" */
	const char *missing;   /* why not everything is measured; "" */
	const char *exit;      /* the most frequent exit reason; "" */
	double exit_percent;   /* its share of the exits */
	unsigned int states;   /* bits of enum vcpu_state that are measured */
	struct top_vcpu total; /* its vcpu is not used */
	struct top_vcpu *vcpus;
	size_t vcpu_count;
	struct top_function *functions;
	size_t function_count;
	uint64_t samples, lost;
	char *texts;    /* storage */
	json_t *report; /* NULL: none has arrived */
};

/* Takes the report of a VM, and a reference to REPORT, which another process wrote. -EINVAL: it is
 * none; -ENOMEM; both with the message; the VM then has none. */
int top_vm_update(struct top_vm *vm, json_t *report);
/* Releases the report. */
void top_vm_clear(struct top_vm *vm);

/* The share of a vCPU's, or of all vCPUs', wall time in STATE, in percent; -1: not measured. */
double top_vm_percent(const struct top_vm *vm, const struct top_vcpu *vcpu, enum vcpu_state state);

enum top_sort { TOP_BY_CPU, TOP_BY_VM, TOP_BY_PROCESS, TOP_BY_FUNCTION, TOP_SORTS };

/* "cpu", "vm", ... */
extern const char *const top_sort_names[TOP_SORTS + 1];

struct top_functions {
	const struct top_function **rows;
	size_t count;
};

/*
 * Finds the functions of COUNT VMS whose name, image, process or VM contains FILTER, in any case,
 * and sorts them; equal ones by CPU time. ROWS is for free(), valid until the next update of one of
 * the VMs. -ENOMEM.
 */
int top_functions_find(struct top_functions *functions, struct top_vm *const *vms, size_t count,
		       enum top_sort sort, const char *filter);

/* Sorts VMS by the CPU time of their vCPUs, most first. */
void top_vms_sort(struct top_vm **vms, size_t count);

#endif
