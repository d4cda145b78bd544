/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the instructions of one FDE (DWARF 5, 6.4.2) into rows of a table. */
#ifndef KVMSCOPE_GUEST_UNWIND_CFI_PROGRAM_H
#define KVMSCOPE_GUEST_UNWIND_CFI_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/span.h"
#include "vmm/guest/unwind/cfi_table.h"

struct cfi_program {
	struct span initial;      /* the CIE's instructions */
	struct span instructions; /* the FDE's */
	uint64_t initial_address; /* as linked */
	uint64_t instructions_address;
	uint64_t start, end;      /* the code, as linked */
	uint64_t offset_of_start; /* START's offset in the file */
	uint64_t code_alignment;  /* factor of advances */
	int64_t data_alignment;   /* factor of offsets */
	uint64_t return_register; /* DW_CFA column of the return address */
	uint8_t pointer_encoding; /* of DW_CFA_set_loc */
	bool signal;
	uint64_t *steps; /* instructions left, counted down: bounds the time for any content */
};

/*
 * Adds the rows of PROGRAM. After an invalid instruction, or when *STEPS is used up, the rest of
 * the code gets the unknown rule. Errors as of cfi_builder_add().
 */
int cfi_program_run(const struct cfi_program *program, struct cfi_builder *builder);

#endif
