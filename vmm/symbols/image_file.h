/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of a guest's program or library as an ELF file, from what the
 * guest agent sends of it (struct agent_symbols, shared/agent_protocol.h). Nothing of that is
 * believed.
 */
#ifndef KVMSCOPE_SYMBOLS_IMAGE_FILE_H
#define KVMSCOPE_SYMBOLS_IMAGE_FILE_H

#include "shared/bytes.h"
#include "shared/span.h"

/* Bytes of a name with its NUL; a function with a longer one is left out. */
#define IMAGE_FILE_NAME_MAX 4096u

/*
 * TO is empty where TABLE names nothing, or is none, or its symbols share strings so much that
 * their names take more than a quarter more than all strings do, each once and escaped. TO's data
 * is the caller's to free; check TO->failed. BUILD_ID_SIZE is at most 20. Any thread.
 */
void image_file_make(struct bytes *to, struct span table, const uint8_t *build_id,
		     size_t build_id_size);

/* The same, where who told TABLE has no more names of that build: the file says so (symbol_file.h).
 */
void image_file_make_exhausted(struct bytes *to, struct span table, const uint8_t *build_id,
			       size_t build_id_size);

/* Bytes of memory that this takes for TABLE at most, with what comes of it. */
size_t image_file_cost(struct span table);

#endif
