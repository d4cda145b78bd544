/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/pprof_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/shim/test.h"

#define DEFINITION "/usr/share/gocode/src/github.com/google/pprof/proto"

static char *read_stream(FILE *from)
{
	char *text = NULL;
	size_t size = 0;

	if (getdelim(&text, &size, '\0', from) < 0) {
		free(text);
		text = strdup("");
	}
	return text;
}

char *pprof_text(const char *path)
{
	char command[512], *text;
	FILE *protoc;

	snprintf(command, sizeof(command),
		 "gzip -dc %s | protoc --decode=perftools.profiles.Profile -I " DEFINITION
		 " profile.proto",
		 path);
	protoc = popen(command, "r");
	text = read_stream(protoc);
	CHECK_EQUAL(pclose(protoc), 0);
	return text;
}

size_t pprof_text_count(const char *text, const char *what)
{
	size_t count = 0;

	for (; (text = strstr(text, what)); text += strlen(what))
		count++;
	return count;
}

int pprof_text_index(const char *text, const char *string)
{
	char line[128];
	int place = 0;

	snprintf(line, sizeof(line), "string_table: \"%s\"\n", string);
	for (; (text = strstr(text, "string_table: ")); text++, place++)
		if (!strncmp(text, line, strlen(line)))
			return place;
	return -1;
}
