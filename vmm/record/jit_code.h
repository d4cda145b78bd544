/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that processes of the guest made at run time, as their perf
 * maps say (/tmp/perf-PID.map): which one was at an address at a time. A map
 * only grows; that a function is gone it says by another one in its place. So
 * a function has a name where exactly one can have been there:
 *
 *	looks at the map	    |         |         |         |
 *	lines over the address		  A             B
 *	samples at the address	....AAAAAAAAAAA........BBBBBBBBBBB
 *
 * between two looks it is not known when a line was written. A sample that the
 * map was not looked at behind has no name, either; nor one of a process of
 * which a line could be missing. A JIT is taken to write a function's line
 * before the function runs, or JIT_CODE_LATE behind that at most.
 *
 * Each function has a place in an image of its own making, one for each
 * process, under which readers of the recording find its name: two that were
 * at one address have different places. One thread, the collector's.
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

/* Of a guest, bytes: a process whose functions do not fit any more has no names. */
#define JIT_CODE_MEMORY (24u << 20)
/* Of a run. */
#define JIT_CODE_PROCESSES_MAX 1024u

struct jit_code_statistics {
	uint64_t functions; /* lines of maps that were taken */
	uint64_t named;     /* functions that were sampled */
	uint64_t processes; /* that have maps */
	uint64_t refused;   /* processes whose maps were too large, or too many */
};

/* Of ACCOUNT, as what follows says it of a limit. NULL without memory. */
struct jit_code *jit_code_new(struct guest_account *account);
void jit_code_free(struct jit_code *code); /* NULL is a no-op */

/*
 * Takes what a record says of it: JIT_MAP, JIT_CODE, ROUND; what ends a program: EXEC, the FORK of
 * a new process; and LOST: any of the processes that are known may have run another program up to
 * then. From there on one has names again when its map is told from its beginning, and is surely
 * not an earlier program's: it was made later, or the program is the one that it was before. Others
 * are passed over. Records of one source in their order; of any time.
 */
void jit_code_apply(struct jit_code *code, const struct sideband *record);

/* A function in the image of its process. */
struct jit_function {
	uint64_t start, end;     /* GVA */
	uint64_t place;          /* in the image's file, bytes; of START */
	const uint8_t *build_id; /* the image's, of SIDEBAND_BUILD_ID_MAX bytes */
	const char *name;        /* valid until the next call on CODE, as the former */
};

/* Has PID any? */
bool jit_code_has(const struct jit_code *code, uint32_t pid);

/* Which one was at ADDRESS of process PID at TIME? False: that is not known. FUNCTION gets a place
 * in the image. */
bool jit_code_find(struct jit_code *code, uint32_t pid, uint64_t address, uint64_t time,
		   struct jit_function *function);

/* Puts images that got more functions since the last call into NAMES' cache. */
void jit_code_write(struct jit_code *code, struct image_symbols *names);

void jit_code_statistics(const struct jit_code *code, struct jit_code_statistics *statistics);

#endif
