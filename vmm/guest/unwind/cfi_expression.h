/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recognizes the DWARF expressions (DWARF 5, 2.5) that occur in call frame information of x86-64 by
 * their form. Nothing is evaluated.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_CFI_EXPRESSION_H
#define KVMSCOPE_GUEST_UNWIND_CFI_EXPRESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/span.h"
#include "vmm/guest/unwind/cfi_table.h"

/* DW_OP_bregN OFFSET: an address relative to register *BASE. False: anything else. */
bool cfi_expression_address(struct span expression, uint64_t *base, int64_t *offset);

/*
 * Sets the CFA of RULE from one of
 *	bregN OFFSET, deref [, plus_uconst ADDEND]
 *		a stack that was realigned or switched, a signal frame
 *	breg7 OFFSET, breg16 0, lit15, and, litN, ge, lit3, shl, plus
 *		the linker's, for a PLT
 * False: anything else, or numbers that do not fit.
 */
bool cfi_expression_cfa(struct span expression, struct cfi_rule *rule);

#endif
