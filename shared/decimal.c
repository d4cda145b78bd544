/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/decimal.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

const char *decimal_read(const char *text, uint64_t most, uint64_t *number)
{
	unsigned long long value;
	char *end;

	if (!isdigit((unsigned char)*text))
		return NULL;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || value > most)
		return NULL;
	*number = value;
	return end;
}
