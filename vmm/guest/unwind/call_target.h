/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Can a call in a kernel lead to a function? Decided by the bytes of the code: any byte may be
 * taken for a jump, so the answer "no" is certain, unless code changed after the call.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_CALL_TARGET_H
#define KVMSCOPE_GUEST_UNWIND_CALL_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/symbol_table.h"

enum call_target {
	CALL_TARGET_NONE,     /* no call ends at the address */
	CALL_TARGET_OTHER,    /* the call does not lead to the function */
	CALL_TARGET_INDIRECT, /* an indirect call, or one of code that jumps anywhere; the function
				 may be called so */
	CALL_TARGET_DIRECT,   /* it calls the function, or one that jumps to it */
	CALL_TARGET_UNKNOWN,  /* the code is not readable, or has no symbol */
};

/* Knowledge of one kernel's calls, with a cache of answers. One thread at a time. */
struct call_targets;

/*
 * Reads the kernel with SYMBOLS (taken_functions.h); they must outlive the object. PAGING maps it.
 * NULL: no memory.
 */
struct call_targets *call_targets_new(const struct symbols *symbols, const struct guest_view *view,
				      const struct guest_paging *paging);
/* NULL is a no-op. */
void call_targets_free(struct call_targets *targets);

/* Answers that are not in the cache may read BYTES of code, until the next call. What would need
 * more is unknown. */
void call_targets_allow(struct call_targets *targets, uint32_t bytes);

/* Classifies the call that returns to ADDRESS as one of the function with the code at IP. PAGING
 * maps the kernel. */
enum call_target call_target_classify(struct call_targets *targets, const struct guest_view *view,
				      const struct guest_paging *paging, uint64_t address,
				      uint64_t ip);

/*
 * False: the function with the code at IP is not one that threads begin with: those are called
 * indirectly only.
 */
bool call_target_begins_thread(const struct call_targets *targets, uint64_t ip);

#endif
