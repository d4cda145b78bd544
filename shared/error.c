/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[ERROR_MESSAGE_SIZE];

#undef error_set /* the analyzer's */
int error_set(int error, const char *format, ...)
{
	char next[ERROR_MESSAGE_SIZE];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(next, sizeof(next), format, arguments);
	va_end(arguments);
	memcpy(message, next, sizeof(message));
	return error;
}

const char *error_message(void)
{
	return message;
}
