/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which functions of a kernel can be called indirectly? Those whose address is in its code or data,
 * or in that of a module, those that one of them jumps to, and those that nothing refers to: the
 * code that did is gone after the start.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_TAKEN_FUNCTIONS_H
#define KVMSCOPE_GUEST_UNWIND_TAKEN_FUNCTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/symbol_table.h"

/* Immutable. */
struct taken_functions;

/*
 * Reads the kernel with SYMBOLS and its modules, some 10 MiB, which takes about 100 ms. PAGING maps
 * it. NULL: no memory, or the kernel is not readable: every function may be called indirectly. Not
 * on a vCPU thread.
 */
struct taken_functions *taken_functions_new(const struct symbols *symbols,
					    const struct guest_view *view,
					    const struct guest_paging *paging);
/* NULL is a no-op. */
void taken_functions_free(struct taken_functions *taken);

/* False: the function that begins at START is never called indirectly. TAKEN may be NULL. */
bool taken_functions_has(const struct taken_functions *taken, uint64_t start);

/* True if the function that begins at START is called directly, too. */
bool taken_functions_has_callers(const struct taken_functions *taken, uint64_t start);

#endif
