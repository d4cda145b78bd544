/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-agent/connector.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>

#include "guest-agent/timing.h"
#include "shared/agent_protocol.h"
#include "shared/clock_ns.h"

/* Holds thousands of events of about 100 bytes with the kernel's overhead. */
#define RECEIVE_BUFFER (1 << 20)
/* The kernel answers the request at once, if it has process events. */
#define ANSWER_MS 200

/* A forked process usually executes a program next; until then it has its parent's mappings, which
 * are not worth a scan. */
#define FORKED_MS 5

/* ms after the start. The dynamic linker maps libraries in the first ms; programs load others
 * during startup. */
static const unsigned int scans[] = { 0, 500 };
#define SCANS (sizeof(scans) / sizeof(scans[0]))

struct message {
	struct nlmsghdr header;
	struct cn_msg connector;
	union {
		enum proc_cn_mcast_op operation;
		struct proc_event event;
	};
} __attribute__((packed, aligned(4)));

static int request(int fd, enum proc_cn_mcast_op operation)
{
	struct message message = {
		.header = { .nlmsg_len = offsetof(struct message, operation) + sizeof(operation),
			    .nlmsg_type = NLMSG_DONE },
		.connector = { .id = { CN_IDX_PROC, CN_VAL_PROC }, .len = sizeof(operation) },
		.operation = operation,
	};

	return send(fd, &message, message.header.nlmsg_len, 0) < 0 ? -errno : 0;
}

/* Size of the kernel's event in bytes; 0 if the message is from another source; negative errno. */
static ssize_t receive(int fd, struct proc_event *event)
{
	struct sockaddr_nl from = { .nl_pid = 1 };
	socklen_t from_size = sizeof(from);
	struct message message;
	ssize_t size = recvfrom(fd, &message, sizeof(message), MSG_DONTWAIT,
				(struct sockaddr *)&from, &from_size);

	*event = (struct proc_event){ .what = PROC_EVENT_NONE };
	if (size < 0)
		return -errno;
	memset((uint8_t *)&message + size, 0, sizeof(message) - (size_t)size);
	if (from.nl_pid || message.connector.id.idx != CN_IDX_PROC ||
	    message.connector.id.val != CN_VAL_PROC)
		return 0;
	*event = message.event;
	return size;
}

/* A kernel without these events accepts the request but does not answer. */
static int wait_for_answer(int fd)
{
	struct pollfd answer = { .fd = fd, .events = POLLIN };
	struct proc_event event;
	ssize_t size;

	if (poll(&answer, 1, ANSWER_MS) <= 0)
		return -ENOSYS;
	size = receive(fd, &event);
	if (size < 0)
		return (int)size;
	return size && event.what == PROC_EVENT_NONE ? -(int)event.event_data.ack.err : 0;
}

int connector_open(struct connector *connector)
{
	struct sockaddr_nl group = { .nl_family = AF_NETLINK, .nl_groups = CN_IDX_PROC };
	int buffer = RECEIVE_BUFFER, error = 0;
	int fd = socket(PF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_CONNECTOR);

	*connector = (struct connector){ .fd = -1 };
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer));
	if (bind(fd, (struct sockaddr *)&group, sizeof(group)))
		error = -errno;
	if (!error)
		error = request(fd, PROC_CN_MCAST_LISTEN);
	if (!error)
		error = wait_for_answer(fd);
	if (error)
		close(fd);
	else
		connector->fd = fd;
	return error;
}

void connector_close(struct connector *connector)
{
	if (connector->fd < 0)
		return;
	request(connector->fd, PROC_CN_MCAST_IGNORE);
	close(connector->fd);
	connector->fd = -1;
}

/* The kernel stamps events with CLOCK_MONOTONIC. Its slew since then is below 500 ppm of a short
 * time. */
static uint64_t to_raw_time(struct connector *connector, uint64_t monotonic)
{
	uint64_t raw = clock_raw(), now = clock_ns(CLOCK_MONOTONIC);

	if (now > monotonic)
		raw -= now - monotonic;
	if (raw > connector->latest)
		connector->latest = raw;
	return connector->latest;
}

static size_t finish(uint8_t *record, size_t size, struct perf_event_header header, uint64_t time)
{
	uint32_t ids[2];

	memcpy(ids, record + sizeof(header), sizeof(ids));
	memcpy(record + size, &(struct agent_record_end){ ids[0], ids[1], time },
	       sizeof(struct agent_record_end));
	header.size = (uint16_t)(size + sizeof(struct agent_record_end));
	memcpy(record, &header, sizeof(header));
	return header.size;
}

/* An empty NAME means unknown. */
static size_t add_comm(uint8_t *to, pid_t pid, pid_t tid, const char *name, bool exec,
		       uint64_t time)
{
	struct {
		struct perf_event_header header;
		uint32_t pid, tid;
		char comm[16];
	} record = { .header = { .type = PERF_RECORD_COMM,
				 .misc = exec ? PERF_RECORD_MISC_COMM_EXEC
					      : PERF_RECORD_MISC_USER },
		     .pid = (uint32_t)pid,
		     .tid = (uint32_t)tid };

	memcpy(record.comm, name, strnlen(name, sizeof(record.comm) - 1));
	memcpy(to, &record, sizeof(record));
	return finish(to, sizeof(record), record.header, time);
}

static size_t add_exit(uint8_t *to, pid_t pid, pid_t tid, uint64_t time)
{
	struct {
		struct perf_event_header header;
		uint32_t pid, parent_pid, tid, parent_tid;
		uint64_t time;
	} record = { .header = { .type = PERF_RECORD_EXIT },
		     .pid = (uint32_t)pid,
		     .parent_pid = (uint32_t)pid,
		     .tid = (uint32_t)tid,
		     .parent_tid = (uint32_t)pid,
		     .time = time };

	memcpy(to, &record, sizeof(record));
	return finish(to, sizeof(record), record.header, time);
}

static unsigned int find_due(const struct connector *connector, pid_t pid)
{
	unsigned int i = 0;

	while (i < connector->due_count && connector->due[i].pid != pid)
		i++;
	return i;
}

static void remove_due(struct connector *connector, unsigned int index)
{
	connector->due[index] = connector->due[--connector->due_count];
}

/* Schedules the scans of PID from TIME (ms) on. False if the list is full. */
static bool schedule(struct connector *connector, pid_t pid, uint64_t time)
{
	unsigned int i = find_due(connector, pid);

	if (i == CONNECTOR_DUE_MAX)
		return false;
	if (i == connector->due_count)
		connector->due_count++;
	connector->due[i] = (struct connector_due){ .pid = pid, .time = time };
	return true;
}

/* The process counts as missed if it was not scanned since its start or latest execve. */
static void end(struct connector *connector, pid_t pid)
{
	unsigned int i = find_due(connector, pid);

	if (i == connector->due_count)
		return;
	connector->missed += !connector->due[i].scans;
	remove_due(connector, i);
}

/* After a fork or execve the process's name and mappings are unknown until its first scan. Its
 * parent's are no substitute, because the kernel does not report which process's memory was copied
 * (CLONE_PARENT).
 */
static enum connector_result begin(struct connector *connector, pid_t pid, uint64_t scan,
				   uint8_t *to, size_t *size, uint64_t time)
{
	if (!schedule(connector, pid, scan))
		connector->overflowed = true;
	*size = add_comm(to, pid, pid, "", true, time);
	return CONNECTOR_RECORD;
}

static enum connector_result take(struct connector *connector, const struct proc_event *event,
				  uint8_t *to, size_t *size, pid_t *pid)
{
	uint64_t time = to_raw_time(connector, event->timestamp_ns);

	switch (event->what) {
	case PROC_EVENT_FORK:
		*pid = event->event_data.fork.child_tgid;
		if (event->event_data.fork.child_pid != *pid)
			return CONNECTOR_OTHER; /* a thread: same memory */
		end(connector, *pid); /* of an earlier process with this pid whose exit was lost */
		return begin(connector, *pid, time / NS_PER_MS + FORKED_MS, to, size, time);
	case PROC_EVENT_EXEC:
		*pid = event->event_data.exec.process_tgid;
		return begin(connector, *pid, time / NS_PER_MS, to, size, time);
	case PROC_EVENT_COMM:
		*pid = event->event_data.comm.process_tgid;
		*size = add_comm(to, *pid, event->event_data.comm.process_pid,
				 event->event_data.comm.comm, false, time);
		return CONNECTOR_RECORD;
	case PROC_EVENT_EXIT:
		*pid = event->event_data.exit.process_tgid;
		if (event->event_data.exit.process_pid == *pid)
			end(connector, *pid);
		*size = add_exit(to, *pid, event->event_data.exit.process_pid, time);
		return CONNECTOR_RECORD;
	default:
		return CONNECTOR_OTHER;
	}
}

enum connector_result connector_next(struct connector *connector, uint8_t *to, size_t *size,
				     pid_t *pid)
{
	struct proc_event event;
	ssize_t received = receive(connector->fd, &event);

	if (received == -ENOBUFS)
		return CONNECTOR_LOST;
	if (received < 0)
		return CONNECTOR_NOTHING;
	return received ? take(connector, &event, to, size, pid) : CONNECTOR_OTHER;
}

/* Index of the process that has been due longest; DUE_COUNT: none. */
static unsigned int find_next(const struct connector *connector, uint64_t now)
{
	unsigned int next = connector->due_count;

	for (unsigned int i = 0; i < connector->due_count; i++)
		if (connector->due[i].time <= now &&
		    (next == connector->due_count ||
		     connector->due[i].time < connector->due[next].time))
			next = i;
	return next;
}

pid_t connector_due(struct connector *connector, uint64_t now)
{
	unsigned int next = find_next(connector, now);
	struct connector_due *due = &connector->due[next];
	pid_t pid;

	if (next == connector->due_count)
		return 0;
	pid = due->pid;
	if (++due->scans == SCANS)
		remove_due(connector, next);
	else
		due->time = now + scans[due->scans];
	return pid;
}
