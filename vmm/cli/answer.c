/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/answer.h"

#include <stdio.h>

#include "shared/printable.h"

const char *answer_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

double answer_number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

void answer_print(const char *text)
{
	for (; *text; text++) {
		size_t control = control_character_size(text);

		putchar(control ? '?' : *text);
		text += control ? control - 1 : 0;
	}
}
