// SPDX-License-Identifier: Apache-2.0
#include "tests/rig/image_truth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/shim/test.h"
#include "vmm/profile/elf_symbols.h"

#define IMAGES_MAX 64

/* Of the C++ run-time library, which the tests are linked with. */
char *__cxa_demangle(const char *mangled, char *output, size_t *length, int *status);

static struct image {
	char name[128];
	struct symbols *symbols; /* NULL: it has none */
	unsigned long counts[IMAGE_TRUTHS];
} images[IMAGES_MAX];

static struct image *image_of(const char *files, const char *name)
{
	struct image *image = images;
	char path[512];

	while (*image->name && strcmp(image->name, name) != 0)
		image++;
	if (*image->name)
		return image;
	if (image == images + IMAGES_MAX - 1) {
		FAIL_TEST("more images than %d", IMAGES_MAX - 1);
		return image - 1;
	}
	snprintf(image->name, sizeof(image->name), "%s", name);
	snprintf(path, sizeof(path), "%s%s", files, name);
	if (elf_symbols_load(&image->symbols, path, ELF_FILE_OFFSETS, NULL, 0))
		image->symbols = NULL;
	return image;
}

/* perf leaves the parameters out, and what a template returns. */
static bool is_demangled(const char *mangled, const char *name)
{
	char *whole = __cxa_demangle(mangled, NULL, NULL, NULL);
	bool same = whole && strstr(whole, name);

	free(whole);
	return same;
}

/* Several names may be of one place. */
static bool is_called(const struct symbols *symbols, const struct symbol *symbol, const char *name)
{
	struct symbol called;

	return !strcmp(symbol->name, name) || is_demangled(symbol->name, name) ||
	       (symbols_find_name(symbols, name, &called) && called.start == symbol->start);
}

/* Code behind a function of assembly, which has no size: perf lets it reach up to the next one. */
static bool is_behind(const struct symbols *symbols, unsigned long long address, const char *name)
{
	struct symbol called;

	return symbols_find_name(symbols, name, &called) && called.start <= address;
}

static enum image_truth of_file(const struct symbols *symbols, const struct script_frame *frame)
{
	bool known = strcmp(frame->symbol, "[unknown]") != 0;
	struct symbol symbol;

	/* perf makes the names of entries of the PLT, of those of the functions that they lead to. */
	if (known && strstr(frame->symbol, "@plt"))
		return IMAGE_TRUTH_RIGHT;
	if (!symbols || !symbols_find(symbols, frame->address, &symbol)) {
		if (!known)
			return IMAGE_TRUTH_NONE;
		return symbols && is_behind(symbols, frame->address, frame->symbol) ? IMAGE_TRUTH_RIGHT
										    : IMAGE_TRUTH_WRONG;
	}
	if (!known)
		return IMAGE_TRUTH_MISSING;
	return is_called(symbols, &symbol, frame->symbol) ? IMAGE_TRUTH_RIGHT : IMAGE_TRUTH_WRONG;
}

/* All that the vDSO of any kernel exports (arch/x86/entry/vdso/vdso.lds.S). */
static enum image_truth of_vdso(const struct script_frame *frame)
{
	static const char *const names[] = { "clock_gettime", "gettimeofday", "clock_getres",
					     "time",          "getcpu",       "getrandom" };
	const char *name = frame->symbol;

	if (!strcmp(name, "[unknown]"))
		return IMAGE_TRUTH_NONE;
	if (!strncmp(name, "__vdso_", 7))
		name += 7;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i]))
			return IMAGE_TRUTH_RIGHT;
	return IMAGE_TRUTH_WRONG;
}

enum image_truth image_truth_of(const char *files, const struct script_frame *frame)
{
	struct image *image = image_of(files, frame->image);
	enum image_truth truth =
		strcmp(frame->image, "[vdso]") ? of_file(image->symbols, frame) : of_vdso(frame);

	image->counts[truth]++;
	return truth;
}

void image_truth_print(const char *what)
{
	for (struct image *image = images; *image->name; image++) {
		printf("%s: in %s %lu named, %lu not named though its table does, %lu in code without names, %lu wrong\n",
		       what, image->name, image->counts[IMAGE_TRUTH_RIGHT],
		       image->counts[IMAGE_TRUTH_MISSING], image->counts[IMAGE_TRUTH_NONE],
		       image->counts[IMAGE_TRUTH_WRONG]);
		memset(image->counts, 0, sizeof(image->counts));
	}
}
