// SPDX-License-Identifier: Apache-2.0
#include "vmm/cli/command_line.h"

#include <stdio.h>

char *command_line_of(int argc, char **argv)
{
	char *line = NULL;
	size_t size;
	FILE *text = open_memstream(&line, &size);

	if (!text)
		return NULL;
	fputs("kvmscope", text);
	for (int i = 0; i < argc; i++)
		fprintf(text, " %s", argv[i]);
	fclose(text);
	return line;
}
