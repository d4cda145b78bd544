/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kvm/text_file.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

#include "tests/unit/shim/test.h"

void text_file_write(const char *directory, const char *name, const char *format, ...)
{
	char path[PATH_MAX];
	va_list arguments;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "we");
	REQUIRE(file != NULL);
	va_start(arguments, format);
	vfprintf(file, format, arguments);
	va_end(arguments);
	CHECK(!fclose(file));
}
