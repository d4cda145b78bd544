/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/session/host_images.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/error.h"
#include "shared/log.h"
#include "shared/pool.h"
#include "vmm/symbols/build_id_cache.h"
#include "vmm/symbols/elf_file.h"
#include "vmm/symbols/kallsyms_file.h"
#include "vmm/symbols/symbol_paths.h"

#define LINE_SIZE (PATH_MAX + 256)

struct host_images {
	struct pool pool;
	struct perf_data_mapping *mappings;
	size_t count, capacity;
	size_t kernel_count; /* the kernel, and its modules after it; 0: addresses are hidden */
	pid_t vmm;
	enum perspective perspective;
};

/* In the guest's perspective: perf has one image of a name, and the guest may have another one. */
static const char *keep_name(struct host_images *images, const char *name)
{
	char distinct[PATH_MAX + 16];

	if (images->perspective == PERSPECTIVE_HOST)
		return pool_string(&images->pool, name);
	if (*name == '[')
		snprintf(distinct, sizeof(distinct), "[host.%s", name + 1);
	else
		snprintf(distinct, sizeof(distinct), "[host]%s", name);
	return pool_string(&images->pool, distinct);
}

static int add(struct host_images *images, const struct perf_data_mapping *mapping,
	       const uint8_t *build_id)
{
	struct perf_data_mapping *added;
	uint8_t *kept = pool_alloc(&images->pool, ELF_BUILD_ID_MAX);

	if (!kept || array_reserve(&images->mappings, &images->capacity, images->count + 1))
		return error_set(-ENOMEM, "no memory for the mappings of the host");
	memcpy(kept, build_id, ELF_BUILD_ID_MAX);
	added = &images->mappings[images->count++];
	*added = *mapping;
	added->host = true;
	/* In the guest's perspective, the PID of the VMM or of the kernel could be that of a
	 * process in the guest. */
	if (images->perspective == PERSPECTIVE_GUEST) {
		added->kernel = false;
		added->pid = added->tid = PERF_DATA_HOST_PID;
	}
	added->build_id = kept;
	added->name = keep_name(images, mapping->name);
	return added->name ? 0 : error_set(-ENOMEM, "no memory for the mappings of the host");
}

/* The addresses of _text and _etext; false: they are hidden. */
static bool find_kernel(uint64_t *start, uint64_t *end)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	char line[LINE_SIZE], name[64];
	uint64_t address;

	*start = *end = 0;
	while (file && !*end && fgets(line, sizeof(line), file)) {
		if (!strstr(line, "_text\n") && !strstr(line, "_etext\n"))
			continue;
		if (sscanf(line, "%" SCNx64 " %*c %63s", &address, name) != 2)
			continue;
		if (!strcmp(name, "_text"))
			*start = address;
		else if (!strcmp(name, "_etext"))
			*end = address;
	}
	if (file)
		fclose(file);
	return *start && *end > *start;
}

static int add_kernel(struct host_images *images)
{
	uint8_t build_id[ELF_BUILD_ID_MAX] = { 0 };
	uint64_t start, end;
	size_t size = symbol_paths_notes_build_id("/sys/kernel/notes", build_id);

	if (!find_kernel(&start, &end)) {
		log_warning("the host's kernel has no symbols: /proc/kallsyms hides addresses "
			    "(sysctl kernel.kptr_restrict; run as root, or with CAP_SYSLOG)");
		return 0;
	}
	return add(images,
		   &(struct perf_data_mapping){ .pid = -1,
						.start = start,
						.size = end - start,
						.offset = start,
						.name = "[kernel.kallsyms]_text",
						.build_id_size = size,
						.kernel = true },
		   build_id);
}

/* LINE of /proc/modules: NAME SIZE USES USERS STATE ADDRESS. */
static int add_module(struct host_images *images, const char *line)
{
	uint8_t build_id[ELF_BUILD_ID_MAX] = { 0 };
	char name[64], shown[80], notes[128];
	uint64_t size, start;

	if (sscanf(line, "%63s %" SCNu64 " %*s %*s %*s %" SCNx64, name, &size, &start) != 3 ||
	    !start)
		return 0;
	snprintf(shown, sizeof(shown), "[%s]", name);
	snprintf(notes, sizeof(notes), "/sys/module/%s/notes/.note.gnu.build-id", name);
	return add(images,
		   &(struct perf_data_mapping){
			   .pid = -1,
			   .start = start,
			   .size = size,
			   .name = shown,
			   .build_id_size = symbol_paths_notes_build_id(notes, build_id),
			   .kernel = true },
		   build_id);
}

/* In the VMM's mount namespace. */
static size_t read_build_id(const struct host_images *images, const char *path, uint8_t *build_id)
{
	char whole[PATH_MAX];
	struct elf_file file;
	size_t size;

	if (*path != '/' || snprintf(whole, sizeof(whole), "/proc/%d/root%s", images->vmm, path) >=
				    (int)sizeof(whole))
		return 0;
	if (elf_file_open(&file, whole))
		return 0;
	size = elf_file_build_id(&file, build_id);
	elf_file_close(&file);
	return size;
}

/* LINE of /proc/PID/maps: START-END RIGHTS OFFSET DEVICE INODE NAME. */
static int add_image(struct host_images *images, char *line)
{
	uint8_t build_id[ELF_BUILD_ID_MAX] = { 0 };
	uint64_t start, end, offset;
	int name = 0;
	char rights[5];

	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %*s %n", &start, &end, rights,
		   &offset, &name) != 4 ||
	    !name || rights[2] != 'x' || end <= start)
		return 0;
	return add(images,
		   &(struct perf_data_mapping){
			   .pid = images->vmm,
			   .tid = images->vmm,
			   .start = start,
			   .size = end - start,
			   .offset = offset,
			   .name = line[name] ? line + name : "[anon]",
			   .build_id_size = read_build_id(images, line + name, build_id) },
		   build_id);
}

static int add_modules(struct host_images *images)
{
	FILE *file = fopen("/proc/modules", "re");
	char line[LINE_SIZE];
	int error = 0;

	while (file && !error && fgets(line, sizeof(line), file))
		error = add_module(images, line);
	if (file)
		fclose(file);
	return error;
}

static int add_vmm(struct host_images *images)
{
	char path[64], line[LINE_SIZE];
	int error = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/maps", images->vmm);
	file = fopen(path, "re");
	if (!file) {
		log_warning("the VMM has no symbols: cannot open %s: %s (run as root, or with "
			    "CAP_SYS_PTRACE)",
			    path, strerror(errno));
		return 0;
	}
	while (!error && fgets(line, sizeof(line), file))
		error = add_image(images, line);
	fclose(file);
	return error;
}

/* Stores the modules among the mappings in MODULES of that COUNT; returns their number. */
static size_t list_modules(const struct host_images *images, struct guest_module *modules)
{
	size_t count = 0;

	for (size_t i = 1; i < images->kernel_count; i++) {
		const struct perf_data_mapping *mapping = &images->mappings[i];
		const char *name =
			mapping->name +
			(images->perspective == PERSPECTIVE_HOST ? strlen("[") : strlen("[host."));
		struct guest_module *module = &modules[count++];

		*module = (struct guest_module){ .start = mapping->start, .size = mapping->size };
		snprintf(module->name, sizeof(module->name), "%.*s", (int)strcspn(name, "]"), name);
		module->build_id_size = mapping->build_id_size;
		memcpy(module->build_id, mapping->build_id, mapping->build_id_size);
	}
	return count;
}

static int store(const struct host_images *images, const struct symbols *symbols,
		 struct guest_module *modules)
{
	const struct perf_data_mapping *kernel = &images->mappings[0];
	const struct kernel_image image = { .build_id = kernel->build_id,
					    .build_id_size = kernel->build_id_size,
					    .start = kernel->start,
					    .end = kernel->start + kernel->size,
					    .text_end = kernel->start + kernel->size,
					    .symbols = symbols,
					    .modules = modules,
					    .module_count = list_modules(images, modules) };
	struct build_id_cache_boot boot = { 0 };
	char directory[PATH_MAX];
	int error = build_id_cache_directory(directory, sizeof(directory));

	if (!error)
		error = build_id_cache_add_kernel(directory, &image);
	return error ? error : build_id_cache_add_boot(directory, &image, &boot);
}

void host_images_store(const struct host_images *images)
{
	struct guest_module *modules;
	struct symbols *symbols = NULL;

	if (!images->kernel_count || !images->mappings[0].build_id_size)
		return;
	modules = calloc(images->kernel_count, sizeof(*modules));
	if (!modules || kallsyms_file_load(&symbols, "/proc/kallsyms") ||
	    store(images, symbols, modules))
		log_warning("the symbols of the host's kernel are not stored: %s",
			    modules ? error_message() : "no memory");
	symbols_free(symbols);
	free(modules);
}

int host_images_read(struct host_images **images, pid_t vmm, enum perspective perspective)
{
	struct host_images *read = calloc(1, sizeof(*read));
	int error;

	if (!read)
		return error_set(-ENOMEM, "no memory for the mappings of the host");
	read->vmm = vmm;
	read->perspective = perspective;
	error = add_kernel(read);
	if (!error && read->count)
		error = add_modules(read);
	read->kernel_count = read->count;
	if (!error)
		error = add_vmm(read);
	if (error)
		host_images_free(read);
	else
		*images = read;
	return error;
}

const struct perf_data_mapping *host_images_mappings(const struct host_images *images,
						     size_t *count)
{
	*count = images->count;
	return images->mappings;
}

void host_images_free(struct host_images *images)
{
	if (!images)
		return;
	pool_free(&images->pool);
	free(images->mappings);
	free(images);
}
