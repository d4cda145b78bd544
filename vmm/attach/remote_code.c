// SPDX-License-Identifier: Apache-2.0
/* Where the instructions of remote calls are: in what is mapped of files, and in the kernel's vDSO. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/attach/remote_call.h"

#define PIECE   (1u << 20)
#define OVERLAP 16u /* longer than any of the instructions */
/* Bytes that are searched: what a process has mapped is its own choice, and may have no end. The C library,
 * which has both, is a hundredth of that. */
#define MAPPING_MAX  (64ull << 20)
#define SEARCHED_MAX (512ull << 20)

/* Code of a file, which stays as it is; not what a compiler in the process made. */
static bool parse_code(const char *line, uint64_t *hva, uint64_t *size)
{
	uint64_t end;
	char rights[5], path[2];

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %*s %1s", hva, &end, rights, path) != 4 ||
	    *hva >= end || strncmp(rights, "r-xp", 4) != 0 || (*path != '/' && !strstr(line, "[vdso]")))
		return false;
	*size = end - *hva;
	return true;
}

static bool is_found(const struct remote_code *code)
{
	return code->call && code->sigreturn;
}

static void search(struct remote_code *code, int memory_fd, uint64_t hva, uint64_t size, uint8_t *bytes)
{
	for (uint64_t done = 0; done < size && !is_found(code); done += PIECE - OVERLAP) {
		uint64_t left = size - done;
		ssize_t length =
			pread(memory_fd, bytes, left < PIECE ? (size_t)left : PIECE, (off_t)(hva + done));

		if (length <= 0)
			return;
		remote_code_search(code, bytes, (size_t)length, hva + done);
	}
}

static void search_maps(struct remote_code *code, FILE *maps, int memory_fd, uint8_t *bytes)
{
	uint64_t hva, size, left = SEARCHED_MAX;
	char *line = NULL;
	size_t room = 0;

	while (!is_found(code) && left && getline(&line, &room, maps) > 0) {
		if (!parse_code(line, &hva, &size))
			continue;
		if (size > MAPPING_MAX)
			size = MAPPING_MAX;
		if (size > left)
			size = left;
		search(code, memory_fd, hva, size, bytes);
		left -= size;
	}
	free(line);
}

int remote_code_find(struct remote_code *code, const struct vmm_process *process)
{
	int maps_fd = openat(process->directory, "maps", O_RDONLY | O_CLOEXEC);
	int memory_fd = openat(process->directory, "mem", O_RDONLY | O_CLOEXEC);
	FILE *maps = maps_fd < 0 ? NULL : fdopen(maps_fd, "r");
	uint8_t *bytes = malloc(PIECE);

	*code = (struct remote_code){ 0 };
	if (maps && memory_fd >= 0 && bytes)
		search_maps(code, maps, memory_fd, bytes);
	free(bytes);
	if (maps)
		fclose(maps);
	else if (maps_fd >= 0)
		close(maps_fd);
	if (memory_fd >= 0)
		close(memory_fd);
	return is_found(code) ? 0
			      : error_set(-ENOTSUP,
					  "process %d has no instructions that can be borrowed for a system "
					  "call, or can not be read",
					  process->pid);
}
