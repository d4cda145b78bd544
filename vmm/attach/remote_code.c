/* SPDX-License-Identifier: Apache-2.0 */
/* Finds instructions for remote calls, in mapped files and in the vDSO. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/remote_call.h"

#define PAGE  4096u
#define PIECE (1u << 20)
/* Documentation/admin-guide/mm/pagemap.rst */
#define PAGE_PRESENT (1ull << 63)
/* Limits of the search: a process can map any amount. The C library, which has both
 * instructions, is about a hundredth of that. */
#define MAPPING_MAX  (64ull << 20)
#define SEARCHED_MAX (512ull << 20)

struct mapping {
	uint64_t hva, size;
	unsigned int major, minor; /* of its file system */
};

/* Code of a file, which does not change, unlike code of JIT compilers. */
static bool parse_code(const char *line, struct mapping *mapping)
{
	uint64_t end;
	char rights[5], path[2];

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*s %x:%x %*s %1s", &mapping->hva, &end,
		   rights, &mapping->major, &mapping->minor, path) != 6 ||
	    mapping->hva >= end || strncmp(rights, "r-xp", 4) != 0 ||
	    (*path != '/' && !strstr(line, "[vdso]")))
		return false;
	mapping->size = end - mapping->hva;
	return true;
}

/* True on a file system whose pages are supplied by another process, perhaps never
 * (proc_pid_mountinfo(5)). */
static bool is_on_fuse(const struct vmm_process *process, const struct mapping *mapping)
{
	FILE *mounts = proc_open_file(process->directory, "mountinfo");
	unsigned int major, minor;
	char *line = NULL;
	const char *type;
	bool is = !mounts;
	size_t room = 0;

	while (!is && getline(&line, &room, mounts) > 0) {
		type = strstr(line, " - ");
		is = type && sscanf(line, "%*s %*s %u:%u", &major, &minor) == 2 &&
		     major == mapping->major && minor == mapping->minor &&
		     !strncmp(type + 3, "fuse", strlen("fuse"));
	}
	free(line);
	if (mounts)
		fclose(mounts);
	return is;
}

static bool is_found(const struct remote_code *code)
{
	return code->call && code->sigreturn;
}

struct search {
	const struct vmm_process *process;
	struct remote_code *code;
	int memory_fd, pagemap_fd;
	bool waits;                   /* also for pages on a disk */
	uint8_t bytes[PIECE];         /* buffer */
	uint64_t pages[PIECE / PAGE]; /* their pagemap entries */
};

/* Skips pages, from FROM on, that are in memory, or that are not. */
static size_t skip_pages(const struct search *search, size_t from, size_t count, bool present)
{
	while (from < count && !(search->pages[from] & PAGE_PRESENT) == !present)
		from++;
	return from;
}

static void search_bytes(struct search *search, uint64_t hva, size_t size)
{
	ssize_t length = pread(search->memory_fd, search->bytes, size, (off_t)hva);

	if (length > 0)
		remote_code_search(search->code, search->bytes, (size_t)length, hva);
}

static void search_present(struct search *search, uint64_t hva, size_t size)
{
	size_t count = size / PAGE, end;

	if (pread(search->pagemap_fd, search->pages, count * sizeof(search->pages[0]),
		  (off_t)(hva / PAGE * sizeof(search->pages[0]))) !=
	    (ssize_t)(count * sizeof(search->pages[0])))
		return;
	for (size_t first = skip_pages(search, 0, count, false);
	     first < count && !is_found(search->code);
	     first = skip_pages(search, end, count, false)) {
		end = skip_pages(search, first, count, true);
		search_bytes(search, hva + first * PAGE, (end - first) * PAGE);
	}
}

/* Pieces overlap by a page: instructions may cross the boundary. */
static void search_mapping(struct search *search, const struct mapping *mapping)
{
	for (uint64_t done = 0; done < mapping->size && !is_found(search->code);
	     done += PIECE - PAGE) {
		uint64_t left = mapping->size - done;
		size_t size = left < PIECE ? (size_t)left : PIECE;

		if (search->waits)
			search_bytes(search, mapping->hva + done, size);
		else
			search_present(search, mapping->hva + done, size);
	}
}

static void search_maps(struct search *search, FILE *maps)
{
	uint64_t left = SEARCHED_MAX;
	struct mapping mapping;
	char *line = NULL;
	size_t room = 0;

	while (!is_found(search->code) && left && getline(&line, &room, maps) > 0) {
		if (!parse_code(line, &mapping) ||
		    (search->waits && is_on_fuse(search->process, &mapping)))
			continue;
		if (mapping.size > MAPPING_MAX)
			mapping.size = MAPPING_MAX;
		if (mapping.size > left)
			mapping.size = left;
		search_mapping(search, &mapping);
		left -= mapping.size;
	}
	free(line);
}

/* Searches pages in memory first, which nearly always suffices. */
static void search_process(struct search *search)
{
	for (int i = 0; i < 2 && !is_found(search->code); i++) {
		FILE *maps = proc_open_file(search->process->directory, "maps");

		search->waits = i;
		if (maps) {
			search_maps(search, maps);
			fclose(maps);
		}
	}
}

int remote_code_find(struct remote_code *code, const struct vmm_process *process)
{
	struct search *search = calloc(1, sizeof(*search));

	*code = (struct remote_code){ 0 };
	if (!search)
		return error_set(-ENOMEM, "no memory for a search");
	search->code = code;
	search->process = process;
	search->memory_fd = openat(process->directory, "mem", O_RDONLY | O_CLOEXEC);
	search->pagemap_fd = openat(process->directory, "pagemap", O_RDONLY | O_CLOEXEC);
	if (search->memory_fd >= 0 && search->pagemap_fd >= 0)
		search_process(search);
	if (search->memory_fd >= 0)
		close(search->memory_fd);
	if (search->pagemap_fd >= 0)
		close(search->pagemap_fd);
	free(search);
	return is_found(code)
		       ? 0
		       : error_set(
				 -ENOTSUP,
				 "process %d has no instructions that can be used for a system call, or "
				 "cannot be read",
				 process->pid);
}
