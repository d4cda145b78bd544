/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-agent/process_cgroup.h"

#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "guest-agent/timing.h"

#define QUEUE_MAX 64u

/* A process that executed a program. */
struct queued {
	pid_t pid;
	uint64_t time; /* ns of clock_raw(), of the execve */
};

static struct {
	struct queued queued[QUEUE_MAX]; /* in order */
	unsigned int count;
	uint64_t begun; /* ms: start of the second that SENT counts */
	unsigned int sent;
} cgroups;

/* Mount points of the unified hierarchy, alone or next to version 1. */
static const char *const roots[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };

/* Only cgroup2 has this file in every directory. */
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

/* "hierarchy:controllers:path"; a deleted cgroup has " (deleted)" appended. */
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

static bool is_relevant(const char *controllers)
{
	return !*controllers || !strcmp(controllers, "memory") || !strncmp(controllers, "name=", 5);
}

/* The unified hierarchy comes last; of the others one that does not have the process in its root.
 */
static bool parse_line(struct cgroup *cgroup, char *line)
{
	const char *controllers, *path = path_of(line, &controllers);
	bool unified;

	if (!path || !is_relevant(controllers))
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
		unified = parse_line(cgroup, line);
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
	    cgroups.count == QUEUE_MAX)
		return;
	memcpy(&end, record + header.size - sizeof(end), sizeof(end));
	cgroups.queued[cgroups.count++] = (struct queued){ (pid_t)pid, end.time };
}

static bool is_allowed(void)
{
	uint64_t now = clock_raw_ms();

	if (now - cgroups.begun >= 1000) {
		cgroups.begun = now;
		cgroups.sent = 0;
	}
	return cgroups.sent++ < CGROUP_RATE;
}

/* With the time of the execve, as a process is moved to its cgroup before it. */
static void report(const struct queued *queued, struct output *output)
{
	static struct cgroup cgroup;
	struct {
		struct perf_event_header header;
		uint64_t id;
	} fixed = { .header = { .type = PERF_RECORD_CGROUP } };
	struct agent_record_end end = { (uint32_t)queued->pid, (uint32_t)queued->pid,
					queued->time };
	struct agent_events *message;
	size_t name, size;

	if (!cgroup_read(queued->pid, &cgroup))
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
			report(&cgroups.queued[i], output);
	cgroup_reset();
}

void cgroup_reset(void)
{
	cgroups.count = 0;
}
