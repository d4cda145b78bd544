/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/printable.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The first byte of a C1 control character in UTF-8. */
#define C1_IN_UTF8 0xc2

size_t control_character_size(const char *text)
{
	unsigned char byte = (unsigned char)text[0];

	if (byte == C1_IN_UTF8)
		return (unsigned char)text[1] >= 0x80 && (unsigned char)text[1] < 0xa0 ? 2 : 0;
	return (byte && byte < 0x20) || byte == 0x7f;
}

/* Decodes the UTF-8 sequence at TEXT into *CODE. Returns its length in bytes, 0 if it is invalid.
 */
static size_t decode(const uint8_t *text, uint32_t *code)
{
	static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t length = *text < 0x80   ? 1
			: *text < 0xc0 ? 0
			: *text < 0xe0 ? 2
			: *text < 0xf0 ? 3
				       : 4;

	if (!length || *text > 0xf4)
		return 0;
	*code = length == 1 ? *text : *text & (0x7fu >> length);
	for (size_t i = 1; i < length; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		*code = *code << 6 | (text[i] & 0x3f);
	}
	if (*code < smallest[length] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000))
		return 0;
	return length;
}

/* Control characters, line and paragraph separators, invisible characters, and those that reorder
 * text. */
static bool is_unsafe(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0xad || code == 0x61c ||
	       (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
	       (code >= 0x2060 && code <= 0x206f) || code == 0xfeff ||
	       (code >= 0xfff0 && code <= 0xffff) || (code >= 0xe0000 && code <= 0xe0fff);
}

void make_printable(char *text)
{
	uint8_t *from = (uint8_t *)text, *to = (uint8_t *)text;
	uint32_t code;

	while (*from) {
		size_t length = decode(from, &code);

		if (!length || is_unsafe(code)) {
			*to++ = '?';
			from += length ? length : 1;
			continue;
		}
		memmove(to, from, length);
		to += length;
		from += length;
	}
	*to = '\0';
}
