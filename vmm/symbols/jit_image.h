/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An image for functions generated at run time (JIT): a symbol file in the build-id cache in which
 * each function has an address of its own. It has no code. One thread at a time.
 */
#ifndef KVMSCOPE_SYMBOLS_JIT_IMAGE_H
#define KVMSCOPE_SYMBOLS_JIT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/bytes.h"
#include "shared/sideband_record.h"
#include "vmm/symbols/image_symbols.h"

/* The image's name in a recording is this and the process's number. */
#define JIT_IMAGE_NAME "jitted-"

/* Zeroed: empty. */
struct jit_image {
	uint8_t build_id[SIDEBAND_BUILD_ID_MAX]; /* random, set with the first function */
	uint64_t end;                            /* of the addresses in use */
	struct bytes symbols;                    /* Elf64_Sym */
	struct bytes strings;
	bool changed; /* since it was written */
};

/* Bytes that a function NAME adds to SYMBOLS and STRINGS. */
size_t jit_image_cost(const struct jit_image *image, const char *name);

/* Adds a function of LENGTH bytes at the address *ADDRESS. False: the image is full. */
bool jit_image_add(struct jit_image *image, uint64_t length, const char *name, uint64_t *address);

/* Writes the image to the cache, in place of its last version. */
void jit_image_write(struct jit_image *image, struct image_symbols *symbols);

/* Frees what it holds; zeroed, it holds nothing. */
void jit_image_free(struct jit_image *image);

#endif
