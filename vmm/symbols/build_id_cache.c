/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/build_id_cache.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/symbols/build_id_cache_files.h"
#include "vmm/symbols/symbol_file.h"

/* perf's names of these entries. */
#define KALLSYMS_ENTRY "/[kernel.kallsyms]/"
#define KCORE_ENTRY    "/[kernel.kcore]/"

/* Marks boots that kvmscope created; others must not be removed. */
#define OUR_MARK ".kvmscope"

static void add_line(struct bytes *to, uint64_t address, char type, const char *name,
		     const char *module)
{
	char start[32];

	bytes_add(to, start,
		  (size_t)snprintf(start, sizeof(start), "%016" PRIx64 " %c ", address, type));
	bytes_add(to, name, strlen(name));
	if (module) {
		bytes_add(to, "\t[", 2);
		bytes_add(to, module, strlen(module));
		bytes_add(to, "]", 1);
	}
	bytes_add(to, "\n", 1);
}

static bool in_modules(const struct kernel_image *image, uint64_t address)
{
	for (size_t i = 0; i < image->module_count; i++)
		if (address - image->modules[i].start < image->modules[i].size &&
		    !(image->shared && image->shared[i]))
			return true;
	return false;
}

/* True for functions in the image, and for the symbol at its end. Data is never sampled. */
static bool is_listed(const struct kernel_image *image, const struct symbol *symbol,
		      bool with_modules)
{
	if (!build_id_cache_name_is_plain(symbol->name) || !strchr("tTwW", symbol->type))
		return false;
	if (!symbol->module)
		return symbol->start - image->start <= image->end - image->start;
	return with_modules && build_id_cache_name_is_plain(symbol->module) &&
	       in_modules(image, symbol->start);
}

/* perf checks the address of _text, and finds the kernel's part of the kcore by _stext. */
static void add_anchor(const struct kernel_image *image, struct bytes *to, const char *name)
{
	struct symbol symbol;

	if (!symbols_find_name(image->symbols, name, &symbol) || symbol.start != image->start)
		add_line(to, image->start, 'T', name, NULL);
}

static void add_symbols(const struct kernel_image *image, struct bytes *to,
			const struct symbols *symbols, bool with_modules)
{
	size_t count = symbols_count(symbols);
	struct symbol symbol;

	for (size_t i = 0; i < count; i++) {
		symbols_at(symbols, i, &symbol);
		if (is_listed(image, &symbol, with_modules))
			add_line(to, symbol.start, symbol.type, symbol.name, symbol.module);
	}
}

static int make_kallsyms(const struct kernel_image *image, bool with_modules, struct bytes *to)
{
	struct symbol symbol;

	if (with_modules)
		add_line(to, image->start, 'A', BUILD_ID_CACHE_ANCHOR, NULL);
	add_anchor(image, to, "_text");
	if (!symbols_find_name(image->symbols, "_stext", &symbol))
		add_anchor(image, to, "_stext");
	add_symbols(image, to, image->symbols, with_modules);
	if (with_modules && image->unloaded)
		add_symbols(image, to, image->unloaded, true);
	return to->failed ? error_set(-ENOMEM, "no memory for the kernel's symbols") : 0;
}

/* In the form of /proc/modules, with the fields that perf reads. */
static int make_modules(const struct kernel_image *image, struct bytes *to)
{
	char line[160];

	for (size_t i = 0; i < image->module_count; i++) {
		const struct guest_module *module = &image->modules[i];

		if (!build_id_cache_name_is_plain(module->name))
			continue;
		bytes_add(to, line,
			  (size_t)snprintf(line, sizeof(line),
					   "%s %" PRIu64 " 0 - Live 0x%016" PRIx64 "\n",
					   module->name, module->size, module->start));
	}
	return to->failed ? error_set(-ENOMEM, "no memory for the kernel's modules") : 0;
}

int build_id_cache_add_kernel(const char *directory, const struct kernel_image *image)
{
	char id[41], path[PATH_MAX];
	struct bytes kallsyms = { 0 };
	int error;

	cache_id_text(span_of(image->build_id, image->build_id_size), id);
	error = cache_path(path, directory, KALLSYMS_ENTRY, id, NULL);
	if (!error)
		error = cache_make_directory(path);
	if (!error && !cache_file_exists(path, "kallsyms")) {
		error = make_kallsyms(image, false, &kallsyms);
		if (!error)
			error = cache_write_file(path, "kallsyms", CACHE_MODE_PUBLIC, &kallsyms);
		free(kallsyms.data);
	}
	return error ? error : cache_link_build(directory, "[kernel.kallsyms]", id);
}

/* perf's name for a boot: the time in hundredths of a second; the first unused one. */
static int make_boot_directory(const char *entry, char path[PATH_MAX])
{
	struct timespec moment;
	struct tm calendar;
	char name[32];
	int error;

	for (unsigned int attempt = 0; attempt < 1000; attempt++) {
		clock_gettime(CLOCK_REALTIME, &moment);
		localtime_r(&moment.tv_sec, &calendar);
		strftime(name, sizeof(name), "%Y%m%d%H%M%S", &calendar);
		snprintf(name + strlen(name), 3, "%02u",
			 (unsigned int)(moment.tv_nsec / 10000000) % 100);
		error = cache_path(path, entry, "/", name, NULL);
		if (error)
			return error;
		if (!mkdir(path, 0755))
			return cache_write_file(path, OUR_MARK, CACHE_MODE_OF_BOOT,
						&(struct bytes){ 0 });
		if (errno != EEXIST)
			return error_set(-errno, "cannot create the directory %s: %m", path);
		usleep(2000);
	}
	return error_set(-EEXIST, "cannot create a directory in %s: too many at a time", entry);
}

static int visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* Finds a complete boot equal to this one: a guest without KASLR, or one profiled before. A boot
 * without its code does not count, because another process may be writing it. */
static bool find_complete_boot(const char *entry, const struct bytes *kallsyms,
			       const struct bytes *modules, char path[PATH_MAX])
{
	struct dirent **names;
	int count = scandir(entry, &names, visible, alphasort);
	bool found = false;

	for (int i = 0; i < count; i++) {
		char candidate[PATH_MAX];

		if (!found && !cache_path(candidate, entry, "/", names[i]->d_name, NULL) &&
		    cache_file_exists(candidate, "kcore") &&
		    cache_file_is(candidate, "modules", modules) &&
		    cache_file_is(candidate, "kallsyms", kallsyms)) {
			found = true;
			memcpy(path, candidate, sizeof(candidate));
		}
		free(names[i]);
	}
	if (count >= 0)
		free(names);
	return found;
}

/* The symbols come first: if the modules match, perf expects the symbols to match. */
static int write_boot(const struct bytes *kallsyms, const struct bytes *modules,
		      const struct build_id_cache_boot *boot)
{
	int error = cache_write_file(boot->path, "kallsyms", CACHE_MODE_OF_BOOT, kallsyms);

	return error ? error : cache_write_file(boot->path, "modules", CACHE_MODE_OF_BOOT, modules);
}

static int store_boot(const char *entry, const struct bytes *kallsyms, const struct bytes *modules,
		      struct build_id_cache_boot *boot)
{
	int error = 0;

	if (*boot->path && cache_file_is(boot->path, "modules", modules) &&
	    cache_file_is(boot->path, "kallsyms", kallsyms))
		return 0;
	if (boot->complete) { /* not ours, and no longer equal */
		*boot->path = '\0';
		boot->complete = false;
	}
	if (!*boot->path && find_complete_boot(entry, kallsyms, modules, boot->path)) {
		boot->complete = true;
		return 0;
	}
	if (*boot->path) /* ours, unless it was removed meanwhile */
		error = cache_make_directory(boot->path);
	else
		error = make_boot_directory(entry, boot->path);
	if (error)
		*boot->path = '\0';
	return error ? error : write_boot(kallsyms, modules, boot);
}

static int boot_entry(const char *directory, const struct kernel_image *image, char entry[PATH_MAX])
{
	char id[41];

	cache_id_text(span_of(image->build_id, image->build_id_size), id);
	return cache_path(entry, directory, KCORE_ENTRY, id, NULL);
}

int build_id_cache_add_boot(const char *directory, const struct kernel_image *image,
			    struct build_id_cache_boot *boot)
{
	struct bytes kallsyms = { 0 }, modules = { 0 };
	char entry[PATH_MAX];
	int error = boot_entry(directory, image, entry);

	if (!error)
		error = cache_make_directory(entry);
	if (!error)
		error = make_kallsyms(image, true, &kallsyms);
	if (!error)
		error = make_modules(image, &modules);
	if (!error)
		error = store_boot(entry, &kallsyms, &modules, boot);
	free(kallsyms.data);
	free(modules.data);
	return error;
}

int build_id_cache_link_guest(const char *mount, int pid, const struct build_id_cache_boot *boot)
{
	char name[16], directory[PATH_MAX], path[PATH_MAX];
	int error;

	snprintf(name, sizeof(name), "/%d", pid);
	error = cache_path(directory, mount, name, NULL);
	if (!error)
		error = cache_make_directory(directory);
	if (!error)
		error = cache_path(path, directory, "/proc", NULL);
	if (error)
		return error;
	unlink(path);
	if (symlink(boot->path, path))
		return error_set(-errno, "cannot create the link %s: %m", path);
	return 0;
}

static void remove_file(const char *boot, const char *name)
{
	char path[PATH_MAX];

	if (!cache_path(path, boot, "/", name, NULL))
		unlink(path);
}

/* True for boots that kvmscope created; others were stored on purpose. */
static bool is_ours(const char *boot)
{
	char mark[PATH_MAX];

	return !cache_path(mark, boot, "/" OUR_MARK, NULL) && !access(mark, F_OK);
}

/* Removes the code of older boots, which has most of the bytes, and later their symbols. */
static void trim_boot(const char *boot, int newer)
{
	if (newer >= BUILD_ID_CACHE_CODE_KEPT)
		remove_file(boot, "kcore");
	if (newer < BUILD_ID_CACHE_BOOTS_KEPT)
		return;
	remove_file(boot, "modules");
	remove_file(boot, "kallsyms");
	remove_file(boot, OUR_MARK);
	rmdir(boot);
}

static void remove_old_boots(const char *entry)
{
	struct dirent **names;
	int count = scandir(entry, &names, visible, alphasort), newer = 0;

	for (int i = count - 1; i >= 0; i--) {
		char boot[PATH_MAX];

		if (!cache_path(boot, entry, "/", names[i]->d_name, NULL) && is_ours(boot))
			trim_boot(boot, newer++);
		free(names[i]);
	}
	if (count >= 0)
		free(names);
}

static bool modules_overlap(const struct kernel_image *image)
{
	for (size_t i = 0; i < image->module_count; i++)
		if (image->shared && image->shared[i])
			return true;
	return false;
}

static int write_code(const struct kernel_image *image, const struct guest_view *view,
		      const struct guest_paging *paging, struct build_id_cache_boot *boot)
{
	struct cache_file file;
	int error = cache_file_begin(&file, boot->path, "kcore", CACHE_MODE_OF_BOOT);

	if (!error)
		error = cache_file_end(&file, kcore_write(file.fd, image, view, paging));
	boot->complete = !error;
	return error;
}

int build_id_cache_add_code(const char *directory, const struct kernel_image *image,
			    const struct guest_view *view, const struct guest_paging *paging,
			    struct build_id_cache_boot *boot)
{
	char entry[PATH_MAX];
	int error;

	if (boot->complete || !*boot->path)
		return 0;
	error = modules_overlap(image) ? 0 : write_code(image, view, paging, boot);
	if (!error)
		error = boot_entry(directory, image, entry);
	if (!error)
		remove_old_boots(entry);
	return error;
}

static void add_functions(const struct guest_module *module, const struct symbols *from,
			  struct symbol_file *file)
{
	size_t count = from ? symbols_count(from) : 0;
	struct symbol symbol;

	for (size_t i = 0; i < count; i++) {
		symbols_at(from, i, &symbol);
		if (!symbol.module || strcmp(symbol.module, module->name) != 0 ||
		    !strchr("tTwW", symbol.type) || symbol.start - module->start >= module->size ||
		    !build_id_cache_name_is_plain(symbol.name))
			continue;
		symbol_file_add(file, symbol.name, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
				symbol.start - module->start, symbol.end - symbol.start);
	}
}

/*
 * The functions of MODULE in FIRST, or else in SECOND (either may be NULL), as an ELF file:
 * addresses are relative to the module's text, so it serves wherever that build is loaded. TO is
 * empty without functions or build id.
 */
static void make_module_file(struct bytes *to, const struct guest_module *module,
			     const struct symbols *first, const struct symbols *second)
{
	const struct symbol_file_head head = { .type = ET_REL,
					       .build_id = module->build_id,
					       .build_id_size = module->build_id_size,
					       .text_size = module->size };
	struct symbol_file file;
	size_t none;

	symbol_file_begin(&file);
	none = file.table.size;
	add_functions(module, first, &file);
	if (file.table.size == none)
		add_functions(module, second, &file);
	symbol_file_end(&file, &head, to);
}

/* perf reads a kernel file without a path as a symbol table because of this name
 * (dso__is_kallsyms()). */
static int link_table(const char *path)
{
	char table[PATH_MAX];
	int error = cache_path(table, path, "/kallsyms", NULL);

	if (!error && symlink("elf", table) && errno != EEXIST)
		error = error_set(-errno, "cannot create the link %s: %m", table);
	return error;
}

static int add_module(const char *directory, const struct guest_module *module,
		      const struct bytes *file)
{
	char id[41], entry[sizeof(module->name) + 2], path[PATH_MAX];
	int error;

	cache_id_text(span_of(module->build_id, module->build_id_size), id);
	snprintf(entry, sizeof(entry), "[%s]", module->name);
	error = cache_path(path, directory, "/", entry, "/", id, NULL);
	if (!error)
		error = cache_make_directory(path);
	if (!error && (!cache_file_exists(path, "elf") || cache_file_is_outdated(path, "elf")))
		error = cache_write_file(path, "elf", CACHE_MODE_PUBLIC, file);
	if (!error)
		error = link_table(path);
	return error ? error : cache_link_build(directory, entry, id);
}

int build_id_cache_add_modules(const char *directory, const struct kernel_image *image)
{
	int error = 0;

	if (!modules_overlap(image))
		return 0;
	for (size_t i = 0; i < image->module_count && !error; i++) {
		struct bytes file;

		if (!build_id_cache_name_is_plain(image->modules[i].name))
			continue;
		make_module_file(&file, &image->modules[i], image->symbols, image->unloaded);
		if (file.failed)
			error = error_set(-ENOMEM, "no memory for the symbols of modules");
		else if (file.size)
			error = add_module(directory, &image->modules[i], &file);
		free(file.data);
	}
	return error;
}
