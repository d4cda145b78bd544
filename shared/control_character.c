// SPDX-License-Identifier: Apache-2.0
#include "shared/control_character.h"

/* The first byte of a control character beyond ASCII. */
#define C1_IN_UTF8 0xc2

size_t control_character(const char *text)
{
	unsigned char byte = (unsigned char)text[0];

	if (byte == C1_IN_UTF8)
		return (unsigned char)text[1] >= 0x80 && (unsigned char)text[1] < 0xa0 ? 2 : 0;
	return (byte && byte < 0x20) || byte == 0x7f;
}
