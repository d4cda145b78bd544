/* SPDX-License-Identifier: Apache-2.0 */
/* A collector's functions that the guest made at run time, and the images that name them. The
 * collector's thread. */
#ifndef KVMSCOPE_RECORD_COLLECTOR_JIT_H
#define KVMSCOPE_RECORD_COLLECTOR_JIT_H

#include "vmm/record/collector_kernel.h"
#include "vmm/record/jit_code.h"
#include "vmm/record/jit_maps.h"
#include "vmm/symbols/build_id_cache.h"
#include "vmm/symbols/image_symbols.h"

/* What one guest's images can take in the cache, bytes of files; what came first goes for the rest.
 */
#define COLLECTOR_JIT_NAMES_MAX (16u << 20)

/* Zeroed: nobody can look names up, so nothing is known. */
struct collector_jit {
	struct guest_account *account;
	struct jit_code *code; /* NULL: so it is */
	struct jit_maps *
		maps; /* as guest memory has them; NULL: so it is, or the guest tells of its maps */
	struct image_symbols names;
};

/* With a cache at PLACE (NULL: perf's); it outlives JIT, as ACCOUNT, of which what is kept is.
 * -ENOMEM. Without a cache it stays zeroed. */
int collector_jit_init(struct collector_jit *jit, const struct build_id_cache_location *place,
		       struct guest_account *account);

/* True: RECORD is about that alone, and nobody else's. From a guest that tells of itself on, its
 * memory is not looked at any more. */
bool collector_jit_apply(struct collector_jit *jit, const struct sideband *record);

/* SAMPLE came out of a ring, of KERNEL (NULL: none is known). */
void collector_jit_sample(struct collector_jit *jit, const struct guest_kernel *kernel,
			  const struct sample *sample);

/* Looks at the maps in the memory of the kernel that runs: after rings were drained, and before
 * what came out of them is written. */
void collector_jit_scan(struct collector_jit *jit, struct collector_kernel *kernel);

/* Brings the cache up to date. */
void collector_jit_write(struct collector_jit *jit);

/* Another kernel runs: its processes are others. */
void collector_jit_begin_boot(struct collector_jit *jit);

void collector_jit_free(struct collector_jit *jit);

#endif
