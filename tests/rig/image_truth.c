/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/image_truth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/shim/test.h"
#include "vmm/symbols/elf_symbols.h"

#define IMAGES_MAX 64

/* From the C++ run-time library, which the tests are linked with. */
char *__cxa_demangle(const char *mangled, char *output, size_t *length, int *status);

static struct image {
	char name[128];
	struct symbols *own, *all; /* of the file, and of its separate debug file; NULL: none */
	unsigned long counts[IMAGE_TRUTHS];
} images[IMAGES_MAX];

/* For a file at PATH below FILES that is stripped. */
static struct symbols *load_separate(const char *files, const char *path)
{
	char debug[512], hex[2 * ELF_BUILD_ID_MAX + 1];
	uint8_t build_id[ELF_BUILD_ID_MAX];
	int size = elf_build_id(path, build_id);
	struct symbols *symbols;

	for (int i = 0; i < size; i++)
		snprintf(hex + 2 * i, 3, "%02x", build_id[i]);
	if (size <= 1)
		return NULL;
	snprintf(debug, sizeof(debug), "%s/mnt/debug/.build-id/%.2s/%s.debug", files, hex, hex + 2);
	return elf_symbols_load_separate(&symbols, debug, path, span_of(build_id, (size_t)size))
		       ? NULL
		       : symbols;
}

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
	if (elf_symbols_load(&image->own, path, ELF_FILE_OFFSETS, (struct span){ 0 }))
		image->own = NULL;
	image->all = load_separate(files, path);
	return image;
}

/* perf omits the parameters and a template's return type. */
static bool is_demangled(const char *mangled, const char *name)
{
	char *whole = __cxa_demangle(mangled, NULL, NULL, NULL);
	bool same = whole && strstr(whole, name);

	free(whole);
	return same;
}

/* An address may have several symbols. */
static bool is_called(const struct symbols *symbols, const struct symbol *symbol, const char *name)
{
	struct symbol called;

	return !strcmp(symbol->name, name) || is_demangled(symbol->name, name) ||
	       (symbols_find_name(symbols, name, &called) && called.start == symbol->start);
}

/* perf 6.1 identifies stubs by their order and does not recognize all of them. */
static bool is_stub(const char *name)
{
	return strstr(name, "@plt");
}

static bool is_right(const struct symbols *symbols, const struct script_frame *frame, bool by_perf)
{
	struct symbol symbol;

	if (!symbols)
		return false;
	if (symbols_find(symbols, frame->address, &symbol) && !(by_perf && is_stub(symbol.name)))
		return is_called(symbols, &symbol, frame->symbol);
	return by_perf && symbols_find_name(symbols, frame->symbol, &symbol) &&
	       symbol.start <= frame->address;
}

static bool has_name(const struct symbols *symbols, const struct script_frame *frame, bool by_perf)
{
	struct symbol symbol;

	return symbols && symbols_find(symbols, frame->address, &symbol) &&
	       !(by_perf && is_stub(symbol.name));
}

static enum image_truth of_file(const struct image *image, const struct script_frame *frame,
				bool by_perf)
{
	if (by_perf && is_stub(frame->symbol))
		return IMAGE_TRUTH_RIGHT;
	if (strcmp(frame->symbol, "[unknown]") != 0)
		return is_right(image->own, frame, by_perf) || is_right(image->all, frame, by_perf)
			       ? IMAGE_TRUTH_RIGHT
			       : IMAGE_TRUTH_WRONG;
	if (has_name(image->own, frame, by_perf))
		return IMAGE_TRUTH_MISSING;
	return has_name(image->all, frame, by_perf) ? IMAGE_TRUTH_STRIPPED : IMAGE_TRUTH_NONE;
}

/* All symbols that any kernel's vDSO exports (arch/x86/entry/vdso/vdso.lds.S). */
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

enum image_truth image_truth_of(const char *files, const struct script_frame *frame, bool by_perf)
{
	struct image *image = image_of(files, frame->image);
	enum image_truth truth =
		strcmp(frame->image, "[vdso]") ? of_file(image, frame, by_perf) : of_vdso(frame);

	image->counts[truth]++;
	return truth;
}

bool image_truth_has_name(const char *files, const struct script_frame *frame)
{
	return has_name(image_of(files, frame->image)->own, frame, false);
}

void image_truth_print(const char *what)
{
	for (struct image *image = images; *image->name; image++) {
		printf("%s: in %s %lu symbolized, %lu unsymbolized though its table has a symbol, %lu though a separate "
		       "file has one, %lu in code without symbols, %lu wrong\n",
		       what, image->name, image->counts[IMAGE_TRUTH_RIGHT],
		       image->counts[IMAGE_TRUTH_MISSING], image->counts[IMAGE_TRUTH_STRIPPED],
		       image->counts[IMAGE_TRUTH_NONE], image->counts[IMAGE_TRUTH_WRONG]);
		memset(image->counts, 0, sizeof(image->counts));
	}
}
