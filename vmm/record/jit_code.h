/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that guest processes generate at run time, as their perf maps (/tmp/perf-PID.map)
 * say: which function was at an address at a time. A map only grows; a function is gone when
 * another one is written over its addresses. So an address has a function where exactly one is
 * possible:
 *
 *	scans of the map	    |         |         |         |
 *	lines over the address		  A             B
 *	samples at the address	....AAAAAAAAAAA........BBBBBBBBBBB
 *
 * Between two scans the time of a line is unknown. A sample has no function if the map was not
 * scanned after it, or if a line of its process may be missing. JITs are expected to write a
 * function's line before it runs, or JIT_CODE_LATE later at most.
 *
 * Each process has a generated image, in which each function has an offset of its own. Readers of
 * the recording find its symbol there: two functions at one address have different offsets.
 * Collector thread.
 */
#ifndef KVMSCOPE_RECORD_JIT_CODE_H
#define KVMSCOPE_RECORD_JIT_CODE_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/sideband_record.h"
#include "vmm/guest/guest_account.h"
#include "vmm/symbols/image_symbols.h"

struct jit_code;

#define JIT_CODE_LATE 20000000ull /* ns */

/* Bytes per guest; a process whose functions do not fit gets no symbols. */
#define JIT_CODE_MEMORY (24u << 20)
/* Per run. */
#define JIT_CODE_PROCESSES_MAX 1024u

struct jit_code_statistics {
	uint64_t functions; /* lines of maps */
	uint64_t named;     /* functions that were sampled */
	uint64_t processes; /* that have maps */
	uint64_t refused;   /* processes beyond the limits */
};

/* Charged to ACCOUNT. NULL without memory. */
struct jit_code *jit_code_new(struct guest_account *account);
void jit_code_free(struct jit_code *code); /* NULL is a no-op */

/*
 * Applies a record: JIT_MAP, JIT_CODE and ROUND; EXEC and the FORK of a process, which end a
 * program; LOST, up to which any known process may have run another program. After LOST, a process
 * has functions again once its map is reported from its beginning and certainly belongs to the
 * present program: it was created later, or the program is the same. Other types are ignored.
 * Records of one source come in its order, of any time.
 */
void jit_code_apply(struct jit_code *code, const struct sideband *record);

/* GVA, [start, end). Items that begin with one can be in a tree, tsearch(3), without overlaps. */
struct jit_range {
	uint64_t start, end;
};

/* Overlapping ranges are equal: a tree has one item per address. */
int jit_range_compare(const void *left, const void *right);
/* Any item that overlaps [START, END); NULL: none. */
void *jit_range_find(void *const *tree, uint64_t start, uint64_t end);

/* A function in the image of its process. */
struct jit_function {
	struct jit_range range;
	uint64_t offset;         /* of its start in the image's file, bytes */
	const uint8_t *build_id; /* the image's, of SIDEBAND_BUILD_ID_MAX bytes */
	const char *name;        /* valid until the next call on CODE, as build_id */
};

/* Are functions of PID known? */
bool jit_code_has(const struct jit_code *code, uint32_t pid);

/* The function at ADDRESS of process PID at TIME, which gets an offset in the image. False: not
 * known. */
bool jit_code_find(struct jit_code *code, uint32_t pid, uint64_t address, uint64_t time,
		   struct jit_function *function);

/* Writes images with new functions to the cache of NAMES. */
void jit_code_write(struct jit_code *code, struct image_symbols *names);

void jit_code_statistics(const struct jit_code *code, struct jit_code_statistics *statistics);

#endif
