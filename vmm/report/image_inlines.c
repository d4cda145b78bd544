/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/profile_image.h"

#include <stdlib.h>
#include <string.h>

#include "vmm/symbols/debuginfod.h"
#include "vmm/symbols/elf_symbols.h"
#include "vmm/symbols/symbol_paths.h"

struct image_inlines {
	struct dwarf_inlines *dwarf;  /* NULL: not found */
	struct elf_segments segments; /* of the mapped file */
	uint64_t moved;               /* for a kernel: DWARF address minus recorded address */
};

bool image_inlines_found(const struct image_inlines *inlines)
{
	return inlines->dwarf;
}

void image_inlines_free(struct image_inlines *inlines)
{
	if (!inlines)
		return;
	dwarf_inlines_close(inlines->dwarf);
	free(inlines);
}

/* A separate file may lack the segments of the mapped one. */
static bool read_segments(struct image_inlines *inlines, const char *path,
			  const struct profile_image *image)
{
	struct elf_file file;
	bool same;

	if (elf_file_open(&file, path))
		return false;
	same = !elf_file_check(&file, image_build_id(image));
	if (same)
		elf_file_segments(&file, &inlines->segments);
	elf_file_close(&file);
	return same && inlines->segments.count;
}

static void find_file(struct image_inlines *inlines, struct profile_image *image,
		      const struct profile_options *options)
{
	char path[SYMBOL_PATH_MAX];
	bool placed = false;

	if (!image->build_id_size)
		return;
	for (size_t i = 0; !inlines->dwarf && symbol_paths_elf(i, path, &options->sources,
							       image->path, image_build_id(image));
	     i++) {
		placed = placed || read_segments(inlines, path, image);
		dwarf_inlines_open(&inlines->dwarf, path, image_build_id(image), &options->sources);
	}
	for (size_t i = 0; placed && !inlines->dwarf &&
			   symbol_paths_debug(i, path, &options->sources, image_build_id(image));
	     i++)
		dwarf_inlines_open(&inlines->dwarf, path, image_build_id(image), &options->sources);
	if (!inlines->dwarf && profile_image_fetch(image, options, path)) {
		placed = placed || read_segments(inlines, path, image);
		dwarf_inlines_open(&inlines->dwarf, path, image_build_id(image), &options->sources);
	}
	if (inlines->dwarf || *image->path != '/')
		return;
	if (!placed && debuginfod_find(options->sources.debuginfod, DEBUGINFOD_EXECUTABLE, path,
				       image_build_id(image)))
		placed = read_segments(inlines, path, image);
	if (placed && debuginfod_find(options->sources.debuginfod, DEBUGINFOD_DEBUGINFO, path,
				      image_build_id(image)))
		dwarf_inlines_open(&inlines->dwarf, path, image_build_id(image), &options->sources);
}

/* Sets the difference of the file's addresses and the recorded ones, like find_moved() of the
 * symbols. */
static void find_moved(struct image_inlines *inlines, const struct profile_kernel *kernel,
		       const char *path)
{
	struct symbols *symbols;
	struct symbol symbol;

	if (!kernel->reference || !kernel->reference_address)
		return;
	if (elf_symbols_load(&symbols, path, ELF_VIRTUAL_ADDRESSES, kernel_build_id(kernel)))
		goto unknown;
	if (symbols_find_name(symbols, kernel->reference, &symbol)) {
		inlines->moved = symbol.start - kernel->reference_address;
		symbols_free(symbols);
		return;
	}
	symbols_free(symbols);
unknown:
	dwarf_inlines_close(inlines->dwarf);
	inlines->dwarf = NULL;
}

static void open_kernel(struct image_inlines *inlines, const struct profile_kernel *kernel,
			const struct profile_options *options, const char *path)
{
	if (!dwarf_inlines_open(&inlines->dwarf, path, kernel_build_id(kernel), &options->sources))
		find_moved(inlines, kernel, path);
}

static void find_kernel(struct image_inlines *inlines, const struct profile_kernel *kernel,
			const struct profile_options *options)
{
	char path[SYMBOL_PATH_MAX];

	if (options->vmlinux)
		open_kernel(inlines, kernel, options, options->vmlinux);
	if (!kernel->build_id_size)
		return;
	for (size_t i = 0; !inlines->dwarf && symbol_paths_vmlinux(i, path, &options->sources,
								   kernel_build_id(kernel));
	     i++)
		open_kernel(inlines, kernel, options, path);
	for (size_t i = 0; !inlines->dwarf &&
			   symbol_paths_debug(i, path, &options->sources, kernel_build_id(kernel));
	     i++)
		open_kernel(inlines, kernel, options, path);
	if (!inlines->dwarf && debuginfod_find(options->sources.debuginfod, DEBUGINFOD_DEBUGINFO,
					       path, kernel_build_id(kernel)))
		open_kernel(inlines, kernel, options, path);
}

/* NULL without memory, or for kinds without DWARF. */
static struct image_inlines *get_inlines(struct profile_image *image,
					 const struct profile_options *options)
{
	struct image_inlines **inlines =
		image->kind == IMAGE_KERNEL ? &image->kernel->inlines : &image->inlines;

	if (*inlines || (image->kind != IMAGE_KERNEL && image->kind != IMAGE_FILE))
		return *inlines;
	*inlines = calloc(1, sizeof(**inlines));
	if (*inlines && image->kind == IMAGE_KERNEL)
		find_kernel(*inlines, image->kernel, options);
	else if (*inlines)
		find_file(*inlines, image, options);
	return *inlines;
}

size_t image_inlines_find(struct profile_image *image, const struct profile_options *options,
			  uint64_t own, struct dwarf_function *functions)
{
	struct image_inlines *inlines = get_inlines(image, options);
	uint64_t address;

	if (!inlines || !inlines->dwarf)
		return 0;
	if (image->kind == IMAGE_KERNEL)
		address = own - image->kernel->moved + inlines->moved;
	else if (!elf_segments_address(&inlines->segments, own, &address))
		return 0;
	return dwarf_inlines_find(inlines->dwarf, address, options->lines, functions);
}
