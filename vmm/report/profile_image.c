/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/profile_image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/disk/disk_symbols.h"
#include "vmm/symbols/debuginfod.h"
#include "vmm/symbols/jit_image.h"
#include "vmm/symbols/kallsyms_file.h"
#include "vmm/symbols/symbol_paths.h"

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* "virtio_blk" from "[virtio_blk]", "[host.virtio_blk]" or ".../virtio-blk.ko.xz"; false if PATH is
 * not a module. */
static bool module_name(const char *path, char *name, size_t size)
{
	const char *file = last_part(path);
	const char *end = *path == '[' ? strchr(path, ']') : strstr(file, ".ko");
	const char *start = *path == '[' ? path + 1 : file;

	if (*path == '[' && !strncmp(start, "host.", strlen("host.")))
		start += strlen("host.");
	if (!end || end <= start || (size_t)(end - start) >= size)
		return false;
	for (; start < end; start++)
		*name++ = *start == '-' ? '_' : *start;
	*name = '\0';
	return true;
}

static bool is_kernel_name(const char *path)
{
	return !strncmp(path, "[kernel.", 8) || !strncmp(path, "[guest.kernel.", 14) ||
	       !strncmp(path, "[host.kernel.", 13);
}

/* Memory with a name that looks like a path. Programs in memory files are recorded as "memfd:". */
static bool is_memory_name(const char *path)
{
	static const char *const starts[] = { "//", "/memfd:", "/dev/zero", "/SYSV" };

	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
		if (!strncmp(path, starts[i], strlen(starts[i])))
			return true;
	return false;
}

static bool is_file_name(const char *path)
{
	return (*path == '/' && !is_memory_name(path)) || !strcmp(path, "[vdso]") ||
	       !strncmp(path, "memfd:", strlen("memfd:")) ||
	       !strncmp(path, JIT_IMAGE_NAME, strlen(JIT_IMAGE_NAME));
}

static bool describe_kernel(struct profile_image *image, struct pool *pool, const char *path)
{
	const char *end = strchr(path, ']');
	char name[64];

	image->kind = IMAGE_KERNEL;
	if (!end)
		end = path + strlen(path);
	else if (end[1])
		image->reference = pool_string(pool, end + 1);
	snprintf(name, sizeof(name), "%.*s]", (int)(end - path < 60 ? end - path : 60), path);
	image->name = pool_string(pool, name);
	return image->name && (image->reference || !*end || !end[1]);
}

static bool describe_module(struct profile_image *image, struct pool *pool, const char *name)
{
	char shown[80];

	image->kind = IMAGE_MODULE;
	snprintf(shown, sizeof(shown), "[%s]", name);
	image->module = pool_string(pool, name);
	image->name = pool_string(pool, shown);
	return image->module && image->name;
}

bool profile_image_describe(struct profile_image *image, struct pool *pool, const char *path,
			    bool kernel)
{
	char name[64];

	image->path = pool_string(pool, path);
	if (!image->path)
		return false;
	if (kernel && is_kernel_name(path))
		return describe_kernel(image, pool, path);
	if (kernel && module_name(path, name, sizeof(name)))
		return describe_module(image, pool, name);
	image->kind = !kernel && is_file_name(path) ? IMAGE_FILE : IMAGE_NAMELESS;
	image->name = pool_string(pool, *path ? last_part(path) : "[unknown]");
	return image->name;
}

bool profile_image_describe_code(struct profile_image *image, struct pool *pool, const char *name)
{
	image->kind = IMAGE_CODE;
	image->path = image->name = pool_string(pool, name);
	return image->name;
}

static struct symbols *load_vmlinux(const char *path, struct span build_id)
{
	struct symbols *symbols = NULL;

	return elf_symbols_load(&symbols, path, ELF_VIRTUAL_ADDRESSES, build_id) ? NULL : symbols;
}

static struct symbols *load_kallsyms(const char *path)
{
	struct symbols *symbols = NULL;

	return kallsyms_file_load(&symbols, path) ? NULL : symbols;
}

/* Files given by the user take precedence. */
static void load_given(struct profile_kernel *kernel, const struct profile_options *options)
{
	if (options->kallsyms) {
		kernel->symbols = load_kallsyms(options->kallsyms);
		kernel->has_modules = true;
	} else {
		kernel->symbols = load_vmlinux(options->vmlinux, kernel_build_id(kernel));
	}
}

static void load_found(struct profile_kernel *kernel, const struct profile_options *options)
{
	char path[SYMBOL_PATH_MAX], hex[BUILD_ID_HEX_MAX];

	/* The guest may have booted the same kernel at the same address. */
	if (kernel->host && !options->sources.cache_only && boot_symbols_running(path, kernel))
		kernel->symbols = load_kallsyms(path);
	else if (boot_symbols_find(path, kernel, options->sources.buildid_dir))
		kernel->symbols = load_kallsyms(path);
	else if (!options->sources.cache_only && boot_symbols_running(path, kernel))
		kernel->symbols = load_kallsyms(path);
	else if (symbol_paths_cached(path, options->sources.buildid_dir, kernel_build_id(kernel),
				     "kallsyms"))
		kernel->symbols = load_kallsyms(path);
	else if (!options->sources.cache_only &&
		 symbol_paths_is_running_kernel(kernel_build_id(kernel)))
		kernel->symbols = load_kallsyms("/proc/kallsyms");
	kernel->has_modules = kernel->symbols;
	for (size_t i = 0; !kernel->symbols; i++) {
		if (!symbol_paths_vmlinux(i, path, &options->sources, kernel_build_id(kernel)))
			break;
		kernel->symbols = load_vmlinux(path, kernel_build_id(kernel));
	}
	if (!kernel->symbols && debuginfod_find(options->sources.debuginfod, DEBUGINFOD_DEBUGINFO,
						path, kernel_build_id(kernel)))
		kernel->symbols = load_vmlinux(path, kernel_build_id(kernel));
	if (!kernel->symbols)
		error_set(
			-ENOENT,
			"the build-id cache has no symbols of the kernel with build id %s: use the cache of the "
			"user who recorded (--buildid-dir), --kallsyms or --vmlinux",
			symbol_paths_hex(hex, kernel_build_id(kernel)));
}

/* Sets the difference of the table's addresses and the recorded ones: the mapping's offset is the
 * recorded address of its reference symbol (machine__create_kernel_maps). */
static void find_moved(struct profile_kernel *kernel)
{
	struct symbol symbol;

	if (kernel->reference && kernel->reference_address &&
	    symbols_find_name(kernel->symbols, kernel->reference, &symbol))
		kernel->moved = symbol.start - kernel->reference_address;
}

struct symbols *profile_kernel_symbols(struct profile_kernel *kernel,
				       const struct profile_options *options)
{
	if (kernel->tried)
		return kernel->symbols;
	kernel->tried = true;
	if ((options->kallsyms || options->vmlinux) && !kernel->host)
		load_given(kernel, options);
	else if (kernel->build_id_size)
		load_found(kernel, options);
	else
		error_set(
			-ENOENT,
			"the recording has no build id of the kernel: give its symbols with --kallsyms or "
			"--vmlinux");
	if (kernel->symbols)
		find_moved(kernel);
	else
		snprintf(kernel->note, sizeof(kernel->note), "%.500s", error_message());
	return kernel->symbols;
}

static bool has_all_functions(const char *path)
{
	struct elf_kind kind;

	return elf_kind_of(path, &kind) && kind.all;
}

/* By its mode, or by a link: root's commands are confined (SECURITY.md). */
static void warn_unreadable(const char *path, const char *symfs)
{
	static bool warned;

	if (warned || !symfs || strncmp(path, symfs, strlen(symfs)) != 0)
		return;
	log_warning(
		"cannot open %s: %s (root follows no links that lead out of --symfs: copy the file)",
		path, strerror(EACCES));
	warned = true;
}

/* Loads symbols from a separate file of the recorded build, else from PATH. True: they are not only
 * the exported functions. */
static bool load_elf(struct profile_image *image, const struct profile_options *options,
		     const char *path)
{
	char debug[SYMBOL_PATH_MAX];
	int error;

	for (size_t i = 0; symbol_paths_debug(i, debug, &options->sources, image_build_id(image));
	     i++)
		if (has_all_functions(debug) &&
		    !elf_symbols_load_separate(&image->symbols, debug, path, image_build_id(image)))
			return true;
	error = elf_symbols_load(&image->symbols, path, ELF_FILE_OFFSETS, image_build_id(image));
	if (error == -EACCES)
		warn_unreadable(path, options->sources.symfs);
	return !error && has_all_functions(path);
}

bool profile_image_is_build(const char *path, struct span build_id)
{
	struct elf_file file;
	bool same;

	if (elf_file_open(&file, path))
		return false;
	same = !elf_file_check(&file, build_id);
	elf_file_close(&file);
	return same;
}

static bool find_file(char *path, const struct profile_image *image,
		      const struct profile_options *options, bool (*fits)(const char *path))
{
	struct span build_id = image_build_id(image);

	for (size_t i = 0; symbol_paths_elf(i, path, &options->sources, image->path, build_id); i++)
		if (profile_image_is_build(path, build_id) && (!fits || fits(path)))
			return true;
	return false;
}

bool profile_image_file(const struct profile_image *image, const struct profile_options *options,
			char *path)
{
	return find_file(path, image, options, has_all_functions) ||
	       find_file(path, image, options, NULL) ||
	       debuginfod_find(options->sources.debuginfod, DEBUGINFOD_EXECUTABLE, path,
			       image_build_id(image));
}

/* Servers only have files. A separate file's symbols are useless without the segments of the file
 * itself. */
static bool load_remote(struct profile_image *image, const struct profile_options *options)
{
	char path[SYMBOL_PATH_MAX], debug[SYMBOL_PATH_MAX];

	if (!options->sources.debuginfod || *image->path != '/' ||
	    !profile_image_file(image, options, path))
		return false;
	return (debuginfod_find(options->sources.debuginfod, DEBUGINFOD_DEBUGINFO, debug,
				image_build_id(image)) &&
		!elf_symbols_load_separate(&image->symbols, debug, path, image_build_id(image))) ||
	       load_elf(image, options, path);
}

/* False: PATH lacks functions; its symbols go to EXPORTED unless that is set. */
static bool load_all(struct profile_image *image, const struct profile_options *options,
		     const char *path, struct symbols **exported)
{
	if (load_elf(image, options, path))
		return true;
	if (!*exported)
		*exported = image->symbols;
	else
		symbols_free(image->symbols);
	image->symbols = NULL;
	return false;
}

bool profile_image_fetch(struct profile_image *image, const struct profile_options *options,
			 char *path)
{
	if (image->fetched || image->kind != IMAGE_FILE || *image->path != '/')
		return false;
	image->fetched = true;
	return disk_symbols_fetch_file(path, options->disks, options->disk_count,
				       options->sources.buildid_dir, image->path,
				       image_build_id(image));
}

/* Like perf, uses a file with exported functions only if there is no other. */
static void load_file(struct profile_image *image, const struct profile_options *options)
{
	char path[SYMBOL_PATH_MAX];
	struct symbols *exported = NULL;
	bool all = false;

	image->tried = true;
	if (!image->build_id_size || image->kind != IMAGE_FILE)
		return;
	for (size_t i = 0; !all && symbol_paths_elf(i, path, &options->sources, image->path,
						    image_build_id(image));
	     i++)
		all = load_all(image, options, path, &exported);
	if (!all && profile_image_fetch(image, options, path))
		all = load_all(image, options, path, &exported);
	if (!all)
		load_remote(image, options);
	if (image->symbols)
		symbols_free(exported);
	else
		image->symbols = exported;
}

/* True for files that kvmscope added. A guest program may claim a module's build id, and in module
 * files that perf adds, addresses restart with each section. */
static bool is_module_file(const char *path)
{
	struct elf_kind kind;

	return elf_kind_of(path, &kind) && kind.relocatable && kind.symbols_only;
}

/* A module that shared addresses with others has its own file in the cache, with addresses relative
 * to START. */
static bool module_file_symbol(struct profile_image *image, const struct profile_options *options,
			       uint64_t start, uint64_t address, struct symbol *symbol)
{
	char path[SYMBOL_PATH_MAX];

	if (!image->tried && image->build_id_size &&
	    symbol_paths_cached(path, options->sources.buildid_dir, image_build_id(image), "elf") &&
	    is_module_file(path))
		elf_symbols_load(&image->symbols, path, ELF_VIRTUAL_ADDRESSES,
				 image_build_id(image));
	image->tried = true;
	if (!image->symbols || !symbols_find(image->symbols, address - start, symbol))
		return false;
	symbol->start += start;
	symbol->end += start;
	return true;
}

static bool kernel_symbol(struct profile_image *image, const struct profile_options *options,
			  uint64_t address, uint64_t *own, struct symbol *symbol)
{
	struct symbols *symbols = profile_kernel_symbols(image->kernel, options);

	*own = address;
	if (!symbols || (image->kind == IMAGE_MODULE && !image->kernel->has_modules))
		return false;
	if (image->kind == IMAGE_KERNEL)
		*own += image->kernel->moved;
	if (!symbols_find(symbols, *own, symbol))
		return false;
	if (image->kind == IMAGE_KERNEL)
		return !symbol->module;
	/* Modules do not move with the kernel: their addresses are of another boot. */
	return symbol->module && !strcmp(symbol->module, image->module) && !image->kernel->moved;
}

bool profile_image_symbol(struct profile_image *image, const struct profile_options *options,
			  uint64_t start, uint64_t offset, uint64_t address, uint64_t *own,
			  struct symbol *symbol)
{
	*own = address;
	if (image->kind == IMAGE_CODE) {
		*symbol =
			(struct symbol){ .start = start, .end = address + 1, .name = image->name };
		return true;
	}
	if (image->kind == IMAGE_MODULE &&
	    module_file_symbol(image, options, start, address, symbol))
		return true;
	if (image->kind == IMAGE_KERNEL || image->kind == IMAGE_MODULE)
		return kernel_symbol(image, options, address, own, symbol);
	*own = image->kind == IMAGE_FILE ? address - start + offset : address;
	if (!image->tried)
		load_file(image, options);
	return image->symbols && symbols_find(image->symbols, *own, symbol);
}
