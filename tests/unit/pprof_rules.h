/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How Grafana Pyroscope interprets a received profile, as far as that differs from the intention.
 */
#ifndef KVMSCOPE_TESTS_UNIT_PPROF_RULES_H
#define KVMSCOPE_TESTS_UNIT_PPROF_RULES_H

#include <stddef.h>
#include <stdint.h>

/*
 * Returns why Pyroscope would reject the gzipped pprof BYTES or silently drop some of it; NULL: it
 * accepts everything. FROM and UNTIL are the request's times in s since 1970.
 */
const char *pprof_rules_broken(const void *bytes, size_t size, int64_t from, int64_t until);

#endif
