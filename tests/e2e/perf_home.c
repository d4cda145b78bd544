/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/e2e/perf_home.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUTPUT_MAX (8u << 20)

char *perf_output(const char *format, ...)
{
	char command[4096], *output = malloc(OUTPUT_MAX);
	va_list arguments;
	size_t size;
	FILE *pipe;

	va_start(arguments, format);
	vsnprintf(command, sizeof(command), format, arguments);
	va_end(arguments);
	pipe = popen(command, "re");
	size = pipe ? fread(output, 1, OUTPUT_MAX - 1, pipe) : 0;
	output[size] = '\0';
	if (pipe)
		pclose(pipe);
	return output;
}

bool perf_runs(void)
{
	return !system("perf --version >/dev/null 2>&1");
}

static char former_home[4096];

void perf_home_enter(char home[64])
{
	snprintf(former_home, sizeof(former_home), "%s", getenv("HOME") ? getenv("HOME") : "/");
	strcpy(home, "/tmp/kvmscope-test-XXXXXX");
	if (!mkdtemp(home))
		abort();
	setenv("HOME", home, 1);
}

void perf_home_leave(const char *home)
{
	free(perf_output("rm -rf %s", home));
	setenv("HOME", former_home, 1);
}
