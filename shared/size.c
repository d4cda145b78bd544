/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/size.h"

#include <ctype.h>
#include <errno.h>

#include "shared/decimal.h"

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
	uint64_t number = 0;
	const char *end = decimal_read(text, UINT64_MAX, &number);
	int shift = end ? suffix_shift(*end) : -1;

	if (shift < 0 || (*end && end[1]) || number > UINT64_MAX >> shift)
		return -EINVAL;
	*bytes = number << shift;
	return 0;
}
