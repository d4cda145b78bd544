/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a perf.data file says of functions made at run time: readers take a
 * mapping for there until another one comes in its place. So before a sample
 * is written the file is made to say of its addresses what is known
 * (jit_code.h): a mapping of the function's place in its process's image, or, where it said so and
 * that is not sure any more, anonymous memory again. One thread at a time.
 */
#ifndef KVMSCOPE_RECORD_JIT_SPACES_H
#define KVMSCOPE_RECORD_JIT_SPACES_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "vmm/guest/guest_account.h"
#include "vmm/record/jit_code.h"

struct jit_spaces;

/* Ranges that ACCOUNT has no memory for are not told of. NULL without memory. */
struct jit_spaces *jit_spaces_new(struct guest_account *account);
void jit_spaces_free(struct jit_spaces *spaces); /* NULL is a no-op */

struct jit_spaces_teller {
	/* Is ADDRESS of the sample in memory that is no file's, for sure? */
	bool (*is_anonymous)(void *context, uint64_t address);
	/* To be written at once. Errors end the call that they come from, as its own. */
	int (*tell)(void *context, const struct sideband *record);
	void *context;
};

/* Tells what is to stand before SAMPLE, behind all that is said of what is mapped. */
int jit_spaces_sample(struct jit_spaces *spaces, struct jit_code *code, const struct sample *sample,
		      const struct jit_spaces_teller *teller);

/* The file was told RECORD by others. TELLER, of which tell() is used, tells behind it what can not
 * be remembered of it. */
int jit_spaces_told(struct jit_spaces *spaces, const struct sideband *record,
		    const struct jit_spaces_teller *teller);

#endif
