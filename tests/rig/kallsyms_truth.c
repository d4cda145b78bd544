/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/kallsyms_truth.h"

#include <ctype.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/shim/test.h"

#define KERNEL_START 0xffffffff80000000ull
#define WRONG_SHOWN  5 /* lines printed by a failed test */

/* Lines of "address type name module", sorted. */
struct lines {
	char **line;
	size_t count, capacity;
};

static void add_line(struct lines *lines, const char *text)
{
	if (lines->count == lines->capacity) {
		lines->capacity = lines->capacity * 2 + 4096;
		lines->line = realloc(lines->line, lines->capacity * sizeof(*lines->line));
		if (!lines->line)
			abort();
	}
	lines->line[lines->count++] = strdup(text);
}

/*
 * Text symbols only: data of modules is not in the cache, where perf looks for functions. Symbols
 * that the kernel generates at run time are in no table of its image or modules. A module's
 * exported symbols have capital types. Names with a leading dot are labels inside of functions and
 * are not in the cache.
 */
static void read_line(struct lines *lines, const char *text)
{
	char name[512], module[80] = "", type, entry[640];
	uint64_t address;

	if (sscanf(text, "%" SCNx64 " %c %511s %79s", &address, &type, name, module) < 3 ||
	    address < KERNEL_START || !strchr("tTwW", type) || *name == '.' ||
	    !strncmp(module, "[bpf", 4) || !strncmp(module, "[__builtin", 10))
		return;
	snprintf(entry, sizeof(entry), "%016" PRIx64 " %c %s %s", address,
		 *module ? tolower(type) : type, name, module);
	add_line(lines, entry);
}

static int compare_lines(const void *left, const void *right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* The text at the beginning of PATH, up to a NUL or the end. */
static void read_lines(struct lines *lines, const char *path)
{
	FILE *file = fopen(path, "r");
	char text[1024];

	memset(lines, 0, sizeof(*lines));
	if (!file)
		return;
	while (fgets(text, sizeof(text), file) && *text)
		read_line(lines, text);
	fclose(file);
	if (lines->count)
		qsort(lines->line, lines->count, sizeof(*lines->line), compare_lines);
}

static void free_lines(struct lines *lines)
{
	for (size_t i = 0; i < lines->count; i++)
		free(lines->line[i]);
	free(lines->line);
}

/* The number of lines in SOME that are not in ALL; the first ones are printed as WHAT. */
static size_t count_missing(const struct lines *some, const struct lines *all, const char *what)
{
	size_t missing = 0, j = 0;

	for (size_t i = 0; i < some->count; i++) {
		while (j < all->count && strcmp(all->line[j], some->line[i]) < 0)
			j++;
		if (j < all->count && !strcmp(all->line[j], some->line[i]))
			continue;
		if (missing++ < WRONG_SHOWN)
			FAIL_TEST("%s: %s", what, some->line[i]);
	}
	return missing;
}

static size_t count_of_modules(const struct lines *lines)
{
	size_t count = 0;

	for (size_t i = 0; i < lines->count; i++)
		count += lines->line[i][strlen(lines->line[i]) - 1] == ']';
	return count;
}

static void compare(const char *image, const char *cache)
{
	struct lines guests, ours;

	read_lines(&guests, image);
	read_lines(&ours, cache);
	CHECK(guests.count > 30000);
	CHECK(count_of_modules(&guests) > 50);
	CHECK_EQUAL(count_missing(&guests, &ours, "not found"), 0);
	CHECK_EQUAL(count_missing(&ours, &guests, "wrong"), 0);
	free_lines(&guests);
	free_lines(&ours);
}

void kallsyms_truth_check(const char *directory)
{
	char path[256];
	glob_t found;

	snprintf(path, sizeof(path), "%s/.debug/[[]kernel.kcore]/*/*/kallsyms", directory);
	if (!glob(path, 0, NULL, &found)) {
		CHECK_EQUAL(found.gl_pathc, 1);
		snprintf(path, sizeof(path), "%s/disk", directory);
		compare(path, found.gl_pathv[0]);
		globfree(&found);
	} else {
		FAIL_TEST("%s: no kallsyms in the build-id cache", directory);
	}
}
