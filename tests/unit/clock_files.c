/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/clock_files.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"

static const char *const names[] = { "available_clocksource", "current_clocksource" };

/* Atomic: a reader finds the old or the new content. */
static void write_file(const char *directory, const char *name, const char *text)
{
	char path[PATH_MAX], fresh[PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	snprintf(fresh, sizeof(fresh), "%s/fresh", directory);
	file = fopen(fresh, "we");
	REQUIRE(file != NULL);
	fprintf(file, "%s\n", text);
	CHECK_EQUAL(fclose(file), 0);
	CHECK_EQUAL(rename(fresh, path), 0);
}

void clock_files_write(const char *directory, const char *available, const char *current)
{
	write_file(directory, names[0], available);
	write_file(directory, names[1], current);
}

void clock_files_remove(const char *directory)
{
	char path[PATH_MAX];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
		unlink(path);
	}
	CHECK_EQUAL(rmdir(directory), 0);
}
