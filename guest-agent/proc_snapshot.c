/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-agent/proc_snapshot.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "guest-agent/build_ids.h"
#include "guest-agent/process_cgroup.h"
#include "guest-agent/timing.h"
#include "shared/read_file.h"

#define TRIES          8
#define LINE_MAX_BYTES 4400  /* of /proc/PID/maps: numbers and PATH_MAX */
#define MAPS_AT_ONCE   16384 /* bytes: each read walks the kernel's tree again */

/* The records of one process; they must fit into one message. */
struct records {
	pid_t pid;
	uint64_t time;
	uint64_t cut;           /* records that did not fit, and mappings with overlong names */
	char program[PATH_MAX]; /* as in /proc/PID/maps; "" if unknown */
	bool restart;           /* mark the first COMM as an exec */
	size_t mappings;        /* bytes before the first mapping */
	size_t program_at;      /* bytes before the program's mapping; 0: none */
	size_t size;
	uint8_t bytes[AGENT_MESSAGE_MAX - sizeof(struct agent_message) -
		      sizeof(struct agent_events) - 16];
};

static void add_record(struct records *records, struct perf_event_header header, const void *fixed,
		       size_t fixed_size, const char *name, pid_t tid)
{
	struct agent_record_end end = { (uint32_t)records->pid, (uint32_t)tid, records->time };
	size_t name_size = strlen(name) + 1, padded = (name_size + 7) / 8 * 8;
	uint8_t *to = records->bytes + records->size;

	header.size = (uint16_t)(sizeof(header) + fixed_size + padded + sizeof(end));
	if (header.size > sizeof(records->bytes) - records->size) {
		records->cut++;
		return;
	}
	memset(to, 0, header.size);
	memcpy(to, &header, sizeof(header));
	memcpy(to + sizeof(header), fixed, fixed_size);
	memcpy(to + sizeof(header) + fixed_size, name, name_size);
	memcpy(to + header.size - sizeof(end), &end, sizeof(end));
	records->size += header.size;
}

static void add_comm(struct records *records, pid_t tid, const char *name)
{
	struct perf_event_header header = { .type = PERF_RECORD_COMM,
					    .misc = PERF_RECORD_MISC_USER };
	uint32_t ids[] = { (uint32_t)records->pid, (uint32_t)tid };

	if (records->restart && tid == records->pid)
		header.misc |= PERF_RECORD_MISC_COMM_EXEC;
	add_record(records, header, ids, sizeof(ids), name, tid);
}

static void add_thread(struct records *records, pid_t tid)
{
	char path[64], comm[17]; /* with a newline and a NUL */
	size_t size;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", records->pid, tid);
	size = read_small_file(AT_FDCWD, path, comm, sizeof(comm));
	if (!size)
		return; /* the thread exited */
	comm[size - 1] = '\0';
	add_comm(records, tid, comm);
}

/* All threads except the first. */
static void add_threads(struct records *records)
{
	struct dirent *entry;
	char path[32];
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", records->pid);
	tasks = opendir(path);
	while (tasks && (entry = readdir(tasks)))
		if (atoi(entry->d_name) > 0 && atoi(entry->d_name) != records->pid)
			add_thread(records, atoi(entry->d_name));
	if (tasks)
		closedir(tasks);
}

/* /proc escapes newlines, and only these, as \012. */
static void restore_newlines(char *path)
{
	char *to = path;

	while (*path) {
		bool newline = !strncmp(path, "\\012", 4);

		*to++ = newline ? '\n' : *path;
		path += newline ? 4 : 1;
	}
	*to = '\0';
}

/* A line of /proc/PID/maps: "start-end rwxp offset major:minor inode   path". */
struct maps_line {
	struct mapped_file file;
	const char *mode;
	uint64_t offset;
};

/* A cheap check that skips most lines. */
static bool is_code(const char *line)
{
	const char *mode = strchr(line, ' ');

	return mode && strnlen(mode, 6) == 6 && mode[3] == 'x' && mode[5] == ' ';
}

/* Parses the number at *AT and skips one byte after it. */
static uint64_t parse_number(char **at, int base)
{
	uint64_t number = strtoull(*at, at, base);

	*at += **at ? 1 : 0;
	return number;
}

/* Without sscanf(3), which is too slow here. */
static struct maps_line parse_line(pid_t pid, char *line)
{
	struct maps_line parsed = { .file.pid = pid };

	line[strcspn(line, "\n")] = '\0';
	parsed.file.start = parse_number(&line, 16);
	parsed.file.end = parse_number(&line, 16);
	parsed.mode = line;
	line += strcspn(line, " ");
	parsed.offset = parse_number(&line, 16);
	parsed.file.major = (uint32_t)parse_number(&line, 16);
	parsed.file.minor = (uint32_t)parse_number(&line, 16);
	parsed.file.inode = parse_number(&line, 10);
	line += strspn(line, " ");
	restore_newlines(line);
	parsed.file.path = line;
	return parsed;
}

static void add_mapping(struct records *records, char *text)
{
	struct perf_event_header header = { .type = PERF_RECORD_MMAP2,
					    .misc = PERF_RECORD_MISC_USER };
	struct agent_mmap2 mapping = { .pid = (uint32_t)records->pid,
				       .tid = (uint32_t)records->pid };
	struct maps_line line = parse_line(records->pid, text);
	const struct mapped_file *file = &line.file;
	uint8_t build_id[BUILD_ID_MAX];
	size_t build_id_size = file->inode ? build_ids_find(file, build_id) : 0;
	size_t at = records->size;

	mapping.start = file->start;
	mapping.size = file->end - file->start;
	mapping.offset = line.offset;
	mapping.prot = (line.mode[0] == 'r' ? PROT_READ : 0) |
		       (line.mode[1] == 'w' ? PROT_WRITE : 0) | PROT_EXEC;
	mapping.flags = line.mode[3] == 's' ? MAP_SHARED : MAP_PRIVATE;
	if (build_id_size) {
		header.misc |= PERF_RECORD_MISC_MMAP_BUILD_ID;
		mapping.build_id_size = (uint8_t)build_id_size;
		memcpy(mapping.build_id, build_id, build_id_size);
	} else {
		mapping.major = file->major;
		mapping.minor = file->minor;
		mapping.inode = file->inode;
	}
	add_record(records, header, &mapping, sizeof(mapping), *file->path ? file->path : "//anon",
		   records->pid);
	if (records->size > at && !records->program_at && *file->path &&
	    !strcmp(file->path, records->program))
		records->program_at = at;
}

struct process {
	char name[16];
	unsigned long threads,
		memory; /* memory: bytes of its address space; a kernel thread has none */
};

/* The number after SPACES spaces of TEXT, or 0. */
static unsigned long number_after(const char *text, unsigned int spaces)
{
	while (text && spaces--) {
		text = strchr(text, ' ');
		text += text ? 1 : 0;
	}
	return text ? strtoul(text, NULL, 10) : 0;
}

/* "PID (name) state ...", proc_pid_stat(5): one file has all that most scans need, and each further
 * file of a process costs the kernel some us. The name may contain brackets; a kernel thread's may
 * be longer than TASK_COMM_LEN.
 */
static bool parse_stat(const char *text, struct process *process)
{
	const char *name = strchr(text, '('), *end = strrchr(text, ')');
	size_t length;

	if (!name || !end || end < name)
		return false;
	name++;
	length = (size_t)(end - name);
	*process = (struct process){
		.threads = number_after(end, 18),
		.memory = number_after(end, 21),
	};
	memcpy(process->name, name,
	       length < sizeof(process->name) ? length : sizeof(process->name) - 1);
	return true;
}

/* False if the process exited. */
static bool read_stat(pid_t pid, struct process *process)
{
	char path[32], text[1024];

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	return read_small_file(AT_FDCWD, path, text, sizeof(text)) && parse_stat(text, process);
}

static void find_program(struct records *records)
{
	char path[32];
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/%d/exe", records->pid);
	length = readlink(path, records->program, sizeof(records->program) - 1);
	records->program[length > 0 ? length : 0] = '\0';
}

/* Reads the next line that fits. The rest of an overlong one is skipped: it is a file name that the
 * process chose, and could be parsed as a line.
 */
static bool next_line(FILE *maps, char line[LINE_MAX_BYTES], uint64_t *too_long)
{
	bool begins = true;

	while (fgets(line, LINE_MAX_BYTES, maps)) {
		bool ends = strchr(line, '\n');

		if (begins && ends)
			return true;
		*too_long += begins;
		begins = ends;
	}
	return false;
}

static void add_mappings(struct records *records)
{
	static char buffer[MAPS_AT_ONCE];
	char path[32], line[LINE_MAX_BYTES];
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", records->pid);
	maps = fopen(path, "re");
	if (maps)
		setvbuf(maps, buffer, _IOFBF, sizeof(buffer));
	while (maps && next_line(maps, line, &records->cut))
		if (is_code(line))
			add_mapping(records, line);
	if (maps)
		fclose(maps);
}

static void add_cgroup(struct records *records)
{
	struct perf_event_header header = { .type = PERF_RECORD_CGROUP };
	static struct cgroup cgroup;

	if (cgroup_read(records->pid, &cgroup))
		add_record(records, header, &cgroup.id, sizeof(cgroup.id), cgroup.path,
			   records->pid);
}

static bool send(const struct records *records, struct output *output)
{
	struct agent_events *message;

	if (!records->size)
		return true;
	message = output_message(output, AGENT_EVENTS, sizeof(*message) + records->size);
	if (!message)
		return false;
	message->cpu = AGENT_CPU_SNAPSHOT;
	memcpy(message->records, records->bytes, records->size);
	return true;
}

/* After an exec, the first mapped file is the program. */
static void put_program_first(struct records *records)
{
	static uint8_t program[sizeof(records->bytes)];
	struct perf_event_header header;
	size_t at = records->program_at;

	if (!at)
		return;
	memcpy(&header, records->bytes + at, sizeof(header));
	memcpy(program, records->bytes + at, header.size);
	memmove(records->bytes + records->mappings + header.size,
		records->bytes + records->mappings, at - records->mappings);
	memcpy(records->bytes + records->mappings, program, header.size);
}

static void read_process(struct records *records, pid_t pid, bool restart)
{
	struct process process;

	/* Without clearing the large buffer. */
	records->pid = pid;
	records->time = clock_raw();
	records->restart = restart;
	records->size = records->cut = records->program_at = 0;
	if (!read_stat(pid, &process))
		return;
	/* The first thread's name comes first: as an exec it ends everything before it. */
	add_comm(records, pid, process.name);
	if (process.threads > 1)
		add_threads(records);
	if (process.memory)
		add_cgroup(records);
	records->mappings = records->size;
	if (!process.memory)
		return;
	find_program(records);
	add_mappings(records);
	if (restart)
		put_program_first(records);
}

/* False if OUTPUT has no room. */
static bool report_process(struct snapshot *snapshot, pid_t pid, bool restart,
			   struct events *events, struct output *output)
{
	static struct records records;

	for (int i = 0; i < TRIES; i++) {
		events->watched = pid;
		if (!events_drain(events, output))
			return false;
		events->touched = false;
		read_process(&records, pid, restart);
		if (!events_drain(events, output))
			return false;
		if (events->touched)
			continue;
		if (!send(&records, output))
			return false;
		snapshot->cut += records.cut;
		return true;
	}
	snapshot->unstable++;
	return true;
}

void snapshot_begin(struct snapshot *snapshot, bool restart)
{
	snapshot_end(snapshot);
	*snapshot = (struct snapshot){ .directory = opendir("/proc"), .restart = restart };
}

void snapshot_end(struct snapshot *snapshot)
{
	if (snapshot->directory)
		closedir(snapshot->directory);
	snapshot->directory = NULL;
}

static pid_t next_process(struct snapshot *snapshot)
{
	struct dirent *entry;

	while ((entry = readdir(snapshot->directory)))
		if (atoi(entry->d_name) > 0)
			return atoi(entry->d_name);
	return 0;
}

bool snapshot_step(struct snapshot *snapshot, struct events *events, struct output *output)
{
	if (!snapshot->pending)
		snapshot->pending = next_process(snapshot);
	if (!snapshot->pending)
		snapshot_end(snapshot);
	else if (!report_process(snapshot, snapshot->pending, snapshot->restart, events, output))
		return false;
	snapshot->pending = 0;
	return true;
}

bool snapshot_process(struct snapshot *snapshot, pid_t pid, struct events *events,
		      struct output *output)
{
	return report_process(snapshot, pid, true, events, output);
}
