/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/sysroot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/report/symbolizer_state.h"
#include "vmm/symbols/symbol_paths.h"

static bool is_empty(const char *directory)
{
	DIR *entries = opendir(directory);
	size_t count = 0;

	while (entries && readdir(entries))
		count++;
	if (entries)
		closedir(entries);
	return entries && count <= 2; /* . and .. */
}

static int make_root(const char *directory)
{
	if (!mkdir(directory, 0755))
		return 0;
	if (errno != EEXIST)
		return error_set(-errno, "cannot create the directory %s: %m", directory);
	return is_empty(directory)
		       ? 0
		       : error_set(-ENOTEMPTY,
				   "%s must be a new or an empty directory, for one recording",
				   directory);
}

/* Creates the directories above PATH. */
static int make_parents(char *path, size_t root_size)
{
	for (char *slash = strchr(path + root_size + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		int failed;

		*slash = '\0';
		failed = mkdir(path, 0755) && errno != EEXIST ? errno : 0;
		*slash = '/';
		if (failed)
			return error_set(-failed, "cannot create the directories of %s: %s", path,
					 strerror(failed));
	}
	return 0;
}

/* As in /proc/kallsyms; names with blanks would be read as something else. */
static bool is_word(const char *name)
{
	for (; *name; name++)
		if (*name <= ' ' || *name >= 127)
			return false;
	return true;
}

/* perfparser extends each symbol to the next one, so a gap gets a symbol of its own. Modules have
 * the addresses of the boot. */
static void put_symbols(const struct profile_kernel *kernel, FILE *to)
{
	size_t count = symbols_count(kernel->symbols);
	uint64_t covered = 0; /* table address */
	struct symbol symbol;

	for (size_t i = 0; i < count; i++) {
		symbols_at(kernel->symbols, i, &symbol);
		if (!is_word(symbol.name) || (symbol.module && kernel->moved))
			continue;
		if (covered && covered < symbol.start)
			fprintf(to, "%016" PRIx64 " t [unknown]\n", covered - kernel->moved);
		fprintf(to, "%016" PRIx64 " %c %s", symbol.start - kernel->moved, symbol.type,
			symbol.name);
		if (symbol.module)
			fprintf(to, "\t[%s]", symbol.module);
		fputc('\n', to);
		covered = symbol.end > covered ? symbol.end : covered;
	}
	if (covered != UINT64_MAX)
		fprintf(to, "%016" PRIx64 " t [unknown]\n", covered - kernel->moved);
}

static int write_kallsyms(const char *path, const struct profile_kernel *kernel)
{
	FILE *to = fopen(path, "wxe");
	bool failed;

	if (!to)
		return error_set(-errno, "cannot create %s: %m", path);
	put_symbols(kernel, to);
	failed = ferror(to);
	if (fclose(to) || failed)
		return error_set(-EIO, "cannot write %s: %m", path);
	return 0;
}

/* The same file by both names. */
static int add_kernel(const char *root, const struct profile_kernel *kernel)
{
	char path[SYMBOL_PATH_MAX], other[SYMBOL_PATH_MAX], hex[BUILD_ID_HEX_MAX];
	int error;

	if (snprintf(path, sizeof(path), "%s/proc/kallsyms", root) >= (int)sizeof(path) ||
	    snprintf(other, sizeof(other), "%s/usr/lib/debug/[kernel.kallsyms]/%s/kallsyms", root,
		     symbol_paths_hex(hex, kernel_build_id(kernel))) >= (int)sizeof(other))
		return error_set(-ENAMETOOLONG, "%s is too long", root);
	error = make_parents(path, strlen(root));
	if (!error)
		error = make_parents(other, strlen(root));
	if (!error)
		error = write_kallsyms(path, kernel);
	if (error || !kernel->build_id_size || !link(path, other))
		return error;
	/* EXDEV: Landlock */
	return errno == EXDEV ? write_kallsyms(other, kernel)
			      : error_set(-errno, "cannot create %s: %m", other);
}

static int copy_content(int from, int to, const char *path)
{
	ssize_t size;

	do
		size = sendfile(to, from, NULL, 1 << 20);
	while (size > 0);
	return size ? error_set(-errno, "cannot write %s: %m", path) : 0;
}

/* 1: PATH exists already, and is empty now. */
static int copy_file(const char *from_path, const char *path)
{
	int from = open(from_path, O_RDONLY | O_CLOEXEC), to, error;

	if (from < 0)
		return error_set(-errno, "cannot open %s: %m", from_path);
	to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (to < 0) {
		close(from);
		return errno == EEXIST && !truncate(path, 0)
			       ? 1
			       : error_set(-errno, "cannot create %s: %m", path);
	}
	error = copy_content(from, to, path);
	close(from);
	return close(to) && !error ? error_set(-errno, "cannot write %s: %m", path) : error;
}

static int add_debug(const char *root, const struct symbolizer *symbolizer,
		     const struct profile_image *image)
{
	const struct symbol_sources *sources = &symbolizer->options.sources;
	char from[SYMBOL_PATH_MAX], path[SYMBOL_PATH_MAX];
	struct span build_id = image_build_id(image);
	int error;

	for (size_t i = 0; symbol_paths_debug(i, from, sources, build_id); i++) {
		if (!profile_image_is_build(from, build_id) ||
		    !symbol_paths_installed_debug(path, root, build_id))
			continue;
		error = make_parents(path, strlen(root));
		if (!error)
			error = copy_file(from, path);
		return error < 0 ? error : 0;
	}
	return 0;
}

/* A recorded path is any text of the guest; one that cannot be a file here is missing. */
static int add_image(const char *root, const struct symbolizer *symbolizer,
		     const struct profile_image *image, struct sysroot_counts *counts)
{
	char from[SYMBOL_PATH_MAX], path[SYMBOL_PATH_MAX];
	int copied;

	if (!image->tried || image->kind != IMAGE_FILE || *image->path != '/')
		return 0;
	if (!symbol_paths_symfs(path, root, image->path) ||
	    !profile_image_file(image, &symbolizer->options, from) ||
	    make_parents(path, strlen(root))) {
		counts->missing++;
		return 0;
	}
	copied = copy_file(from, path);
	counts->found += copied == 0;
	counts->replaced += copied > 0;
	return copied ? copied < 0 ? copied : 0 : add_debug(root, symbolizer, image);
}

static int add_all(const char *root, struct symbolizer *symbolizer, struct sysroot_counts *counts)
{
	int error = 0;
	bool found = false;

	/* There is room for one kernel: the guest's is the only one with samples. */
	for (size_t i = 0; i < 2 && !error; i++) {
		const struct profile_kernel *kernel = &symbolizer->kernels[i];

		counts->missing += kernel->tried && !kernel->symbols;
		if (!kernel->symbols || found)
			continue;
		found = true;
		counts->found++;
		error = add_kernel(root, kernel);
	}
	for (size_t i = 0; i < symbolizer->images.capacity && !error; i++)
		if (symbolizer->images.slots[i].item)
			error = add_image(root, symbolizer, symbolizer->images.slots[i].item,
					  counts);
	return error;
}

int sysroot_write(const struct profile_options *options, const char *directory,
		  struct sysroot_counts *counts)
{
	struct symbolizer *symbolizer;
	int error = symbolizer_open(&symbolizer, options);

	memset(counts, 0, sizeof(*counts));
	if (error)
		return error;
	error = symbolizer_run(symbolizer, NULL, NULL);
	if (!error)
		error = make_root(directory);
	if (!error)
		error = add_all(directory, symbolizer, counts);
	symbolizer_close(symbolizer);
	return error;
}
