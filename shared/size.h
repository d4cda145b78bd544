/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes as users write them: 4096, 64K, 128M, 2G. */
#ifndef KVMSCOPE_SHARED_SIZE_H
#define KVMSCOPE_SHARED_SIZE_H

#include <stdint.h>

/* Bytes of TEXT, whose suffix is K, M, G or T (powers of 1024; small letters too). 0, or -EINVAL
 * without message. */
int size_parse(const char *text, uint64_t *bytes);

#endif
