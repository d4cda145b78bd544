// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/thread_stack.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool thread_stack_has(const struct thread_stack *stack, uint64_t rsp)
{
	return rsp >= stack->start && rsp < stack->end;
}

/* A mapping; is it the stack of the first thread? */
static bool parse_line(const char *line, struct thread_stack *mapping, bool *first)
{
	char name[16] = "";

	*mapping = (struct thread_stack){ 0 };
	*first = sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %*s %15s", &mapping->start,
			&mapping->end, name) == 3 &&
		 !strcmp(name, "[stack]");
	return mapping->end > mapping->start;
}

bool thread_stack_parse(struct thread_stack *stack, FILE *maps, uint64_t rsp, uint64_t fs)
{
	bool found = false, first;
	char *line = NULL;
	size_t room = 0;

	while (!found && getline(&line, &room, maps) > 0)
		found = parse_line(line, stack, &first) && thread_stack_has(stack, rsp);
	free(line);
	if (!found)
		*stack = (struct thread_stack){ 0 };
	else
		stack->own = first || (fs > rsp && thread_stack_has(stack, fs));
	return found;
}

static bool points_to_itself(const struct vmm_process *process, uint64_t fs)
{
	int fd = fs && fs <= INT64_MAX ? openat(process->directory, "mem", O_RDONLY | O_CLOEXEC)
				       : -1;
	uint64_t word = 0;
	bool does =
		fd >= 0 && pread(fd, &word, sizeof(word), (off_t)fs) == sizeof(word) && word == fs;

	if (fd >= 0)
		close(fd);
	return does;
}

bool thread_stack_find(struct thread_stack *stack, const struct vmm_process *process, pid_t tid,
		       uint64_t rsp, uint64_t fs)
{
	int fd = openat(process->directory, "maps", O_RDONLY | O_CLOEXEC);
	FILE *maps = fd < 0 ? NULL : fdopen(fd, "r");
	bool found, above;

	if (!maps) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	above = tid != process->pid && points_to_itself(process, fs);
	found = thread_stack_parse(stack, maps, rsp, above ? fs : 0);
	fclose(maps);
	return found;
}
