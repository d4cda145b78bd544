// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/thread_status.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int thread_file_open(const struct vmm_process *process, pid_t tid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "task/%d/%s", tid, name);
	return openat(process->directory, path, O_RDONLY | O_CLOEXEC);
}

/* What follows NAME at the start of a line; NULL: there is no such line. The first line is the
 * thread's name, in which the kernel writes newlines as "\n" (string_escape_str()). */
static const char *value_of(const char *text, const char *name)
{
	const char *line = strstr(text, name);

	return line ? line + strlen(name) : NULL;
}

static unsigned int number_of(const char *text, const char *name)
{
	const char *value = value_of(text, name);

	return value ? (unsigned int)strtoul(value, NULL, 10) : 0;
}

/* A text that does not come to the context switches, near its end, is not whole: what it has not
 * said is not to be taken for absent. Kernels before 5.9 do not count the filters: they are then
 * taken for one. */
bool thread_status_parse(const char *text, struct thread_status *status)
{
	const char *state = value_of(text, "\nState:\t"),
		   *features = value_of(text, "\nx86_Thread_features:\t");

	if (!state || !*state || !value_of(text, "\nnonvoluntary_ctxt_switches:\t"))
		return false;
	*status = (struct thread_status){
		.state = *state,
		.seccomp = number_of(text, "\nSeccomp:\t"),
		.filters = number_of(text, "\nSeccomp_filters:\t"),
		.shadow_stack = features && !strncmp(features, "shstk", strlen("shstk")),
	};
	if (status->seccomp == SECCOMP_MODE_FILTER && !status->filters)
		status->filters = 1;
	return true;
}

bool thread_times_parse(const char *text, struct thread_times *times)
{
	return sscanf(text, "%" SCNu64 " %" SCNu64, &times->ran, &times->waited) == 2;
}

/* To its end; false also if there is no room for it. */
static bool read_text(int fd, char *text, size_t size)
{
	size_t done = 0;
	ssize_t length;

	do {
		length = pread(fd, text + done, size - done, (off_t)done);
		done += length > 0 ? (size_t)length : 0;
	} while (length > 0 && done < size);
	if (length || !done)
		return false;
	text[done] = '\0';
	return true;
}

/* A process may be in 65536 groups, which are listed before what is wanted. */
bool thread_status_read(int fd, struct thread_status *status)
{
	char text[64 << 10];

	return read_text(fd, text, sizeof(text)) && thread_status_parse(text, status);
}

bool thread_times_read(int fd, struct thread_times *times)
{
	char text[128];

	return read_text(fd, text, sizeof(text)) && thread_times_parse(text, times);
}
