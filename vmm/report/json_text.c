/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/json_text.h"

#include <string.h>

/* A script element must not contain '<', a JSON string no quotes or control characters. */
void json_text_put(FILE *to, const char *text)
{
	fputc('"', to);
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;

		if (byte < 0x20 || byte == 0x7f || strchr("<>&'\"\\", byte))
			fprintf(to, "\\u%04x", byte);
		else
			fputc(byte, to);
	}
	fputc('"', to);
}
