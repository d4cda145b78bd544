/* SPDX-License-Identifier: Apache-2.0 */
/* Strict parsers for numbers in options, configuration and other untrusted text. Any thread. */
#ifndef KVMSCOPE_SHARED_PARSE_NUMBER_H
#define KVMSCOPE_SHARED_PARSE_NUMBER_H

#include <stdint.h>

/*
 * Parses the decimal number at the start of TEXT; no sign or space may precede it. Returns the text
 * after it. Returns NULL and leaves *NUMBER unchanged if there is no number or it is above MAX.
 */
const char *parse_decimal(const char *text, uint64_t max, uint64_t *number);

/*
 * Parses a size such as 4096, 64K or 2G into bytes: the suffixes K, M, G and T, in either case, are
 * powers of 1024. 0, or -EINVAL without an error message.
 */
int parse_size(const char *text, uint64_t *bytes);

/*
 * Parses a duration such as 30s or 2.5ms into ns: a decimal number and one of the units us, ms, s,
 * min and h, up to a year. 0, or -EINVAL without an error message, also if the unit is missing.
 */
int parse_duration(const char *text, uint64_t *duration);

#endif
