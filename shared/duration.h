/* SPDX-License-Identifier: Apache-2.0 */
/* Spans of time as users write them: 30s, 500ms, 5min, 2.5s. */
#ifndef KVMSCOPE_SHARED_DURATION_H
#define KVMSCOPE_SHARED_DURATION_H

#include <stdint.h>

/*
 * ns of TEXT, a decimal number and a unit: us, ms, s, min or h; up to a year. 0,
 * or -EINVAL without message: also for a number without a unit.
 */
int duration_parse(const char *text, uint64_t *duration);

#endif
