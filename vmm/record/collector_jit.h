/* SPDX-License-Identifier: Apache-2.0 */
/* The collector's view of functions that guest processes generate at run time. Collector thread. */
#ifndef KVMSCOPE_RECORD_COLLECTOR_JIT_H
#define KVMSCOPE_RECORD_COLLECTOR_JIT_H

#include "vmm/record/collector_kernel.h"
#include "vmm/record/jit_code.h"
#include "vmm/record/jit_maps.h"
#include "vmm/symbols/build_id_cache.h"
#include "vmm/symbols/image_symbols.h"

/* Bytes of the images in the cache; the oldest are dropped for new ones. */
#define COLLECTOR_JIT_NAMES_MAX (16u << 20)

/* Zeroed: there is no cache for the symbols, so nothing is tracked. */
struct collector_jit {
	struct guest_account *account;
	struct jit_code *code; /* NULL: nothing is tracked */
	struct jit_maps *maps; /* read from guest memory; NULL: nothing is tracked, or the agent
				  reports maps */
	struct image_symbols names;
};

/* With the cache at PLACE (NULL: that of perf), which outlives JIT, as ACCOUNT, which is charged,
 * and PARSER do. -ENOMEM. Without a cache it stays zeroed. */
int collector_jit_init(struct collector_jit *jit, const struct build_id_cache_location *place,
		       struct guest_account *account, struct image_parser *parser);

/* True: RECORD is only about generated code and is consumed. Once the guest reports its own maps,
 * its memory is no longer scanned for them. */
bool collector_jit_apply(struct collector_jit *jit, const struct sideband *record);

/* SAMPLE was read from a ring while KERNEL (NULL: unknown) was running. */
void collector_jit_sample(struct collector_jit *jit, const struct guest_kernel *kernel,
			  const struct sample *sample);

/* Reads the maps from guest memory: after rings were drained, before their samples are written. */
void collector_jit_scan(struct collector_jit *jit, struct collector_kernel *kernel);

/* Updates the cache. */
void collector_jit_write(struct collector_jit *jit);

/* Another kernel runs, with other processes. */
void collector_jit_begin_boot(struct collector_jit *jit);

void collector_jit_free(struct collector_jit *jit);

#endif
