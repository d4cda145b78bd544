/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/symbols/build_id_cache.h"
#include "vmm/symbols/build_id_cache_files.h"
#include "vmm/symbols/module_file.h"

/* perf takes whatever file of the kernel's has no path for a table of symbols by its name
 * (dso__is_kallsyms()). */
static int link_table(const char *place)
{
	char table[PATH_MAX];
	int error = cache_path(table, place, "/kallsyms", NULL);

	if (!error && symlink("elf", table) && errno != EEXIST)
		error = error_set(-errno, "can't make the link %s: %s", table, strerror(errno));
	return error;
}

static int add_module(const char *directory, const struct guest_module *module,
		      const struct bytes *file)
{
	const struct kernel_image image = { .build_id = module->build_id,
					    .build_id_size = module->build_id_size };
	char id[41], entry[sizeof(module->name) + 2], place[PATH_MAX];
	int error;

	cache_id_text(&image, id);
	snprintf(entry, sizeof(entry), "[%s]", module->name);
	error = cache_path(place, directory, "/", entry, "/", id, NULL);
	if (!error)
		error = cache_make_directory(place);
	if (!error && (!cache_file_exists(place, "elf") || cache_file_is_outdated(place, "elf")))
		error = cache_write_file(place, "elf", CACHE_MODE_PUBLIC, file);
	if (!error)
		error = link_table(place);
	return error ? error : cache_link_build(directory, entry, id);
}

int build_id_cache_add_modules(const char *directory, const struct kernel_image *image)
{
	int error = 0;

	if (!cache_modules_overlap(image))
		return 0;
	for (size_t i = 0; i < image->module_count && !error; i++) {
		struct bytes file;

		if (!build_id_cache_name_is_plain(image->modules[i].name))
			continue;
		module_file_make(&file, &image->modules[i], image->symbols, image->unloaded);
		if (file.failed)
			error = error_set(-ENOMEM, "no memory for the symbols of modules");
		else if (file.size)
			error = add_module(directory, &image->modules[i], &file);
		free(file.data);
	}
	return error;
}
