/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/run_command.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

char *command_output(int *status, const char *format, ...)
{
	char command[8192], buffer[65536], *output = NULL;
	va_list arguments;
	size_t size, total;
	FILE *pipe, *memory;
	int ended = -1;

	va_start(arguments, format);
	vsnprintf(command, sizeof(command), format, arguments);
	va_end(arguments);
	memory = open_memstream(&output, &total);
	pipe = popen(command, "re");
	while (pipe && (size = fread(buffer, 1, sizeof(buffer), pipe)) > 0)
		fwrite(buffer, 1, size, memory);
	if (pipe)
		ended = pclose(pipe);
	fclose(memory);
	if (status)
		*status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
	return output;
}

bool command_succeeds(const char *command)
{
	int status;

	free(command_output(&status, "%s >/dev/null 2>&1", command));
	return !status;
}
