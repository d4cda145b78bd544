/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/profile_image.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/symbols/symbol_paths.h"

static bool same_name(const void *item, const void *key)
{
	return !strcmp(((const struct profile_module_mapping *)item)->name, key);
}

static uint64_t hash_name(const char *name)
{
	return hash_mix_bytes(0, name, strlen(name));
}

struct profile_module_mapping *profile_kernel_module(const struct profile_kernel *kernel,
						     const char *name)
{
	return hash_table_find(&kernel->modules, hash_name(name), same_name, name);
}

int profile_kernel_set_module(struct profile_kernel *kernel, struct pool *pool, const char *name,
			      uint64_t start)
{
	struct profile_module_mapping *module = profile_kernel_module(kernel, name);

	if (!module) {
		module = pool_alloc(pool, sizeof(*module));
		if (!module)
			return -ENOMEM;
		module->name = name;
		if (hash_table_add(&kernel->modules, hash_name(name), module))
			return -ENOMEM;
	}
	module->start = start;
	return 0;
}

/* Lines of /proc/modules: NAME SIZE USES USERS STATE ADDRESS. The guest may have booted the host's
 * kernel at the same address, but without its modules. */
static bool modules_fit(const char *directory, const struct profile_kernel *kernel)
{
	char path[SYMBOL_PATH_MAX], line[1024], name[64];
	bool fit = true;
	uint64_t start, found = 0;
	FILE *file;

	if (snprintf(path, sizeof(path), "%s/modules", directory) >= (int)sizeof(path))
		return false;
	file = fopen(path, "re");
	if (!file)
		return false;
	while (fit && fgets(line, sizeof(line), file)) {
		const struct profile_module_mapping *recorded;

		if (sscanf(line, "%63s %*s %*s %*s %*s %" SCNx64, name, &start) != 2)
			continue;
		recorded = profile_kernel_module(kernel, name);
		fit = !recorded || !recorded->start || recorded->start == start;
		found += !!recorded;
	}
	fclose(file);
	return fit && (!kernel->host || found >= kernel->modules.count);
}

/* True if the kernel's reference symbol, near the start of the file, has its recorded address. */
static bool kernel_fits(const char *path, const struct profile_kernel *kernel)
{
	char line[1024], name[512];
	bool fits = false;
	uint64_t address;
	FILE *file = fopen(path, "re");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%" SCNx64 " %*c %511s", &address, name) == 2 &&
		    !strcmp(name, kernel->reference)) {
			fits = address == kernel->reference_address;
			break;
		}
	if (file)
		fclose(file);
	return fits;
}

static bool boot_fits(char *path, const char *boots, const char *name,
		      const struct profile_kernel *kernel)
{
	char directory[SYMBOL_PATH_MAX];

	if (*name == '.' ||
	    snprintf(directory, sizeof(directory), "%s/%s", boots, name) >=
		    (int)sizeof(directory) ||
	    snprintf(path, SYMBOL_PATH_MAX, "%s/kallsyms", directory) >= SYMBOL_PATH_MAX)
		return false;
	return modules_fit(directory, kernel) && kernel_fits(path, kernel);
}

bool boot_symbols_running(char *path, const struct profile_kernel *kernel)
{
	return kernel->reference && kernel->reference_address &&
	       symbol_paths_is_running_kernel(kernel_build_id(kernel)) &&
	       boot_fits(path, "", "proc", kernel);
}

/* Boots are named by their time: the newest comes first. */
bool boot_symbols_find(char *path, const struct profile_kernel *kernel, const char *directory)
{
	char boots[SYMBOL_PATH_MAX];
	struct dirent **entries;
	bool found = false;
	int count;

	if (!kernel->reference || !kernel->reference_address ||
	    !symbol_paths_boots(boots, directory, kernel_build_id(kernel)))
		return false;
	count = scandir(boots, &entries, NULL, alphasort);
	for (int i = count - 1; i >= 0; i--) {
		found = found || boot_fits(path, boots, entries[i]->d_name, kernel);
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
	return found;
}
