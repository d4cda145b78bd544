/* SPDX-License-Identifier: Apache-2.0 */
/* What Grafana Pyroscope makes of a profile that it is sent, as far as that is not what was meant.
 */
#ifndef KVMSCOPE_TESTS_UNIT_PPROF_RULES_H
#define KVMSCOPE_TESTS_UNIT_PPROF_RULES_H

#include <stddef.h>
#include <stdint.h>

/*
 * Why Pyroscope would refuse the gzipped pprof BYTES, or leave out some of it without a word; NULL:
 * it takes all. FROM and UNTIL: s since 1970 that the request says it is of.
 */
const char *pprof_rules_broken(const void *bytes, size_t size, int64_t from, int64_t until);

#endif
