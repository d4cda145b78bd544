/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of kvmscope top as lines of text, for --batch and the screen, and as JSON. Main
 * thread. */
#ifndef KVMSCOPE_CLI_TOP_PRINT_H
#define KVMSCOPE_CLI_TOP_PRINT_H

#include <stdio.h>

#include "vmm/cli/top_model.h"

#define TOP_DELAY_MIN 0.2
#define TOP_DELAY_MAX 3600.0

struct top_view {
	enum top_sort sort;
	char filter[64];
	bool per_vcpu;
	unsigned int columns; /* of the terminal; 0: unlimited */
	double delay;         /* s, within these limits */
};

/* One line: the time, VMs and samples. */
void top_print_summary(struct top_vm *const *vms, size_t count, const struct top_view *view,
		       FILE *to);

/* A line of titles, and one for each VM, or vCPU, with its wall time and exits. */
void top_print_vms(struct top_vm *const *vms, size_t count, const struct top_view *view, FILE *to);

/* A line of titles, and FUNCTIONS from FIRST on, at most MOST. COUNT VMs are shown. */
void top_print_functions(const struct top_functions *functions, size_t first, size_t most,
			 size_t count, const struct top_view *view, FILE *to);

/* The latest reports of all VMs as one object. A new reference. */
json_t *top_json(struct top_vm *const *vms, size_t count);

#endif
