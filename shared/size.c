/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int suffix_shift(char suffix)
{
	switch (toupper((unsigned char)suffix)) {
	case '\0':
		return 0;
	case 'K':
		return 10;
	case 'M':
		return 20;
	case 'G':
		return 30;
	case 'T':
		return 40;
	default:
		return -1;
	}
}

int size_parse(const char *text, uint64_t *bytes)
{
	unsigned long long number;
	char *end;
	int shift;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	number = strtoull(text, &end, 10);
	shift = suffix_shift(*end);
	if (errno || shift < 0 || (*end && end[1]) || number > UINT64_MAX >> shift)
		return -EINVAL;
	*bytes = (uint64_t)number << shift;
	return 0;
}
