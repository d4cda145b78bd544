/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/collector_kernel_parts.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "shared/hash.h"
#include "vmm/guest/page_walk.h"

#define PAGE_MASK 0xfffull

static uint64_t symbol_address(const struct symbols *symbols, const char *name)
{
	struct symbol symbol;

	return symbols_find_name(symbols, name, &symbol) ? symbol.start : 0;
}

/* Init code follows the kernel's data, up to _end. */
static uint64_t image_end(const struct symbols *symbols, uint64_t start, uint64_t text_end)
{
	uint64_t end = symbol_address(symbols, "_end");

	return end > text_end && end - start < 1ull << 30 ? end : text_end;
}

/* perf mistakes a kernel without a build id for the one that it runs on. So it gets one, computed
 * from its symbols. */
static void invent_build_id(struct collector_kernel *kernel)
{
	uint64_t hash[2] = { HASH_START, 0x84222325cbf29ce4ull };
	size_t count = symbols_count(kernel->boot.image.symbols);

	for (size_t i = 0; i < count; i++) {
		struct symbol symbol;
		uint64_t offset;

		symbols_at(kernel->boot.image.symbols, i, &symbol);
		offset = symbol.start - kernel->boot.image.start;
		for (size_t half = 0; half < 2; half++)
			hash[half] = hash_add(hash_add_text(hash[half], symbol.name), offset);
	}
	/* No trailing zeroes: perf strips them as padding and then misses the file in the cache. */
	memset(kernel->build_id, 0x6b, sizeof(kernel->build_id));
	memcpy(kernel->build_id, hash, sizeof(hash));
	kernel->build_id_size = sizeof(kernel->build_id);
}

static void set_build_id(struct collector_kernel *kernel, const struct guest_kernel *found)
{
	if (found && found->build_id_size) {
		kernel->build_id_size = found->build_id_size;
		memcpy(kernel->build_id, found->build_id, found->build_id_size);
	} else if (kernel->file.build_id_size) {
		kernel->build_id_size = kernel->file.build_id_size;
		memcpy(kernel->build_id, kernel->file.build_id, kernel->build_id_size);
	} else {
		invent_build_id(kernel);
	}
	kernel->boot.image.build_id = kernel->build_id;
	kernel->boot.image.build_id_size = kernel->build_id_size;
}

/* Given symbols of a kernel that was found at another address are moved there; modules do not move
 * with the kernel, so theirs are left out. */
static int move_given(struct collector_kernel *kernel, uint64_t delta)
{
	struct symbols *moved = symbols_new();
	size_t count = symbols_count(kernel->given);
	int error = moved ? 0 : -ENOMEM;

	for (size_t i = 0; !error && i < count; i++) {
		struct symbol symbol;

		symbols_at(kernel->given, i, &symbol);
		if (!symbol.module)
			error = symbols_add(moved, symbol.start + delta, symbol.end - symbol.start,
					    symbol.type, symbol.name, NULL);
	}
	if (error) {
		symbols_free(moved);
		return error_set(error, "no memory for the symbols of the guest's kernel");
	}
	symbols_finish(moved);
	symbols_free(kernel->given);
	kernel->given = moved;
	return 0;
}

/* The range of given symbols: from _text, or else the first one, to the last. */
static void use_given_range(struct collector_kernel *kernel)
{
	struct symbol first = { 0 }, last = { 0 };
	size_t count = symbols_count(kernel->given);

	if (count) {
		symbols_at(kernel->given, 0, &first);
		symbols_at(kernel->given, count - 1, &last);
	}
	kernel->boot.image.start = symbol_address(kernel->given, "_text");
	kernel->boot.image.text_end = symbol_address(kernel->given, "_etext");
	if (!kernel->boot.image.start || kernel->boot.image.text_end <= kernel->boot.image.start) {
		kernel->boot.image.start = first.start & ~PAGE_MASK;
		kernel->boot.image.text_end = last.end;
	}
	kernel->boot.image.symbols = kernel->given;
}

static int use_given(struct collector_kernel *kernel, const struct guest_kernel *found)
{
	uint64_t delta;

	use_given_range(kernel);
	delta = found ? found->text_start - kernel->boot.image.start : 0;
	if (delta) {
		int error = move_given(kernel, delta);

		if (error)
			return error;
		use_given_range(kernel);
	}
	return 0;
}

int collector_image_update_modules(struct collector_kernel *kernel, const struct guest_module *list,
				   size_t count, const struct collector_scan *now)
{
	int error =
		collector_modules_scan(&kernel->boot.modules, list, count, &kernel->boot.scan, now);

	kernel->boot.image.modules = kernel->boot.modules.modules;
	kernel->boot.image.shared = kernel->boot.modules.shared;
	kernel->boot.image.module_count = kernel->boot.modules.count;
	return error;
}

int collector_image_set_modules(struct collector_kernel *kernel, const struct guest_kernel *older,
				const struct guest_kernel *found)
{
	int error = collector_modules_update(&kernel->boot.modules, older, found);

	kernel->boot.image.unloaded = kernel->boot.modules.unloaded;
	if (!kernel->given) /* those of OLDER may be freed at any time */
		kernel->boot.image.symbols = found->symbols;
	return error;
}

int collector_image_describe(struct collector_kernel *kernel, const struct guest_kernel *found)
{
	int error = 0;

	if (kernel->given) {
		error = use_given(kernel, found);
	} else {
		kernel->boot.image.start = found->text_start;
		kernel->boot.image.text_end = found->text_end;
		kernel->boot.image.symbols = found->symbols;
	}
	if (!error && found)
		error = collector_image_update_modules(kernel, found->modules, found->module_count,
						       &kernel->boot.scan);
	if (!error && found)
		error = collector_image_set_modules(kernel, NULL, found);
	if (error)
		return error;
	kernel->boot.image.end = image_end(kernel->boot.image.symbols, kernel->boot.image.start,
					   kernel->boot.image.text_end);
	set_build_id(kernel, found);
	return 0;
}

static int write_bound(struct collector_kernel *kernel, const struct module_bound *bound)
{
	const struct guest_module *module = &bound->module;
	char name[sizeof(module->name) + 2];
	struct perf_data_mapping mapping = {
		.time = bound->time,
		.pid = -1,
		.tid = -1,
		.start = module->start,
		.size = module->size,
		.name = name,
		.build_id = module->build_id,
		.build_id_size = module->build_id_size,
		.kernel = true,
		.is_code = module->program,
	};

	snprintf(name, sizeof(name), module->program ? "%s" : "[%s]", module->name);
	return bound->end ? perf_data_writer_mapping_end(kernel->writer, &mapping)
			  : perf_data_writer_mapping(kernel->writer, &mapping);
}

int collector_image_map_modules(struct collector_kernel *kernel)
{
	const struct module_timeline *timeline = &kernel->boot.modules.timeline;

	for (; kernel->boot.bounds_written < timeline->count; kernel->boot.bounds_written++) {
		const struct module_bound *bound = &timeline->bounds[kernel->boot.bounds_written];
		int error = bound->written ? write_bound(kernel, bound) : 0;

		if (error)
			return error;
	}
	return 0;
}

int collector_image_map(struct collector_kernel *kernel)
{
	struct perf_data_mapping mapping = {
		.pid = -1,
		.tid = -1,
		.start = kernel->boot.image.start,
		.size = kernel->boot.image.end - kernel->boot.image.start,
		.offset = kernel->boot.image.start,
		.name = kernel->options->output.perspective == PERSPECTIVE_HOST
				? "[kernel.kallsyms]" BUILD_ID_CACHE_ANCHOR
				: "[kernel.kallsyms]_text",
		.build_id = kernel->build_id,
		.build_id_size = kernel->build_id_size,
		.kernel = true,
	};
	int error = perf_data_writer_mapping(kernel->writer, &mapping);

	kernel->boot.mapped = !error;
	return error ? error : collector_image_map_modules(kernel);
}

/* Every Linux kernel has it, whatever its configuration. */
bool collector_image_given_is_linux(const struct collector_kernel *kernel)
{
	return symbol_address(kernel->given, "start_kernel");
}

/* perf opens the file by this name, wherever it is started. */
int collector_image_map_program(const struct collector_kernel *kernel)
{
	const char *path = kernel->options->vmlinux;
	const struct vmlinux_file *file = &kernel->file;
	pid_t pid = perf_data_writer_unknown_pid(kernel->writer);
	char name[PATH_MAX];
	struct perf_data_mapping program = { .pid = pid,
					     .tid = pid,
					     .name = name,
					     .build_id = file->build_id,
					     .build_id_size = file->build_id_size };
	int error = 0;

	if (!realpath(path, name))
		return error_set(-errno, "cannot find %s: %s", path, strerror(errno));
	for (uint32_t i = 0; i < file->segment_count && !error; i++) {
		program.start = file->segments[i].address;
		program.size = file->segments[i].size;
		program.offset = file->segments[i].offset;
		error = perf_data_writer_mapping(kernel->writer, &program);
	}
	return error;
}

/* --- host name -------------------------------------------------------------------- */

/* Size of the strings of struct new_utsname (include/uapi/linux/utsname.h). */
#define UTS_FIELD    ((size_t)65)
#define UTS_NODENAME (1 * UTS_FIELD)
#define UTS_RELEASE  (2 * UTS_FIELD)

#define OFFSET_MAX 64

static bool is_hostname(const char *text)
{
	size_t size = strnlen(text, UTS_FIELD);

	for (size_t i = 0; i < size; i++)
		if (!isalnum((unsigned char)text[i]) && !strchr("-._", text[i]))
			return false;
	return size && size < UTS_FIELD;
}

int collector_hostname(const struct guest_kernel *kernel, const struct guest_view *view,
		       char hostname[COLLECTOR_HOSTNAME_SIZE])
{
	char bytes[OFFSET_MAX + 3 * UTS_FIELD + 1] = { 0 };
	struct symbol symbol;

	if (!symbols_find_name(kernel->symbols, "init_uts_ns", &symbol) ||
	    guest_read_virtual(view, &kernel->paging, symbol.start, bytes, sizeof(bytes) - 1))
		return error_set(-ENOENT, "the guest's host name is not in its symbols");
	for (size_t offset = 0; offset < OFFSET_MAX; offset += 4) {
		if (strcmp(bytes + offset, "Linux") != 0 ||
		    strcmp(bytes + offset + UTS_RELEASE, kernel->release) != 0)
			continue;
		if (!is_hostname(bytes + offset + UTS_NODENAME))
			break; /* "(none)": not set */
		memcpy(hostname, bytes + offset + UTS_NODENAME, COLLECTOR_HOSTNAME_SIZE);
		return 0;
	}
	return error_set(-ENOENT, "the guest has no host name");
}
