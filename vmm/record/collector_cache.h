/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's symbols and code in the build-id cache, where perf finds them. A recording does not
 * depend on it: a failure is logged once, and the cache is left alone after that. Collector thread.
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_CACHE_H
#define KVMSCOPE_RECORD_COLLECTOR_CACHE_H

#include "vmm/record/collector_kernel.h"

/* Locates the cache, if it is to be used. */
void collector_cache_open(struct collector_kernel *kernel);

/* Adds the present symbols of kernel and modules; a file is open. */
void collector_cache_symbols(struct collector_kernel *kernel);

/* Adds the code, for perf annotate; guest memory is still there. */
void collector_cache_code(struct collector_kernel *kernel);

#endif
