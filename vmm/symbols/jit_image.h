/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The image that functions made at run time are given: an ELF file in the
 * build-id cache with a name for each, at a place of its own, and no code. Any one thread at a
 * time.
 */
#ifndef KVMSCOPE_SYMBOLS_JIT_IMAGE_H
#define KVMSCOPE_SYMBOLS_JIT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/bytes.h"
#include "shared/sideband_record.h"
#include "vmm/symbols/image_symbols.h"

/* What images are called in a recording: this and the process's number. */
#define JIT_IMAGE_NAME "jitted-"

/* Zeroed: an empty one. */
struct jit_image {
	uint8_t build_id[SIDEBAND_BUILD_ID_MAX]; /* drawn by chance with the first function */
	uint64_t end;                            /* of the places that are given, bytes */
	struct bytes symbols;                    /* Elf64_Sym */
	struct bytes strings;
	bool changed; /* since it was written */
};

/* Bytes that a function called NAME adds to SYMBOLS and STRINGS. */
size_t jit_image_cost(const struct jit_image *image, const char *name);

/* Gives a function of LENGTH bytes a place. False: there is none to be had. */
bool jit_image_add(struct jit_image *image, uint64_t length, const char *name, uint64_t *place);

/* Puts it into the cache in place of what was put there of it before. */
void jit_image_write(struct jit_image *image, struct image_symbols *names);

/* Frees what it holds; zeroed, it holds nothing. */
void jit_image_free(struct jit_image *image);

#endif
