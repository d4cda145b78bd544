/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the collector puts into the build-id cache, where perf finds the guest's symbols and code.
 * Whether it can be written is not the recording's fate: a failure is said once, then the
 * cache is left. The collector's thread.
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_CACHE_H
#define KVMSCOPE_RECORD_COLLECTOR_CACHE_H

#include "vmm/record/collector_kernel.h"

/* Finds the cache, if one is wanted. */
void collector_cache_open(struct collector_kernel *kernel);

/* The symbols of the kernel and its modules as they are known; a file is open. */
void collector_cache_symbols(struct collector_kernel *kernel);

/* The code, for perf annotate; guest memory is still there. */
void collector_cache_code(struct collector_kernel *kernel);

#endif
