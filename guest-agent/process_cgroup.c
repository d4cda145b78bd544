// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/process_cgroup.h"

#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "guest-agent/timing.h"

#define NOTED_MAX 64u

/* A process that runs a new program. */
struct noted {
	pid_t pid;
	uint64_t time; /* ns, of clock_raw(): since then */
};

static struct {
	struct noted noted[NOTED_MAX]; /* in order */
	unsigned int count;
	uint64_t begun; /* ms: the second that TOLD is of */
	unsigned int told;
} cgroups;

/* Where the unified hierarchy is mounted, by itself or beside those of version 1. */
static const char *const roots[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };

/* Only directories of cgroup2 have this file in every one. */
static bool is_unified(const char *directory)
{
	char path[CGROUP_PATH_MAX + 64];
	struct stat status;

	snprintf(path, sizeof(path), "%s/cgroup.controllers", directory);
	return !stat(path, &status);
}

static bool find_id(struct cgroup *cgroup)
{
	char directory[CGROUP_PATH_MAX + 32];
	struct stat status;

	for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
		snprintf(directory, sizeof(directory), "%s%s", roots[i], cgroup->path);
		if (is_unified(directory) && !stat(directory, &status)) {
			cgroup->id = status.st_ino;
			return true;
		}
	}
	return false;
}

/* "hierarchy:controllers:path"; what is deleted has " (deleted)" behind it, and no name any more.
 */
static const char *path_of(char *line, const char **controllers)
{
	char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;

	if (!second || second[1] != '/')
		return NULL;
	*second = '\0';
	*controllers = first + 1;
	second[1 + strcspn(second + 1, "\n")] = '\0';
	return second + 1;
}

static bool is_wanted(const char *controllers)
{
	return !*controllers || !strcmp(controllers, "memory") || !strncmp(controllers, "name=", 5);
}

/* The unified one comes last; of the others whichever has it below the root. */
static bool take_line(struct cgroup *cgroup, char *line)
{
	const char *controllers, *path = path_of(line, &controllers);
	bool unified;

	if (!path || !is_wanted(controllers))
		return false;
	unified = !*controllers;
	if (*cgroup->path && cgroup->path[1] && (!path[1] || !unified))
		return false;
	snprintf(cgroup->path, sizeof(cgroup->path), "%s", path);
	return unified;
}

bool cgroup_read(pid_t pid, struct cgroup *cgroup)
{
	char path[32], line[CGROUP_PATH_MAX + 128];
	bool unified = false;
	FILE *file;

	*cgroup = (struct cgroup){ 0 };
	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		unified = take_line(cgroup, line);
	if (file)
		fclose(file);
	return *cgroup->path && (!unified || find_id(cgroup));
}

void cgroup_observe(const uint8_t *record)
{
	struct perf_event_header header;
	struct agent_record_end end;
	uint32_t pid;

	memcpy(&header, record, sizeof(header));
	memcpy(&pid, record + sizeof(header), sizeof(pid));
	if (header.type != PERF_RECORD_COMM || !(header.misc & PERF_RECORD_MISC_COMM_EXEC) ||
	    cgroups.count == NOTED_MAX)
		return;
	memcpy(&end, record + header.size - sizeof(end), sizeof(end));
	cgroups.noted[cgroups.count++] = (struct noted){ (pid_t)pid, end.time };
}

static bool is_allowed(void)
{
	uint64_t now = clock_raw_ms();

	if (now - cgroups.begun >= 1000) {
		cgroups.begun = now;
		cgroups.told = 0;
	}
	return cgroups.told++ < CGROUP_RATE;
}

/* With the time of the exec: whoever starts a program in a cgroup puts it there before. */
static void tell(const struct noted *noted, struct output *output)
{
	static struct cgroup cgroup;
	struct {
		struct perf_event_header header;
		uint64_t id;
	} fixed = { .header = { .type = PERF_RECORD_CGROUP } };
	struct agent_record_end end = { (uint32_t)noted->pid, (uint32_t)noted->pid, noted->time };
	struct agent_events *message;
	size_t name, size;

	if (!cgroup_read(noted->pid, &cgroup))
		return;
	name = (strlen(cgroup.path) + 1 + 7) / 8 * 8;
	size = sizeof(fixed) + name + sizeof(end);
	message = output_message(output, AGENT_EVENTS, sizeof(*message) + size);
	if (!message)
		return;
	fixed.header.size = (uint16_t)size;
	fixed.id = cgroup.id;
	message->cpu = AGENT_CPU_SNAPSHOT;
	memcpy(message->records, &fixed, sizeof(fixed));
	memcpy(message->records + sizeof(fixed), cgroup.path, strlen(cgroup.path));
	memcpy(message->records + size - sizeof(end), &end, sizeof(end));
}

void cgroup_send(struct output *output)
{
	for (unsigned int i = 0; i < cgroups.count; i++)
		if (is_allowed())
			tell(&cgroups.noted[i], output);
	cgroup_reset();
}

void cgroup_reset(void)
{
	cgroups.count = 0;
}
