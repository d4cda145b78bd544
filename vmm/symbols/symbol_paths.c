/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/symbol_paths.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "shared/read_file.h"
#include "shared/span.h"
#include "vmm/symbols/build_id_cache.h"
#include "vmm/symbols/elf_file.h"

/* perf pads short build ids to 20 bytes with zeros, which are not part of file names. */
static size_t unpadded(struct span build_id)
{
	static const uint8_t zeroes[4];

	return build_id.size == 20 && !memcmp(build_id.data + 16, zeroes, sizeof(zeroes))
		       ? 16
		       : build_id.size;
}

const char *symbol_paths_hex(char *text, struct span build_id)
{
	size_t size = unpadded(build_id);

	*text = '\0';
	for (size_t i = 0; i < size && 2 * i + 2 < BUILD_ID_HEX_MAX; i++)
		sprintf(text + 2 * i, "%02x", build_id.data[i]);
	return text;
}

/* Copies DIRECTORY, or perf's default for NULL, to CACHE, and the build id's digits to HEX. */
static bool find_cache(char *cache, char *hex, const char *directory, struct span build_id)
{
	if (!build_id.size || (!directory && build_id_cache_directory(cache, SYMBOL_PATH_MAX)))
		return false;
	symbol_paths_hex(hex, build_id);
	return !directory || snprintf(cache, SYMBOL_PATH_MAX, "%s", directory) < SYMBOL_PATH_MAX;
}

/* DIRECTORY/.build-id/ab/cdef.../KIND */
static bool cached_path(char *path, const char *directory, struct span build_id, const char *kind)
{
	char hex[BUILD_ID_HEX_MAX], cache[SYMBOL_PATH_MAX];

	return find_cache(cache, hex, directory, build_id) &&
	       snprintf(path, SYMBOL_PATH_MAX, "%s/.build-id/%.2s/%s/%s", cache, hex, hex + 2,
			kind) < SYMBOL_PATH_MAX;
}

bool symbol_paths_boots(char *path, const char *directory, struct span build_id)
{
	char hex[BUILD_ID_HEX_MAX], cache[SYMBOL_PATH_MAX];

	return find_cache(cache, hex, directory, build_id) &&
	       snprintf(path, SYMBOL_PATH_MAX, "%s/[kernel.kcore]/%s", cache, hex) <
		       SYMBOL_PATH_MAX;
}

bool symbol_paths_cached(char *path, const char *directory, struct span build_id, const char *kind)
{
	return cached_path(path, directory, build_id, kind) && file_is_readable(path);
}

bool symbol_paths_installed_debug(char *path, const char *root, struct span build_id)
{
	char hex[BUILD_ID_HEX_MAX];

	symbol_paths_hex(hex, build_id);
	return snprintf(path, SYMBOL_PATH_MAX, "%s/usr/lib/debug/.build-id/%.2s/%s.debug", root,
			hex, hex + 2) < SYMBOL_PATH_MAX;
}

bool symbol_paths_debug(size_t index, char *path, const struct symbol_sources *sources,
			struct span build_id)
{
	if (!sources->symfs)
		index++;
	if (index && sources->cache_only)
		index++;
	switch (index) {
	case 0:
		return symbol_paths_installed_debug(path, sources->symfs, build_id);
	case 1:
		return symbol_paths_installed_debug(path, "", build_id);
	case 2:
		return cached_path(path, sources->buildid_dir, build_id, "debug");
	default:
		return false;
	}
}

/* True for "/a/../b", which no kernel reports. */
static bool has_parent_parts(const char *path)
{
	for (const char *part = path; (part = strstr(part, "/..")); part += 3)
		if (!part[3] || part[3] == '/')
			return true;
	return false;
}

bool symbol_paths_symfs(char *path, const char *symfs, const char *recorded)
{
	return symfs && *recorded == '/' && !has_parent_parts(recorded) &&
	       snprintf(path, SYMBOL_PATH_MAX, "%s%s", symfs, recorded) < SYMBOL_PATH_MAX;
}

bool symbol_paths_elf(size_t index, char *path, const struct symbol_sources *sources,
		      const char *recorded, struct span build_id)
{
	if (!sources->symfs)
		index++;
	switch (index) {
	case 0:
		/* A path that cannot be below it becomes the next candidate, a second time. */
		if (symbol_paths_symfs(path, sources->symfs, recorded))
			return true;
		__attribute__((fallthrough));
	case 1:
		return cached_path(path, sources->buildid_dir, build_id,
				   strcmp(recorded, "[vdso]") ? "elf" : "vdso");
	case 2:
		return !sources->cache_only &&
		       snprintf(path, SYMBOL_PATH_MAX, "%s", recorded) < SYMBOL_PATH_MAX;
	default:
		return false;
	}
}

bool symbol_paths_vmlinux(size_t index, char *path, const struct symbol_sources *sources,
			  struct span build_id)
{
	/* Before and after the kernel's release. */
	static const char *const forms[][2] = { { "/boot/vmlinux-", "" },
						{ "/usr/lib/debug/boot/vmlinux-", "" },
						{ "/lib/modules/", "/build/vmlinux" },
						{ "/usr/lib/debug/lib/modules/", "/vmlinux" } };
	struct utsname name;

	if (index == 0)
		return cached_path(path, sources->buildid_dir, build_id, "elf");
	if (sources->cache_only)
		return false;
	if (index == 1)
		return symbol_paths_installed_debug(path, "", build_id);
	if (index - 2 >= sizeof(forms) / sizeof(forms[0]) || uname(&name))
		return false;
	snprintf(path, SYMBOL_PATH_MAX, "%s%s%s", forms[index - 2][0], name.release,
		 forms[index - 2][1]);
	return true;
}

/* The size of the build id in NOTES; 0 without one. */
static size_t build_id_in_notes(struct span notes, const uint8_t **build_id)
{
	Elf64_Nhdr header;
	uint64_t offset = 0, name, description;

	while (span_copy(notes, offset, &header, sizeof(header))) {
		name = offset + sizeof(header);
		description = name + ((uint64_t)header.n_namesz + 3) / 4 * 4;
		offset = description + ((uint64_t)header.n_descsz + 3) / 4 * 4;
		if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
		    span_contains(notes, description, header.n_descsz) &&
		    !memcmp(notes.data + name, "GNU", 4)) {
			*build_id = notes.data + description;
			return header.n_descsz;
		}
	}
	return 0;
}

size_t symbol_paths_notes_build_id(const char *path, uint8_t *build_id)
{
	uint8_t bytes[4096];
	const uint8_t *found = NULL;
	FILE *file = fopen(path, "re");
	size_t size = file ? fread(bytes, 1, sizeof(bytes), file) : 0;

	if (file)
		fclose(file);
	size = build_id_in_notes(span_of(bytes, size), &found);
	if (!size || size > ELF_BUILD_ID_MAX)
		return 0;
	memcpy(build_id, found, size);
	return size;
}

bool symbol_paths_is_running_kernel(struct span build_id)
{
	uint8_t running[ELF_BUILD_ID_MAX];
	size_t size = symbol_paths_notes_build_id("/sys/kernel/notes", running);

	return size && size == unpadded(build_id) && !memcmp(running, build_id.data, size);
}
