/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel call chain of a vCPU whose RSP is unknown: kvm_intel leaves RSP in the VMCS, which nothing
 * but KVM can read, while RIP and the other registers are in memory. The stacks that RSP can point
 * to are known. Each of their words is a possible RSP: it remains one if ORC leads from there to
 * the top of the task's stack, through return addresses of calls that can lead to the code that
 * returns there (call_target.h). What all remaining chains have in common is certain.
 *
 * Nothing that may be the truth is left out: stale return addresses of finished calls below RSP,
 * and indirect calls, make a chain shorter, never wrong. Two rules assume that code was built from
 * C: no register that functions preserve points below RSP on the same stack, and functions that
 * threads begin with have no other callers.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_STACK_SEARCH_H
#define KVMSCOPE_GUEST_UNWIND_STACK_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/orc_table.h"
#include "vmm/guest/symbol_table.h"

/* The current task's, that of the next task during a context switch, and the interrupt stack. */
#define STACK_SEARCH_STACKS 3
#define STACK_SEARCH_DEPTH  127
/*
 * Frames that one search unwinds, at most: all words of three stacks once, and as many again. Each
 * asks one question of call_target.h. A search that needs more finds nothing.
 */
#define STACK_SEARCH_STEPS_MAX 16384u
/* Bytes of code that these questions read, at most, to be cached. */
#define STACK_SEARCH_CODE_MAX (4u << 20)

struct stack_bounds {
	uint64_t start, end; /* GVA */
	bool of_task;        /* chains end at the end of it */
};

struct stack_search_input {
	const struct kernel_orc *orc;
	const struct guest_view *view;           /* has the stacks' bytes and the kernel's code */
	const struct guest_registers *registers; /* RSP is not read */
	/* All that may be in use. An NMI and some exceptions have stacks of their own: the caller
	 * excludes them. */
	struct stack_bounds stacks[STACK_SEARCH_STACKS];
	unsigned int stack_count;
};

struct stack_search_result {
	uint64_t addresses[STACK_SEARCH_DEPTH]; /* RIP, and the callers common to all candidates */
	unsigned int depth;
	bool whole;              /* all candidates have this chain, up to the outermost frame */
	uint64_t rsp;            /* of one of the candidates; 0: there is none */
	unsigned int candidates; /* 0: the search found nothing */
	uint32_t steps;          /* frames that were unwound */
};

/* Knowledge of one kernel, with a cache. One thread at a time. */
struct stack_search;

/*
 * Reads the kernel with SYMBOLS (taken_functions.h), which must outlive the object; PAGING maps it.
 * NULL: no memory. Not on a vCPU thread.
 */
struct stack_search *stack_search_new(const struct symbols *symbols, const struct guest_view *view,
				      const struct guest_paging *paging);
/* NULL is a no-op. */
void stack_search_free(struct stack_search *search);

/*
 * Searches. RESULT always has RIP. Time is bounded by STACK_SEARCH_STEPS_MAX, memory by RESULT and
 * the cache.
 */
void stack_search_run(struct stack_search *search, const struct stack_search_input *input,
		      struct stack_search_result *result);

#endif
