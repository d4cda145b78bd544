/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/profile_archive.h"

#include <stdio.h>
#include <string.h>

#include "shared/read_file.h"
#include "vmm/report/symbolizer_state.h"
#include "vmm/symbols/build_id_cache.h"
#include "vmm/symbols/symbol_archive.h"
#include "vmm/symbols/symbol_paths.h"

#define KERNELS "[kernel.kallsyms]"
#define BOOTS   "[kernel.kcore]"
#define MODULES "[guest.modules]"
#define VDSO    "[vdso]"

/* *FOUND: it exists and is added. */
static int add_cached(struct symbol_archive *archive, const struct symbolizer *symbolizer,
		      struct span build_id, const char *entry, const char *kind, bool *found)
{
	char path[SYMBOL_PATH_MAX], hex[BUILD_ID_HEX_MAX];

	if (!symbol_paths_cached(path, symbolizer->options.sources.buildid_dir, build_id, kind))
		return 0;
	*found = true;
	return symbol_archive_add(archive, entry, symbol_paths_hex(hex, build_id), kind, path);
}

/* PATH is the boot's kallsyms; the code for perf annotate may be missing. */
static int add_boot(struct symbol_archive *archive, char *path, const char *hex)
{
	static const char *const names[] = { "kallsyms", "modules", "kcore" };
	char *end = strrchr(path, '/'), name[64];
	const char *boot;
	int error = 0;

	*end = '\0';
	boot = strrchr(path, '/') + 1;
	for (size_t i = 0; i < 3 && !error; i++) {
		snprintf(name, sizeof(name), "%.40s/%s", boot, names[i]);
		snprintf(end, (size_t)(SYMBOL_PATH_MAX - (end - path)), "/%s", names[i]);
		if (file_is_readable(path))
			error = symbol_archive_add(archive, BOOTS, hex, name, path);
		*end = '\0';
	}
	return error;
}

static int add_kernel(struct symbol_archive *archive, const struct symbolizer *symbolizer,
		      const struct profile_kernel *kernel, bool *found)
{
	const char *directory = symbolizer->options.sources.buildid_dir;
	char path[SYMBOL_PATH_MAX], hex[BUILD_ID_HEX_MAX];
	struct span build_id = kernel_build_id(kernel);
	int error = 0;

	if (boot_symbols_find(path, kernel, directory)) {
		*found = true;
		error = add_boot(archive, path, symbol_paths_hex(hex, build_id));
	}
	if (!error)
		error = add_cached(archive, symbolizer, build_id, KERNELS, "kallsyms", found);
	return error ? error : add_cached(archive, symbolizer, build_id, KERNELS, "elf", found);
}

/* A build has one entry: a guest that is one program is a kernel, too. */
static const char *entry_of(const struct symbolizer *symbolizer, const struct profile_image *image)
{
	for (size_t i = 0; i < 2; i++) {
		const struct profile_kernel *kernel = &symbolizer->kernels[i];

		if (kernel->tried && kernel->build_id_size == image->build_id_size &&
		    !memcmp(kernel->build_id, image->build_id, image->build_id_size))
			return KERNELS;
	}
	return strcmp(image->path, VDSO) ? BUILD_ID_CACHE_IMAGES : VDSO;
}

/* The first file of that build, wherever it is, and its separate symbols. */
static int add_file(struct symbol_archive *archive, const struct symbolizer *symbolizer,
		    const struct profile_image *image, bool *found)
{
	const char *entry = entry_of(symbolizer, image);
	const struct symbol_sources *sources = &symbolizer->options.sources;
	char path[SYMBOL_PATH_MAX], hex[BUILD_ID_HEX_MAX];
	struct span build_id = image_build_id(image);
	int error = 0;

	symbol_paths_hex(hex, build_id);
	*found = profile_image_file(image, &symbolizer->options, path);
	if (*found)
		error = symbol_archive_add(archive, entry, hex,
					   strcmp(entry, VDSO) ? "elf" : "vdso", path);
	for (size_t i = 0; *found && !error && symbol_paths_debug(i, path, sources, build_id); i++)
		if (profile_image_is_build(path, build_id))
			return symbol_archive_add(archive, entry, hex, "debug", path);
	return error;
}

static int add_image(struct symbol_archive *archive, const struct symbolizer *symbolizer,
		     const struct profile_image *image, struct profile_archive_counts *counts)
{
	bool found = false;
	int error = 0;

	if (!image->tried || !image->build_id_size)
		return 0;
	if (image->kind == IMAGE_FILE)
		error = add_file(archive, symbolizer, image, &found);
	else if (image->kind == IMAGE_MODULE) /* of the boot, unless it has a file */
		return add_cached(archive, symbolizer, image_build_id(image), MODULES, "elf",
				  &found);
	else
		return 0;
	counts->found += found;
	counts->missing += !found;
	return error;
}

static int add_all(struct symbol_archive *archive, const struct symbolizer *symbolizer,
		   struct profile_archive_counts *counts)
{
	int error = 0;

	for (size_t i = 0; i < 2 && !error; i++) {
		const struct profile_kernel *kernel = &symbolizer->kernels[i];
		bool found = false;

		if (!kernel->tried || !kernel->build_id_size)
			continue;
		error = add_kernel(archive, symbolizer, kernel, &found);
		counts->found += found;
		counts->missing += !found;
	}
	for (size_t i = 0; i < symbolizer->images.capacity && !error; i++)
		if (symbolizer->images.slots[i].item)
			error = add_image(archive, symbolizer, symbolizer->images.slots[i].item,
					  counts);
	return error;
}

int profile_archive(const struct profile_options *options, const struct cache_file *file,
		    struct profile_archive_counts *counts)
{
	struct symbol_archive *archive;
	struct symbolizer *symbolizer;
	int error = symbolizer_open(&symbolizer, options);

	memset(counts, 0, sizeof(*counts));
	if (error)
		return error;
	error = symbolizer_run(symbolizer, NULL, NULL);
	if (!error)
		error = symbol_archive_create(&archive, file, options->input);
	if (!error)
		error = symbol_archive_close(archive, add_all(archive, symbolizer, counts),
					     &counts->size);
	symbolizer_close(symbolizer);
	return error;
}
