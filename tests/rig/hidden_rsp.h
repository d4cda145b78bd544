/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recordings for the search for RSP with the truth, from kvm_amd, where it is known. A file begins
 * with a sample whose registers map the kernel, and the guest's memory: the number of ranges, and
 * of each GPA, size, bytes. The samples follow, each with its stacks. A stack is a sequence of
 * lines that are not 0: its offset in 2 bytes, and its bytes; the offset UINT16_MAX ends it.
 */
#ifndef KVMSCOPE_TESTS_RIG_HIDDEN_RSP_H
#define KVMSCOPE_TESTS_RIG_HIDDEN_RSP_H

#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/unwind/stack_search.h"

#define HIDDEN_RSP_STACK_MAX 16384
#define HIDDEN_RSP_LINE      64
#define HIDDEN_RSP_DEPTH     127

struct hidden_rsp_sample {
	struct guest_registers registers;
	struct stack_bounds stacks[STACK_SEARCH_STACKS];
	uint32_t stack_count;
	uint16_t flags, depth; /* as in struct guest_callchain */
	uint64_t addresses[HIDDEN_RSP_DEPTH];
};

#endif
